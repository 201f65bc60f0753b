"""Connections that are not authenticated yet, or whose TLS handshake is not over: how many, and for how long.

Owns: their order and their one timer.  The rule: over ``limits.HALF_OPEN_MAX`` the oldest is closed, not the newcomer,
so that strangers who only hold their places keep nobody honest out, whose login takes milliseconds; and after
``limits.HALF_OPEN_MS`` each is closed.

Kafka counterpart: none; there they stay for ``connections.max.idle.ms``, up to ``max.connections``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pybroker import limits

if TYPE_CHECKING:
    from pybroker.env import Cancellable, Env


class HalfOpenConnection(Protocol):
    """Who is half open."""

    def give_up(self, reason: str) -> None:
        """Close it at once."""
        ...


class HalfOpen:
    """See the module's docstring."""

    __slots__ = ("_env", "_since_ms", "_timer")

    def __init__(self, env: Env) -> None:
        self._env = env
        self._since_ms: dict[HalfOpenConnection, int] = {}  # the oldest first
        self._timer: Cancellable | None = None

    def __len__(self) -> int:
        return len(self._since_ms)

    def add(self, connection: HalfOpenConnection) -> None:
        """It has just come."""
        self._since_ms[connection] = self._env.clock.monotonic_ms()
        if len(self._since_ms) > limits.HALF_OPEN_MAX:
            self._end_oldest("too many connections are half open, and it is the oldest")
        if self._timer is None:
            self._timer = self._env.timers.call_later(limits.HALF_OPEN_MS, self._look)

    def discard(self, connection: HalfOpenConnection) -> None:
        """It is open now, or gone."""
        self._since_ms.pop(connection, None)

    def close(self) -> None:
        """Nobody comes any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        overdue_ms = self._env.clock.monotonic_ms() - limits.HALF_OPEN_MS
        while self._since_ms and next(iter(self._since_ms.values())) <= overdue_ms:
            self._end_oldest("it was not authenticated in time")
        if self._since_ms:
            wait_ms = next(iter(self._since_ms.values())) - overdue_ms
            self._timer = self._env.timers.call_later(wait_ms, self._look)

    def _end_oldest(self, reason: str) -> None:
        oldest = next(iter(self._since_ms))
        del self._since_ms[oldest]
        oldest.give_up(reason)
