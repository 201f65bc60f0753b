"""The listeners: sockets that clients connect to.

Owns: listening sockets, the sizes of their buffers in the kernel, and out of which settings new connections may have to
wait.  Does not own the connections that they make (``processor``, ``connection``), nor the waiting
(``connection_rate_limit``).

Kafka counterpart: SocketServer and Acceptor.
"""

from __future__ import annotations

import asyncio
import socket
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pybroker.cluster.image.quota_entities import CONNECTION_CREATION_RATE
from pybroker.config.broker_settings import BROKER_SETTINGS
from pybroker.config.listener_settings import ListenerSettings
from pybroker.config.listeners import bound_hosts
from pybroker.config.schema import ConfigError
from pybroker.net.channel_builders import ChannelBuilder
from pybroker.net.connection_quotas import MAX_CONNECTIONS
from pybroker.net.processor import Processor
from pybroker.operating_system import cannot_listen

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pybroker.cluster.image.quota_entities import QuotaEntity, QuotaValues
    from pybroker.config.broker import BrokerConfig
    from pybroker.env import Env
    from pybroker.handlers.services import Services
    from pybroker.net.connection_rate_limit import ConnectionRateLimit

# Connections that wait to be accepted, where ``socket.listen.backlog.size`` is not set: a thousand clients may come
# at once.
LISTEN_BACKLOG = 1024

# Ports, one after another, that turn out to be taken at another address of the host before a start with port 0 fails.
PORT_TRIES = 10

# The kernel's buffer of what a connection has to send, where socket.send.buffer.bytes is not set.  Its own tuning lets
# that grow to megabytes, which seem to have left the processor's caches when the client's side copies them.  Bulk
# fetches over 8 connections and 1, by that tuning's rate: 128 KB 1.21 and 1.13, 256 KB 1.21 to 1.34, 512 KB 1.47 and
# 1.33, 1 MB 1.0.  Kafka's default is 100 KB; a client far away needs its rate times the time of a round trip.
SEND_BUFFER_BYTES = 512 << 10

_CREATION_RATE: Final = "max.connection.creation.rate"


class Listener:
    """One name that clients connect by: bound sockets, and the host and port that clients get."""

    __slots__ = ("host", "name", "port", "server")

    def __init__(self, name: str, host: str, port: int) -> None:
        self.name = name
        self.host = host
        self.port = port
        self.server: asyncio.Server | None = None

    @property
    def addresses(self) -> list[tuple[Any, ...]]:
        """Where its sockets are bound, as ``getsockname`` gives it; none once they are closed."""
        return [sock.getsockname() for sock in (self.server.sockets if self.server is not None else ())]

    @property
    def reaches_beyond_this_machine(self) -> bool:
        """Whether it is bound to an address that other machines may reach."""
        return not all(host == "::1" or host.startswith("127.") for host, *_ in self.addresses)


class SocketServer:
    """Lives on one loop; nothing of it is called from another thread."""

    def __init__(self, env: Env, services: Services, config: BrokerConfig, own_process: bool = False) -> None:
        self.processor = Processor(env, services, config, own_process)
        self.listeners: list[Listener] = []
        self._config = config
        self._env = env
        self._connection_rate_limit: ConnectionRateLimit | None = None

    async def listen(self, name: str, host: str, port: int, channel_builder: ChannelBuilder | None = None) -> Listener:
        """Bind ``host:port`` (0 picks a free port, "" all interfaces); connections are refused before ``queue()``.

        Raises OSError when the address cannot be bound.
        """
        listener = Listener(name, host, port)
        channel_builder = channel_builder or ChannelBuilder(name)
        try:
            listener.server = await self._bind(lambda: channel_builder.connection(self.processor), host, port)
        except OSError as error:
            raise cannot_listen(host, port, error) from error
        for sock in listener.server.sockets:
            self._size_buffers(sock)
        listener.port = listener.server.sockets[0].getsockname()[1]
        self.listeners.append(listener)
        self.processor.add_listener(name)
        return listener

    async def _bind(self, protocol: Callable[[], asyncio.BufferedProtocol], host: str, port: int) -> asyncio.Server:
        """Sockets at every address of the host, all with the same port, because clients get only one."""
        loop = asyncio.get_running_loop()
        bind = partial(
            loop.create_server,
            protocol,
            bound_hosts(host),
            backlog=self._backlog,
            reuse_address=True,
            start_serving=False,
        )
        taken = OSError()
        for _ in range(PORT_TRIES):
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

    @property
    def _backlog(self) -> int:
        return self._set_or("socket.listen.backlog.size", LISTEN_BACKLOG)

    def _set_or(self, name: str, otherwise: int) -> int:
        """A setting as it was set, or what suits this server better than Kafka's default."""
        return self._config.get_int(name) if self._config.is_set(name) else otherwise

    def _size_buffers(self, sock: Any) -> None:
        """Fix the kernel's buffers; accepted sockets inherit them.

        Kafka's default of 100 KiB is not taken over for either: the kernel's own tuning makes large batches cheaper,
        and a larger buffer makes fetches cheaper (``SEND_BUFFER_BYTES``).
        """
        for name, option, unless_set in (
            ("socket.receive.buffer.bytes", socket.SO_RCVBUF, -1),
            ("socket.send.buffer.bytes", socket.SO_SNDBUF, SEND_BUFFER_BYTES),
        ):
            size = self._set_or(name, unless_set)
            if size > 0:
                sock.setsockopt(socket.SOL_SOCKET, option, size)

    def check(self, config: BrokerConfig) -> None:
        """Raise ConfigError unless connections may come by all listeners with these settings."""
        for listener in self.listeners:
            settings, now = ListenerSettings(config, listener.name), ListenerSettings(self._config, listener.name)
            for name in (MAX_CONNECTIONS, _CREATION_RATE):
                bound = settings.get(name)
                if bound <= 0 and bound != now.get(name):
                    raise ConfigError(f"Invalid {settings.name_of(name)} {bound}")

    def bound_arrivals(self, quotas: Mapping[QuotaEntity, QuotaValues]) -> None:
        """Hold new connections to the rates that the settings and these quotas of addresses let them have."""
        config, connection_rate_limit = self._config, self._connection_rate_limit
        of_listeners = {each.name: ListenerSettings(config, each.name).get(_CREATION_RATE) for each in self.listeners}
        of_broker = config.get_int(_CREATION_RATE)
        if connection_rate_limit is None:
            is_bounded = min(of_broker, *of_listeners.values()) < BROKER_SETTINGS[_CREATION_RATE].default
            if not is_bounded and not any(CONNECTION_CREATION_RATE in values for values in quotas.values()):
                return
            from pybroker.net.connection_rate_limit import ConnectionRateLimit
            from pybroker.quotas.connection_rates import ConnectionRates
            from pybroker.quotas.rates import Window

            window = Window(config.get_int("quota.window.num"), 1000 * config.get_int("quota.window.size.seconds"))
            rates = ConnectionRates(self._env.clock.monotonic_ms, window)
            connection_rate_limit = self._connection_rate_limit = ConnectionRateLimit(
                self.processor, self._env.timers, rates
            )
        connection_rate_limit.rates.set_bounds(of_broker, of_listeners)
        connection_rate_limit.rates.set_quotas(quotas)
        self.processor.rate_limiter = connection_rate_limit if connection_rate_limit.rates.bounds_anything else None

    def queue(self) -> None:
        """Have the kernel take connections to every listener; they are served from ``accept()`` on."""
        for listener in self.listeners:
            assert listener.server is not None
            for sock in listener.server.sockets:
                with sock.dup() as same:  # a loop's own object cannot listen
                    same.listen(self._backlog)

    async def accept(self) -> None:
        """Serve the connections of every listener."""
        for listener in self.listeners:
            assert listener.server is not None
            await listener.server.start_serving()
        self.processor.start()

    async def stop(self) -> None:
        """Close the listeners and every connection; returns when all are gone."""
        self._stop_listening()
        await self.processor.stop()

    def abort(self) -> None:
        """Close the listeners and every connection at once, whatever is unsent."""
        self._stop_listening()
        self.processor.abort()

    def _stop_listening(self) -> None:
        if self._connection_rate_limit is not None:
            self._connection_rate_limit.close()
        for listener in self.listeners:
            assert listener.server is not None
            listener.server.close()
