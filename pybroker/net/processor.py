"""What the connections of the loop share, and the looking after them.

Owns: the set of connections, the buffer that they read into while they keep nothing, and the sweep for idle and stalled
peers. It has for all of them the account of received bytes (``receive_budget``), the order of turns
(``connection_scheduler``) and the ``request_gate`` before clients' requests. It also has the requests that take long
(``long_requests``) and the table of what is served (``dispatch``). Does not own listening sockets (``socket_server``)
nor what a connection does (``connection``).

Kafka counterpart: Processor, of which there are several there, each on a thread.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from pybroker import cluster_limits, limits
from pybroker.apis import INTER_BROKER_APIS
from pybroker.net.buffers import BufferPool
from pybroker.net.busy_poll import busy_poll
from pybroker.net.connection_quotas import ConnectionQuotas
from pybroker.net.connection_scheduler import ConnectionScheduler
from pybroker.net.dispatch import Dispatcher
from pybroker.net.file_sender import LongReplies
from pybroker.net.framing import FRAME_BYTES_MAX, Framing
from pybroker.net.heap_trim import heap_trim
from pybroker.net.logins import Logins
from pybroker.net.long_requests import LongRequests
from pybroker.net.loop_env import within
from pybroker.net.metering import Meter
from pybroker.net.muting import Muting
from pybroker.net.receive_budget import ReceiveBudget
from pybroker.net.request_gate import RequestGate
from pybroker.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from pybroker.config.broker import BrokerConfig
    from pybroker.env import Cancellable, Env
    from pybroker.handlers.services import Services
    from pybroker.quotas.client_quotas import ClientQuotas

log = logging.getLogger(__name__)

_ABORT_MS = 50  # until all that are aborted are looked at again: another one may have come
_STOP_TIMEOUT_MS = 500  # with connections that have something to send when the broker stops


class SweptConnection(Protocol):
    """A connection, as the sweep sees it."""

    @property
    def peer_host(self) -> str: ...

    @property
    def listener(self) -> str: ...

    def look_after(self, idle_since_sweep: int) -> None:
        """Close it if it is to be closed for what its peer does not do."""
        ...

    def refuse(self, reason: str) -> None:
        """It is one too many."""
        ...

    def close(self) -> None:
        """Close it after what is already handed to the transport has been sent."""
        ...

    def abort(self) -> None:
        """Close it at once."""
        ...


class RateLimiter(Protocol):
    """Who has new connections wait while they come too fast (``connection_rate_limit``)."""

    def pending_connection(
        self, listener: str, inside: Callable[[], asyncio.BufferedProtocol]
    ) -> asyncio.BufferedProtocol:
        """What a socket that was accepted is until it may be what ``inside()`` makes."""
        ...


class Processor:
    """Lives on one loop; nothing of it is called from another thread."""

    def __init__(self, env: Env, services: Services, config: BrokerConfig, own_process: bool = False) -> None:
        self.services = services
        self.framing = Framing(config.get_int("socket.request.max.bytes"))
        # What a client may send to one broker comes in an envelope to another.
        enveloped_bytes_max = self.framing.frame_bytes_max + cluster_limits.ENVELOPE_BYTES_MAX
        self._framing_of_brokers = Framing(min(enveloped_bytes_max, FRAME_BYTES_MAX))
        queued_bytes_max = config.get_int("queued.max.request.bytes")
        if queued_bytes_max <= 0:
            queued_bytes_max = limits.QUEUED_REQUEST_BYTES
        self.budget = ReceiveBudget(BufferPool(), queued_bytes_max, self.framing.frame_bytes_max, env)
        self.shared = self.budget.take_shared()
        self.dispatcher = Dispatcher()
        self._dispatcher_for_brokers: Dispatcher | None = None
        self.logins = Logins(env, config.get_int("connection.failed.authentication.delay.ms"))
        self.timers = env.timers
        self.clock = env.clock
        self.now_ns = env.clock.monotonic_ns
        self.call_soon = env.timers.call_soon
        self.scheduler = ConnectionScheduler(env.timers.call_soon)
        self.gate = RequestGate(self.now_ns)
        self.rate_limited_log = RateLimitedLog(log, env.timers)
        self.long_requests = LongRequests(env)
        self.long_replies = LongReplies()
        poll_us = config.get_int("pybroker.busy.poll.us")
        self.busy_poll = busy_poll(poll_us, own_process, env.timers.call_soon, self.now_ns)
        self._spare_memory = heap_trim(env.clock, own_process)
        self.sweep = 0
        self.connections: set[SweptConnection] = set()
        self._env = env
        self._quotas = ConnectionQuotas(config, services.inter_broker_listener)
        self.rate_limiter: RateLimiter | None = None  # while new connections may have to wait
        self._client_quotas: ClientQuotas | None = None
        idle_ms_max = config.get_int("connections.max.idle.ms")
        self._idle_sweeps = max(idle_ms_max // limits.SWEEP_INTERVAL_MS, 1) if idle_ms_max > 0 else 0
        self._sweep_timer: Cancellable | None = None
        self._is_empty = asyncio.Event()
        self._is_empty.set()

    def dispatcher_of(self, listener: str, *, is_broker: bool) -> Dispatcher:
        """What a connection of that listener is served, before and after it has proved that it is a broker's."""
        if not self._serves_brokers(listener, is_broker):
            return self.dispatcher
        if self._dispatcher_for_brokers is None:
            self._dispatcher_for_brokers = Dispatcher(*INTER_BROKER_APIS)
        return self._dispatcher_for_brokers

    def framing_of(self, listener: str, *, is_broker: bool) -> Framing:
        """How long the frames of such a connection may be."""
        return self._framing_of_brokers if self._serves_brokers(listener, is_broker) else self.framing

    def _serves_brokers(self, listener: str, is_broker: bool) -> bool:
        return is_broker and listener == self.services.inter_broker_listener

    def add_listener(self, name: str) -> None:
        """Connections will come by that listener, too."""
        self._quotas.add_listener(name)

    def follow_settings(self) -> None:
        """How many connections may come by which listener may have changed."""
        self._quotas.follow_settings()

    def protects(self, listener: str) -> bool:
        """Whether brokers come by that listener, and clients by others."""
        return self._quotas.protects(listener)

    def start(self) -> None:
        """Begin to look after the connections."""
        self._sweep_timer = self._env.timers.call_later(limits.SWEEP_INTERVAL_MS, self._sweep)

    async def stop(self) -> None:
        """Close every connection; returns when all are gone.  No new one comes."""
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        self.budget.close()
        self.long_requests.close()
        self.logins.close()
        for connection in list(self.connections):
            connection.close()
        try:
            await within(_STOP_TIMEOUT_MS, self._is_empty.wait())
        except TimeoutError:
            await self.wait_aborted()
        self.rate_limited_log.close()

    def abort(self) -> None:
        """Close every connection at once."""
        for connection in list(self.connections):
            connection.abort()

    async def wait_aborted(self) -> None:
        """Close every connection at once, those too that were accepted just before; returns when all are gone."""
        await asyncio.sleep(0)
        while self.connections:
            self.abort()
            with suppress(TimeoutError):
                await within(_ABORT_MS, self._is_empty.wait())

    def add(self, connection: SweptConnection) -> None:
        """Called by a connection when it is made; over a bound on connections the newcomer is closed."""
        self.connections.add(connection)
        if self._client_quotas is not None and isinstance(connection, Muting):
            connection.measure(Meter(connection, self._client_quotas, self._env))
        self._is_empty.clear()
        reason = self._quotas.add(connection.peer_host, connection.listener)
        if reason is not None:
            connection.refuse(reason)

    def remove(self, connection: SweptConnection) -> None:
        """Called by a connection when it is lost."""
        self.connections.discard(connection)
        self._quotas.remove(connection.peer_host, connection.listener)
        if not self.connections:
            self._is_empty.set()

    def measure(self, quotas: ClientQuotas | None) -> None:
        """Hold all clients to these quotas from now on, or, for None, to none."""
        if quotas is not self._client_quotas:
            self._client_quotas = quotas
            for connection in list(self.connections):
                if isinstance(connection, Muting):  # else it serves no client yet
                    connection.measure(None if quotas is None else Meter(connection, quotas, self._env))

    def replace_shared(self) -> None:
        """A handler holds the shared buffer: leave it to the holder and read into another from now on."""
        self.shared.release()
        self.shared = self.budget.take_shared()

    def _sweep(self) -> None:
        self.sweep += 1
        self._sweep_timer = self._env.timers.call_later(limits.SWEEP_INTERVAL_MS, self._sweep)
        idle_since = self.sweep - self._idle_sweeps if self._idle_sweeps else -1
        for connection in list(self.connections):
            try:
                connection.look_after(idle_since)
            except Exception:  # the others are to be looked after, too
                log.exception("looking after the connection of %s failed", connection)
        self.budget.pool.forget_unused()
        if self._spare_memory is not None:
            self._spare_memory.look()
