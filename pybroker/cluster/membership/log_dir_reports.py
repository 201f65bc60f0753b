"""Telling the controller one thing of this broker's log dirs: which are full, or which are cordoned.

Owns what is to be known of them, and telling the controller until the image has it, also after this process has
registered anew.  Does not own when a log dir has space (``storage/dirs/log_dir``) or is cordoned (the settings), nor
what follows from it (``decisions/brokers``).

Invariants:
- Each message has all of them, so that only the last word counts.
- One message is under way at a time, and none before the image has this process's own registration.
- An answer proves nothing, because a controller of an older version passes over what it does not know: the image is
  compared.
- The same message to the same controller goes out ever more rarely.
- A controller that has just become the active one hears it at once.

Counterpart in Kafka: the offline and cordoned log dirs of ``BrokerLifecycleManager``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from pybroker.cluster_limits import STORE_RETRY_MS

if TYPE_CHECKING:
    from pybroker.cluster.image.cluster_image import BrokerRegistration
    from pybroker.env import Cancellable, Timers

# A broker repeats to the controller what the image does not show of its log dirs after twice the time before,
# up to this: a controller of an older version will never show it.
LOG_DIR_REPORT_PAUSE_MAX_MS = 10_000


class LogDirReports:
    """Those of one process.

    The ports:
    - ``registered()`` is this process's registration as the image has it, None while nothing can be reported.
    - ``known(of)`` are the log dirs of which the image says it.
    - ``controller()`` differs for each that may hear it.
    - ``tell(directories, done)`` tells the controller, and ``done`` runs when that has answered, or cannot be reached.
    """

    def __init__(
        self,
        timers: Timers,
        registered: Callable[[], BrokerRegistration | None],
        known: Callable[[BrokerRegistration], Sequence[bytes]],
        controller: Callable[[], object],
        tell: Callable[[Sequence[bytes], Callable[[], None]], None],
    ) -> None:
        self._timers = timers
        self._registered = registered
        self._known = known
        self._controller = controller
        self._tell = tell
        self._wanted: frozenset[bytes] | None = None  # None: what the image says is not contradicted
        self._message: tuple[object, ...] = ()  # the last one: its contents, of whom, and to whom
        self._pause_ms = STORE_RETRY_MS
        self._is_under_way = False
        self._pause: Cancellable | None = None
        self._closed = False

    def become(self, directories: Collection[bytes]) -> None:
        """It is so of these, and of no others."""
        self._wanted = frozenset(directories)
        self.look()

    def look(self) -> None:
        """Tell the controller, if the image has it otherwise."""
        own = self._registered()
        if self._closed or self._is_under_way or self._wanted is None or own is None:
            return
        wanted = self._wanted.intersection(own.log_dirs)
        if wanted == frozenset(self._known(own)):
            self._message = ()
            return
        message = (wanted, own.epoch, self._controller())
        if message != self._message:
            self._message, self._pause_ms = message, STORE_RETRY_MS
            self._end_pause()
        if self._pause is None:
            self._is_under_way = True
            self._tell(sorted(wanted), self._answered)

    def close(self) -> None:
        """Tell nothing more."""
        self._closed = True
        self._end_pause()

    def _end_pause(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None

    def _answered(self) -> None:
        # The image shows soon what the controller has done; what is missing by then goes out again.
        self._is_under_way = False
        if not self._closed:
            self._pause = self._timers.call_later(self._pause_ms, self._pause_is_over)
            self._pause_ms = min(2 * self._pause_ms, LOG_DIR_REPORT_PAUSE_MAX_MS)

    def _pause_is_over(self) -> None:
        self._pause = None
        self.look()
