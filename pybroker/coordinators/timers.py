"""Keyed one-shot timers of one shard.

Owns: which timers of a shard are set and when they expire.  Owns no clock: ``env`` hands one in.

A heartbeat pushes a session's end back thousands of times before it ever expires, so moving a deadline later only
writes a number. The loop's timer runs at the old time, sees the new deadline and arms itself for the rest.

What a timer of a long kind sets off holds the loop for a slice of its time, and there may be one for each group. When
such a timer is due it waits for its turn (``round_robin_work``), and is set until it has it.

What a timer sets off may have to wait once more, behind an append that is on its way.  Until it begins the timer can
be set anew or cancelled: a heartbeat that came before the end of the session, and waited longer, keeps its member.

Counterpart in Kafka: ``CoordinatorTimerImpl``.
"""

from __future__ import annotations

from collections.abc import Callable

from pybroker.coordinators.result import TimerKey
from pybroker.coordinators.round_robin_work import RoundRobinWork
from pybroker.env import Cancellable, Env


class _Timer:
    __slots__ = ("deadline_ms", "fires_at_ms", "handle")

    def __init__(self, deadline_ms: int, handle: Cancellable) -> None:
        self.deadline_ms = deadline_ms
        self.fires_at_ms = deadline_ms
        self.handle = handle


class Expiry:
    """One expiry of a timer: tells it from a later one of the same key."""

    __slots__ = ()


class TimerTable:
    """``expired(key, expiry)`` is called on the loop, once for each timer that was neither replaced nor cancelled.

    What it sets off has to ask ``take(key, expiry)`` when it begins, and to do nothing if that is False.

    ``long_kinds``: the kinds (first of a key) of those that wait for their turn.
    """

    __slots__ = ("_env", "_expired", "_long_kinds", "_round_robin_work", "_timers", "_untaken")

    def __init__(
        self, env: Env, turns: RoundRobinWork, long_kinds: frozenset[str], expired: Callable[[TimerKey, Expiry], None]
    ) -> None:
        self._env = env
        self._round_robin_work = turns
        self._long_kinds = long_kinds
        self._expired = expired
        self._timers: dict[TimerKey, _Timer] = {}
        # Those that have expired and not begun yet; a key is in one of both.
        self._untaken: dict[TimerKey, Expiry] = {}

    def __contains__(self, key: TimerKey) -> bool:
        return key in self._timers

    def __len__(self) -> int:
        return len(self._timers)

    def schedule(self, key: TimerKey, delay_ms: int) -> None:
        """Let ``key`` expire ``delay_ms`` from now, whatever it was set to before."""
        self._untaken.pop(key, None)
        deadline_ms = self._env.clock.monotonic_ms() + delay_ms
        timer = self._timers.get(key)
        if timer is not None:
            if timer.fires_at_ms <= deadline_ms:
                timer.deadline_ms = deadline_ms
                return
            timer.handle.cancel()
        self._timers[key] = _Timer(deadline_ms, self._arm(key, delay_ms))

    def cancel(self, key: TimerKey) -> None:
        self._untaken.pop(key, None)
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.handle.cancel()

    def clear(self) -> None:
        """Cancel all."""
        for timer in self._timers.values():
            timer.handle.cancel()
        self._timers.clear()
        self._untaken.clear()

    def take(self, key: TimerKey, expiry: Expiry) -> bool:
        """Begin what the timer set off: False if it was set anew or cancelled after it had expired."""
        if self._untaken.get(key) is not expiry:
            return False
        del self._untaken[key]
        return True

    def _fire(self, key: TimerKey) -> None:
        timer = self._timers[key]
        remaining_ms = timer.deadline_ms - self._env.clock.monotonic_ms()
        if remaining_ms > 0:
            timer.fires_at_ms = timer.deadline_ms
            timer.handle = self._arm(key, remaining_ms)
        elif key[0] in self._long_kinds:
            timer.handle = self._arm(key, 0)
        else:
            self._expire(key)

    def _arm(self, key: TimerKey, delay_ms: int) -> Cancellable:
        if delay_ms == 0 and key[0] in self._long_kinds:
            return self._round_robin_work.add(key[0], self._expire, key)
        return self._env.timers.call_later(delay_ms, self._fire, key)

    def _expire(self, key: TimerKey) -> None:
        del self._timers[key]
        expiry = self._untaken[key] = Expiry()
        self._expired(key, expiry)
