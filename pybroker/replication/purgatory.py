"""Waiting with a deadline: where everything stands that is parked.

Owns: when parked operations expire.  Does not own what they wait for: the code that parks an operation completes it,
and takes it out of the purgatory.

Invariants:
- One loop timer at most, whatever the number of waiting operations.
- An operation expires at most once and never before its deadline, and keeps no other waiting if it fails then.
- Operations that are removed leave nothing behind but some ticks, however far away their deadlines were, which clients
  choose.

Kafka counterpart: DelayedOperationPurgatory and its TimingWheel.
"""

from __future__ import annotations

import logging
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from pybroker.env import Cancellable, Env

# The purgatory on which parked requests expire turns in steps of this length.
PURGATORY_TICK_MS = 5

log = logging.getLogger(__name__)


# A tick that nobody waits for any more stays when it is near: the next request is likely to want it.
_NEAR_TICKS: Final = 2_000
_UNUSED_TICKS_MAX: Final = 1_000


class Expiring(Protocol):
    """Something that waits.  ``expire`` is called when its time is over; it ignores the call when it is done."""

    def expire(self) -> None: ...


class Purgatory:
    """Operations by the tick of their deadline."""

    __slots__ = ("_env", "_next_tick", "_slots", "_ticks", "_timer")

    def __init__(self, env: Env) -> None:
        self._env = env
        self._slots: dict[int, dict[Expiring, None]] = {}
        self._ticks: list[int] = []
        self._timer: Cancellable | None = None
        self._next_tick = 0

    def add(self, operation: Expiring, wait_ms: int) -> int:
        """Call ``operation.expire()`` in ``wait_ms``, up to a tick later; gives back the tick, for ``remove``."""
        tick = (self._env.clock.monotonic_ms() + wait_ms) // PURGATORY_TICK_MS + 1
        slot = self._slots.get(tick)
        if slot is not None:
            slot[operation] = None
            return tick
        self._slots[tick] = {operation: None}
        heappush(self._ticks, tick)
        if self._timer is None or tick < self._next_tick:
            self._schedule()
        return tick

    def remove(self, operation: Expiring, tick: int) -> None:
        """Forget an operation that need not expire any more; one whose tick has passed is ignored."""
        slot = self._slots.get(tick)
        if slot is not None:
            slot.pop(operation, None)
            if not slot and tick > self._next_tick + _NEAR_TICKS:
                del self._slots[tick]
                if len(self._ticks) > 2 * len(self._slots) + _UNUSED_TICKS_MAX:
                    self._ticks = list(self._slots)
                    heapify(self._ticks)

    def close(self) -> None:
        """Forget everything that waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._slots.clear()
        self._ticks.clear()

    def _schedule(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._ticks:
            self._next_tick = self._ticks[0]
            delay_ms = self._next_tick * PURGATORY_TICK_MS - self._env.clock.monotonic_ms()
            self._timer = self._env.timers.call_later(max(delay_ms, 0), self._turn)

    def _turn(self) -> None:
        self._timer = None
        now_tick = self._env.clock.monotonic_ms() // PURGATORY_TICK_MS
        due: list[Expiring] = []
        while self._ticks and self._ticks[0] <= now_tick:
            due.extend(self._slots.pop(heappop(self._ticks), ()))
        self._schedule()
        for operation in due:
            try:
                operation.expire()
            except Exception:
                log.exception("an operation failed when its time was over")
