"""The listeners and what all their connections share.

Owns: listening sockets, the set of connections, the shared receive buffer, the buffer pool and its budget, the
round-robin of connections that have more to serve than one turn allows, and the sweep for idle and stalled peers.
Does not own requests (``connection``, ``dispatch``) nor what they mean (``handlers``).

Kafka counterpart: SocketServer, Acceptor, ConnectionQuotas.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

from pybroker import limits
from pybroker.net.buffers import BufferPool
from pybroker.net.connection import Connection
from pybroker.net.dispatch import Dispatcher

if TYPE_CHECKING:
    from pybroker.env import Cancellable, Env
    from pybroker.handlers.services import Services

log = logging.getLogger(__name__)

_BACKLOG = 1024


class Listener:
    """One name that clients connect by: bound sockets, and the host and port that are told to clients."""

    __slots__ = ("host", "name", "port", "server")

    def __init__(self, name: str, host: str, port: int) -> None:
        self.name = name
        self.host = host
        self.port = port
        self.server: asyncio.Server | None = None


class SocketServer:
    """See the module's docstring.  Lives on one loop; nothing of it is called from another thread."""

    def __init__(
        self,
        env: Env,
        services: Services,
        *,
        frame_bytes_max: int,
        queued_bytes_max: int,
        idle_ms_max: int,
        connections_max: int,
    ) -> None:
        self.services = services
        self.frame_bytes_max = frame_bytes_max
        self.pool = BufferPool()
        self.shared = self.pool.take(limits.RECEIVE_BUFFER_BYTES)
        self.dispatcher = Dispatcher()
        self.sweep = 0
        self._env = env
        self._queued_bytes_max = queued_bytes_max if queued_bytes_max > 0 else limits.QUEUED_REQUEST_BYTES
        self._idle_sweeps = max(idle_ms_max // limits.SWEEP_INTERVAL_MS, 1) if idle_ms_max > 0 else 0
        self._connections_max = connections_max
        self._connections: set[Connection] = set()
        self._ready: deque[Connection] = deque()
        self._starved: set[Connection] = set()
        self._listeners: list[Listener] = []
        self._sweep_timer: Cancellable | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    # --- listening -------------------------------------------------------------------------------------------------

    async def listen(self, name: str, host: str, port: int) -> Listener:
        """Bind ``host:port`` (0 picks a free port, "" all interfaces); connections are accepted after ``accept()``.

        Raises OSError when the address cannot be bound.
        """
        loop = asyncio.get_running_loop()
        listener = Listener(name, host, port)
        listener.server = await loop.create_server(
            lambda: Connection(self, listener),
            host or None,
            port,
            backlog=_BACKLOG,
            reuse_address=True,
            start_serving=False,
        )
        listener.port = listener.server.sockets[0].getsockname()[1]
        self._listeners.append(listener)
        return listener

    async def accept(self) -> None:
        """Start to accept connections on every listener."""
        for listener in self._listeners:
            assert listener.server is not None
            await listener.server.start_serving()
        self._sweep_timer = self._env.timers.call_later(limits.SWEEP_INTERVAL_MS, self._sweep)

    async def stop(self) -> None:
        """Close the listeners and every connection; returns when all are gone."""
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for listener in self._listeners:
            assert listener.server is not None
            listener.server.close()
        for connection in list(self._connections):
            connection.close()
        try:
            await asyncio.wait_for(self._idle.wait(), timeout=0.5)
        except TimeoutError:
            for connection in list(self._connections):
                connection.abort()
            await self._idle.wait()

    # --- connections -----------------------------------------------------------------------------------------------

    def add(self, connection: Connection) -> None:
        """Called by a connection when it is made; over ``max.connections`` the newcomer is closed."""
        self._connections.add(connection)
        self._idle.clear()
        connection.set_no_delay()
        if len(self._connections) > self._connections_max:
            connection.refuse(f"more than {self._connections_max} connections (max.connections)")

    def remove(self, connection: Connection) -> None:
        """Called by a connection when it is lost."""
        self._connections.discard(connection)
        self._starved.discard(connection)
        if not self._connections:
            self._idle.set()
        self.feed_starved()

    def queue_turn(self, connection: Connection) -> None:
        """Serve the connection again after every other one that is ready."""
        if not self._ready:
            self._env.timers.call_soon(self._next_turns)
        self._ready.append(connection)

    def _next_turns(self) -> None:
        ready, self._ready = self._ready, deque()
        for connection in ready:
            connection.next_turn()

    # --- receive buffers -------------------------------------------------------------------------------------------

    def replace_shared(self) -> None:
        """A handler holds the shared buffer: leave it to the holder and read into another from now on."""
        self.shared.release()
        self.shared = self.pool.take(limits.RECEIVE_BUFFER_BYTES)

    def over_budget(self, connection: Connection) -> bool:
        """Whether received bytes fill the budget; the connection is told to read again when there is room."""
        if self.pool.bytes_in_use <= self._queued_bytes_max:
            return False
        self._starved.add(connection)
        return True

    def feed_starved(self) -> None:
        """Let connections read on that stopped for want of budget."""
        if self._starved and self.pool.bytes_in_use <= self._queued_bytes_max:
            starved, self._starved = self._starved, set()
            for connection in starved:
                connection.read_again()

    # --- time ------------------------------------------------------------------------------------------------------

    def _sweep(self) -> None:
        self.sweep += 1
        idle_since = self.sweep - self._idle_sweeps if self._idle_sweeps else -1
        for connection in list(self._connections):
            connection.look_after(idle_since)
        self.feed_starved()
        self._sweep_timer = self._env.timers.call_later(limits.SWEEP_INTERVAL_MS, self._sweep)

