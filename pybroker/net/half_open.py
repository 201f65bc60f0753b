"""Connections that are not authenticated yet, or whose TLS handshake is not over: how many, and for how long.

Owns: their order and their one timer. The rule: over ``limits.HALF_OPEN_MAX`` the oldest is closed, not the newcomer.
So idle strangers do not keep honest clients out, whose login takes milliseconds. The same holds where they hold more
than ``limits.HALF_OPEN_BYTES_MAX`` of what is not done. After ``HALF_OPEN_MS`` each is closed.

Kafka counterpart: none; there they stay for ``connections.max.idle.ms``, up to ``max.connections``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pybroker import limits

if TYPE_CHECKING:
    from pybroker.env import Cancellable, Env

# How long a connection may be in a TLS handshake or not authenticated: a login takes two or three round trips, and ten
# thousand clients that come back at once are served in some seconds.
HALF_OPEN_MS = 30_000


class HalfOpenConnection(Protocol):
    """Who is half open."""

    def give_up(self, reason: str) -> None:
        """Close it at once."""
        ...


class HalfOpenConnections:
    __slots__ = ("_bytes", "_env", "_held", "_since_ms", "_timer")

    def __init__(self, env: Env) -> None:
        self._env = env
        self._since_ms: dict[HalfOpenConnection, int] = {}  # the oldest first
        self._held: dict[HalfOpenConnection, int] = {}  # bytes of those that hold any
        self._bytes = 0
        self._timer: Cancellable | None = None

    def __len__(self) -> int:
        return len(self._since_ms)

    def add(self, connection: HalfOpenConnection) -> None:
        """It has just come."""
        self._since_ms[connection] = self._env.clock.monotonic_ms()
        if len(self._since_ms) > limits.HALF_OPEN_MAX:
            self._end_oldest(self._since_ms, "too many connections are half open, and it is the oldest")
        if self._timer is None:
            self._timer = self._env.timers.call_later(HALF_OPEN_MS, self._look)

    def hold(self, connection: HalfOpenConnection, nbytes: int) -> None:
        """It holds so many bytes now, of what it has sent and what is not done."""
        if nbytes == 0:  # the ordinary case
            self._bytes -= self._held.pop(connection, 0)
        elif connection in self._since_ms:
            self._bytes += nbytes - self._held.get(connection, 0)
            self._held[connection] = nbytes  # who has held some stays where it is in their order
            while self._bytes > limits.HALF_OPEN_BYTES_MAX:
                self._end_oldest(self._held, "half open connections hold too much, and it is the oldest that does")

    def discard(self, connection: HalfOpenConnection) -> None:
        """It is open now, or gone."""
        self._since_ms.pop(connection, None)
        self._bytes -= self._held.pop(connection, 0)

    def close(self) -> None:
        """No connection comes any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        overdue_ms = self._env.clock.monotonic_ms() - HALF_OPEN_MS
        while self._since_ms and next(iter(self._since_ms.values())) <= overdue_ms:
            self._end_oldest(self._since_ms, "it was not authenticated in time")
        if self._since_ms:
            wait_ms = next(iter(self._since_ms.values())) - overdue_ms
            self._timer = self._env.timers.call_later(wait_ms, self._look)

    def _end_oldest(self, connections: dict[HalfOpenConnection, int], reason: str) -> None:
        oldest = next(iter(connections))
        self.discard(oldest)
        oldest.give_up(reason)
