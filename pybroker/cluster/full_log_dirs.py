"""Telling the controller which log dirs of this broker have no room.

Owns what is to be known of them, and telling the controller until the image has it, also after this process has
registered anew.  Does not own when a log dir has room (``storage/dirs/log_dir``) nor what follows from it
(``decisions/brokers``).

Invariants: each message has all of them, so that only the last word counts; one message is under way at a time, and
none before the image has this process's own registration.

Counterpart in Kafka: the offline log dirs of ``BrokerLifecycleManager``, which never come back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pybroker.cluster_limits import STORE_RETRY_MS

if TYPE_CHECKING:
    from pybroker.cluster.image import BrokerRegistration
    from pybroker.env import Cancellable, Timers


class FullLogDirs:
    """The full log dirs of one process.

    ``registered()`` is this process's registration as the image has it; ``tell(directories, done)`` tells the
    controller, and ``done`` runs when that has answered, or cannot be reached.
    """

    def __init__(
        self,
        timers: Timers,
        registered: Callable[[], BrokerRegistration | None],
        tell: Callable[[Sequence[bytes], Callable[[], None]], None],
    ) -> None:
        self._timers = timers
        self._registered = registered
        self._tell = tell
        self._full: frozenset[bytes] = frozenset()
        self._is_telling = False
        self._pause: Cancellable | None = None
        self._closed = False

    def become(self, directories: frozenset[bytes]) -> None:
        """These have no room, and all others have."""
        self._full = directories
        self.look()

    def look(self) -> None:
        """Tell the controller, if the image has it otherwise."""
        own = self._registered()
        if self._closed or self._is_telling or own is None:
            return
        known = self._full.intersection(own.log_dirs)
        if known != frozenset(own.full_dirs):
            self._is_telling = True
            self._tell(sorted(known), self._answered)

    def close(self) -> None:
        """Tell nothing more."""
        self._closed = True
        if self._pause is not None:
            self._pause.cancel()

    def _answered(self) -> None:
        # The image shows by then what the controller has done; what is missing goes out again.
        if not self._closed:
            self._pause = self._timers.call_later(STORE_RETRY_MS, self._look_again)

    def _look_again(self) -> None:
        self._is_telling = False
        self.look()
