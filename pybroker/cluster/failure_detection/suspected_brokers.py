"""Brokers that may be dead, and the callbacks that wait until it is known.

Owns: since when a broker is suspected, and the callbacks of requests that wait rather than get an answer that is about
to change.  A client whose leader has just died asks at once for another one, and hears of the dead one again unless it
waits for the election.  Most clients then ask no second time for up to a second.  Does not own who is in doubt
(``liveness``) nor what comes of it.

Invariants:
- No callback waits for longer than ``SUSPICION_HOLD_MS``.
- A doubt ends with the word that the broker lives, with its fencing or new registration in the image, or with that
  time.
- Callbacks run later than what ended the last doubt.

Counterpart in Kafka: none; a client there asks again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from pybroker.cluster.image.run_callbacks import run_each
from pybroker.cluster_limits import SUSPICION_HOLD_MS

if TYPE_CHECKING:
    from pybroker.cluster.image.cluster_image import ClusterImage, ImageDelta
    from pybroker.env import Cancellable, Env

log = logging.getLogger(__name__)


class SuspectedBrokers:
    def __init__(self, env: Env) -> None:
        self._env = env
        self._timers: dict[int, Cancellable] = {}  # by the brokers that are in doubt
        self._waiting: dict[object, Callable[[], None]] = {}

    @property
    def is_any(self) -> bool:
        """Whether any broker is in doubt."""
        return bool(self._timers)

    def begin(self, broker_id: int) -> None:
        """The broker may be dead."""
        if broker_id not in self._timers:
            self._timers[broker_id] = self._env.timers.call_later(SUSPICION_HOLD_MS, self.end, broker_id)

    def end(self, broker_id: int) -> None:
        """It is known whether the broker lives, or the wait for that is over."""
        timer = self._timers.pop(broker_id, None)
        if timer is not None:
            timer.cancel()
            if not self._timers:
                self._env.timers.call_soon(self._tell)

    def wait(self, done: Callable[[], None]) -> Callable[[], None]:
        """Call ``done()`` when no broker is in doubt any more; the result has it not be called."""
        key = object()
        self._waiting[key] = done
        return lambda: self._forget(key)

    def on_image(self, image: ClusterImage, delta: ImageDelta) -> None:
        """What the controller has decided ends a doubt."""
        for broker_id in delta.brokers_changed:
            self.end(broker_id)

    def close(self) -> None:
        """All waits end."""
        for broker_id in list(self._timers):
            self.end(broker_id)

    def _forget(self, key: object) -> None:
        self._waiting.pop(key, None)

    def _tell(self) -> None:
        if self._timers:
            return  # the next doubt came before those who wait had their turn
        waiting, self._waiting = self._waiting, {}
        for failure in run_each(waiting.values()):
            log.error("a callback that waited for certainty about a broker failed", exc_info=failure)
