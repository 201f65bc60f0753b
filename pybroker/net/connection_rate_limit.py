"""The limit on the rate of new connections: those that come too fast wait here, or are closed (KIP-612).

Owns: a queue for each listener, the connections in it and what they have sent meanwhile, and those that are kept only
to be closed late.  Does not own the rates (``quotas/connection_rates``), nor what a connection becomes once it is in
(``channel_builders``).

A listener lets in one after another, as Kafka's acceptor does: who is too early for its listener or for the broker has
those behind it wait, too.  A connection that is too early for its own address is closed when its throttle time is over.
A client which tries again at once is slow, and holds up no other.  The kernel has accepted all of them: it tells of
connections only so.

Invariants:
- Nothing of what a waiting connection sends is looked at, and no more than a little of it read.
- At most ``limits.PENDING_CONNECTIONS_MAX`` wait: beyond, first those are closed that are to be closed anyway, then the
  newest.

Kafka counterpart: Acceptor, with ``waitForConnectionSlot`` and ``throttledSockets``.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, cast

from pybroker import limits
from pybroker.net.accepted_connection import AcceptedConnection, peer_host_of

if TYPE_CHECKING:
    from pybroker.env import Cancellable, Timers
    from pybroker.net.processor import Processor
    from pybroker.quotas.connection_rates import ConnectionRates

# What is read of a connection that waits.
PENDING_CONNECTION_READ_BYTES = 4 << 10

Inside = Callable[[], asyncio.BufferedProtocol]


class PendingConnection(AcceptedConnection, asyncio.BufferedProtocol):
    """A connection that waits at one listener; ``inside()`` makes what it becomes (``processor.SweptConnection``)."""

    __slots__ = (
        "_connection_rate_limit",
        "_inside",
        "_processor",
        "_received",
        "_transport",
        "closed",
        "closes_late",
        "listener",
        "peer_host",
    )

    def __init__(self, connection_rate_limit: ConnectionRateLimit, listener: str, inside: Inside) -> None:
        self._connection_rate_limit = connection_rate_limit
        self._processor = connection_rate_limit.processor
        self._inside: Inside | None = inside
        self._received = b""
        self._transport: asyncio.Transport = None  # type: ignore[assignment]  # until connection_made
        self.listener = listener
        self.peer_host = ""
        self.closes_late: Cancellable | None = None
        self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.peer_host = peer_host_of(transport)
        self._processor.add(self)
        if not self.closed:
            self._connection_rate_limit.add(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._connection_rate_limit.scratch

    def buffer_updated(self, nbytes: int) -> None:
        self._received += self._connection_rate_limit.scratch[:nbytes]
        self._transport.pause_reading()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._forget()

    def _forget(self) -> None:
        self._connection_rate_limit.discard(self)
        self._processor.remove(self)
        self._inside = None

    def let_in(self) -> None:
        """From now on the socket is another connection's, and so is what it has sent."""
        transport, inside, received = self._transport, self._inside, self._received
        assert inside is not None
        self.closed = True
        self._forget()
        connection = inside()
        transport.set_protocol(connection)
        connection.connection_made(transport)
        if received and not transport.is_closing():
            # Any connection has space for it, as it has for the first bytes of a socket.
            memoryview(connection.get_buffer(-1))[: len(received)] = received
            transport.resume_reading()
            connection.buffer_updated(len(received))

    def close(self) -> None:
        self.closed = True
        self._transport.close()

    def abort(self) -> None:
        self.closed = True
        self._transport.abort()

    def look_after(self, idle_since_sweep: int) -> None:
        """Nothing: its wait has an end."""

    def __str__(self) -> str:
        return f"{self.peer_host} (listener {self.listener})"


class _Queue:
    """Who waits at one listener, in their order; ``timer`` is until the first may come in."""

    __slots__ = ("timer", "waiting")

    def __init__(self) -> None:
        self.waiting: OrderedDict[PendingConnection, None] = OrderedDict()
        self.timer: Cancellable | None = None


class ConnectionRateLimit:
    def __init__(self, processor: Processor, timers: Timers, rates: ConnectionRates) -> None:
        self.processor = processor
        self.rates = rates
        self.scratch = memoryview(bytearray(PENDING_CONNECTION_READ_BYTES))
        self._timers = timers
        self._queues: dict[str, _Queue] = {}
        self._going: dict[PendingConnection, None] = {}  # who is to be closed soonest is not always the first

    def __len__(self) -> int:
        return len(self._going) + sum(len(queue.waiting) for queue in self._queues.values())

    def pending_connection(self, listener: str, inside: Inside) -> PendingConnection:
        """For a socket that was accepted."""
        return PendingConnection(self, listener, inside)

    def add(self, pending_connection: PendingConnection) -> None:
        """It is there, and comes in at once if it may."""
        if len(self) >= limits.PENDING_CONNECTIONS_MAX:
            if not self._going:
                pending_connection.refuse("too many connections wait to be let in")
                return
            first = next(iter(self._going))
            self.discard(first)
            first.abort()
        queue = self._queues.get(pending_connection.listener)
        if queue is None:
            queue = self._queues[pending_connection.listener] = _Queue()
        queue.waiting[pending_connection] = None
        if queue.timer is None:
            self._let_in(queue)

    def discard(self, pending_connection: PendingConnection) -> None:
        """It waits no longer, if it did."""
        self._going.pop(pending_connection, None)
        if pending_connection.closes_late is not None:
            pending_connection.closes_late.cancel()
            pending_connection.closes_late = None
        queue = self._queues.get(pending_connection.listener)
        if queue is not None:
            queue.waiting.pop(pending_connection, None)

    def close(self) -> None:
        """Let no connection in any more."""
        for queue in self._queues.values():
            if queue.timer is not None:
                queue.timer.cancel()

    def _let_in(self, queue: _Queue) -> None:
        """Let in who may come, up to the first that is too early."""
        queue.timer = None
        while queue.waiting:
            listener = next(iter(queue.waiting)).listener
            is_protected = self.processor.protects(listener)
            wait_ms = self.rates.on_arrival(listener, is_protected=is_protected)
            if wait_ms:
                queue.timer = self._timers.call_later(wait_ms, self._enter_first, queue)
                return
            self._enter(queue.waiting.popitem(last=False)[0])

    def _enter_first(self, queue: _Queue) -> None:
        """The wait is over: the first comes in; where who was counted has left meanwhile, the next in that place."""
        if queue.waiting:
            self._enter(queue.waiting.popitem(last=False)[0])
        self._let_in(queue)

    def _enter(self, pending_connection: PendingConnection) -> None:
        if pending_connection.closed:
            return
        is_protected = self.processor.protects(pending_connection.listener)
        throttle_ms = self.rates.on_entry(
            pending_connection.listener, pending_connection.peer_host[1:], is_protected=is_protected
        )
        if not throttle_ms:
            pending_connection.let_in()
            return
        self._going[pending_connection] = None
        pending_connection.closes_late = self._timers.call_later(
            throttle_ms,
            partial(pending_connection.refuse, "its address opens connections faster than its quota lets it"),
        )
