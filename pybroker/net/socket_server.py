"""The listeners and what all their connections share.

Owns: listening sockets, the set of connections, the shared receive buffer, and the sweep for idle and stalled peers.
Does not own requests (``connection``, ``dispatch``) nor what they mean (``handlers``), nor who is served next
(``turns``) or may receive more (``receive_budget``).

Kafka counterpart: SocketServer, Acceptor, ConnectionQuotas.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from pybroker import limits
from pybroker.config.connections import OVERRIDES, parse_overrides
from pybroker.folded_log import FoldedLog
from pybroker.net.buffers import BufferPool
from pybroker.net.busy_poll import busy_poll
from pybroker.net.connection import Connection
from pybroker.net.dispatch import Dispatcher
from pybroker.net.long_requests import LongRequests
from pybroker.net.receive_budget import ReceiveBudget
from pybroker.net.turns import Turns
from pybroker.storage import os_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from pybroker.config.broker import BrokerConfig
    from pybroker.env import Cancellable, Env
    from pybroker.handlers.services import Services

log = logging.getLogger(__name__)


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
        config: BrokerConfig,
        own_process: bool = False,
    ) -> None:
        self.services = services
        self.frame_bytes_max = config.get_int("socket.request.max.bytes")
        queued_bytes_max = config.get_int("queued.max.request.bytes")
        if queued_bytes_max <= 0:
            queued_bytes_max = limits.QUEUED_REQUEST_BYTES
        self.budget = ReceiveBudget(BufferPool(), queued_bytes_max, self.frame_bytes_max, env)
        self.shared = self.budget.take_shared()
        self.dispatcher = Dispatcher()
        self.turns = Turns(env.timers.call_soon)
        self.folded_log = FoldedLog(log, env.timers)
        self.long_requests = LongRequests(env)
        self.busy_poll = busy_poll(config.get_int("pybroker.busy.poll.us"), own_process, env.timers.call_soon)
        self.sweep = 0
        self._env = env
        self._config = config
        idle_ms_max = config.get_int("connections.max.idle.ms")
        self._idle_sweeps = max(idle_ms_max // limits.SWEEP_INTERVAL_MS, 1) if idle_ms_max > 0 else 0
        descriptors = os_file.raise_open_files_limit()
        self._connections_max = descriptors - descriptors // limits.DESCRIPTOR_PARTS
        self._connections: set[Connection] = set()
        self._connections_by_host: Counter[str] = Counter()
        self._listeners: list[Listener] = []
        self._sweep_timer: Cancellable | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    # --- listening -------------------------------------------------------------------------------------------------

    async def listen(self, name: str, host: str, port: int) -> Listener:
        """Bind ``host:port`` (0 picks a free port, "" all interfaces); connections are accepted after ``accept()``.

        Raises OSError when the address cannot be bound.
        """
        listener = Listener(name, host, port)
        try:
            listener.server = await self._bind(lambda: Connection(self, listener), host, port)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
            raise OSError(f"cannot listen on {host or '*'}:{port}: {reason}") from error
        for sock in listener.server.sockets:
            self._size_buffers(sock)
        listener.port = listener.server.sockets[0].getsockname()[1]
        self._listeners.append(listener)
        return listener

    async def _bind(self, protocol: Callable[[], Connection], host: str, port: int) -> asyncio.Server:
        """Sockets at every address of the host, all with the same port, because clients are told only one."""
        loop = asyncio.get_running_loop()
        bind = partial(
            loop.create_server,
            protocol,
            host or None,
            backlog=self._set_or("socket.listen.backlog.size", limits.LISTEN_BACKLOG),
            reuse_address=True,
            start_serving=False,
        )
        taken = OSError()
        for _ in range(limits.PORT_TRIES):
            server = await bind(port=port)
            first, *others = (sock.getsockname()[1] for sock in server.sockets)
            if all(other == first for other in others):
                return server
            # Port 0 has become another one at each address: ask for the first by its number, at all of them.
            server.close()
            try:
                return await bind(port=first)
            except OSError as error:
                taken = error
        raise taken

    def _set_or(self, name: str, otherwise: int) -> int:
        """A setting that somebody set, or what suits this server better than Kafka's default."""
        return self._config.get_int(name) if self._config.is_set(name) else otherwise

    def _size_buffers(self, sock: Any) -> None:
        """Fix the kernel's buffers; accepted sockets inherit them.

        Kafka's default of 100 KiB is not taken over for either: the kernel's own tuning makes large batches cheaper,
        and a larger buffer makes fetches cheaper (``limits.SEND_BUFFER_BYTES``).
        """
        for name, option, unless_set in (
            ("socket.receive.buffer.bytes", socket.SO_RCVBUF, -1),
            ("socket.send.buffer.bytes", socket.SO_SNDBUF, limits.SEND_BUFFER_BYTES),
        ):
            size = self._set_or(name, unless_set)
            if size > 0:
                sock.setsockopt(socket.SOL_SOCKET, option, size)

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
        self.budget.close()
        self.long_requests.close()
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
        self.folded_log.close()

    # --- connections -----------------------------------------------------------------------------------------------

    def add(self, connection: Connection) -> None:
        """Called by a connection when it is made; over a bound on connections the newcomer is closed."""
        self._connections.add(connection)
        self._idle.clear()
        host = connection.peer_host
        self._connections_by_host[host] += 1
        if len(self._connections) > self._config.get_int("max.connections"):
            connection.refuse("more than max.connections connections")
        elif len(self._connections) > self._connections_max:
            connection.refuse(f"more than {self._connections_max} connections: other descriptors are for files")
        elif self._connections_by_host[host] > self._connections_max_of(host):
            connection.refuse("more than max.connections.per.ip connections from this address")

    def remove(self, connection: Connection) -> None:
        """Called by a connection when it is lost."""
        self._connections.discard(connection)
        self._connections_by_host[connection.peer_host] -= 1
        if not self._connections_by_host[connection.peer_host]:
            del self._connections_by_host[connection.peer_host]
        if not self._connections:
            self._idle.set()

    def _connections_max_of(self, host: str) -> int:
        """``max.connections.per.ip`` or its override for the address, which Kafka prints with a slash in front."""
        overrides = parse_overrides(self._config.get_str(OVERRIDES))
        return overrides.get(host[1:], self._config.get_int("max.connections.per.ip"))

    def replace_shared(self) -> None:
        """A handler holds the shared buffer: leave it to the holder and read into another from now on."""
        self.shared.release()
        self.shared = self.budget.take_shared()

    # --- time ------------------------------------------------------------------------------------------------------

    def _sweep(self) -> None:
        self.sweep += 1
        self._sweep_timer = self._env.timers.call_later(limits.SWEEP_INTERVAL_MS, self._sweep)
        idle_since = self.sweep - self._idle_sweeps if self._idle_sweeps else -1
        for connection in list(self._connections):
            try:
                connection.look_after(idle_since)
            except Exception:  # the others are to be looked after, too
                log.exception("looking after the connection of %s failed", connection)
