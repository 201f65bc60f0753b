"""The simulated network: connections between simulated clients and the real ``net.connection.Connection``.

Owns: when bytes arrive, in which pieces, and whether; broken connections, of which the two ends learn at different
times.  Bytes of one connection and direction arrive in order, as TCP has it; connections overtake each other.

What the server hands to its transport is copied at its arrival only, so that a buffer that changes after it was handed
over shows as a damaged reply.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

from tests.simulation.scheduler import Life, Scheduler

if TYPE_CHECKING:
    from pybroker.net.connection import Connection

LATENCY_US = (50, 3_000)
SLOW_LATENCY_US = (1_000, 400_000)


class ClientEnd(Protocol):
    """What a client's side of a connection hears."""

    def data_received(self, data: bytes) -> None: ...

    def connection_lost(self) -> None: ...


class ServerEnd(asyncio.Transport):
    """The server's transport of one connection."""

    def __init__(self, link: Link) -> None:
        super().__init__({"peername": (link.host, 50_000)})
        self._link = link
        self._high = 64 << 10
        self._writing_paused = False
        self.unsent: deque[Any] = deque()
        self.unsent_bytes = 0
        self.reading = True
        self.closing = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = high or self._high

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def write(self, data: Any) -> None:
        self.writelines([data])

    def writelines(self, list_of_data: Any) -> None:
        if self.closing:
            return
        parts = list(list_of_data)
        size = sum(map(len, parts))
        self.unsent_bytes += size
        self._link.send_down(parts, size)
        if self.unsent_bytes > self._high and not self._writing_paused:
            self._writing_paused = True
            self._link.connection.pause_writing()

    def sent(self, size: int) -> None:
        """Bytes have left: the connection may write on."""
        self.unsent_bytes -= size
        if self._writing_paused and self.unsent_bytes <= self._high // 4 and not self.closing:
            self._writing_paused = False
            self._link.connection.resume_writing()

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True
        self._link.read_on()

    def close(self) -> None:
        if not self.closing:
            self.closing = True
            self._link.server_closed()

    def abort(self) -> None:
        self.close()


class Link:
    """One connection, both ends."""

    def __init__(self, network: Network, host: str, client: ClientEnd, life: Life) -> None:
        self._network = network
        self._scheduler = network.scheduler
        self.life = life  # the server's process
        self.host = host
        self.client: ClientEnd | None = client
        self.transport = ServerEnd(self)
        self.connection: Connection = None  # type: ignore[assignment]  # until the server accepts
        self._inbox: deque[bytes] = deque()
        self._last_up_us = 0
        self._last_down_us = 0
        self._lost = False  # the server's end knows
        self._random = Random(network.random.getrandbits(64))

    def accepted(self, connection: Connection) -> None:
        """The server has made its side."""
        self.connection = connection
        connection.connection_made(self.transport)

    # --- towards the server ------------------------------------------------------------------------------------------

    def send_up(self, data: bytes) -> None:
        """Called by the client."""
        self._last_up_us = max(self._last_up_us, self._scheduler.now_us + self._network.latency_us(self._random))
        delay_us = self._last_up_us - self._scheduler.now_us
        self._scheduler.after(delay_us, self.life, self._arrive, data)

    def _arrive(self, data: bytes) -> None:
        if not self._lost:
            self._inbox.append(data)
            self.read_on()

    def read_on(self) -> None:
        """Let the server read what has arrived."""
        while self._inbox and self.transport.reading and not self.transport.closing:
            data = self._inbox.popleft()
            if self._random.random() < 0.1 and len(data) > 1:
                cut = self._random.randrange(1, len(data))
                self._inbox.appendleft(data[cut:])
                data = data[:cut]
            buffer = self.connection.get_buffer(-1)
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            if count < len(data):
                self._inbox.appendleft(data[count:])
            self.connection.buffer_updated(count)

    # --- towards the client ------------------------------------------------------------------------------------------

    def send_down(self, parts: list[Any], size: int) -> None:
        """Called by the server's transport."""
        self._last_down_us = max(self._last_down_us, self._scheduler.now_us + self._network.latency_us(self._random))
        self._scheduler.after(self._last_down_us - self._scheduler.now_us, None, self._deliver, parts, size)

    def _deliver(self, parts: list[Any], size: int) -> None:
        data = b"".join(parts)
        parts.clear()
        if self.client is not None:
            self.client.data_received(data)
        self._scheduler.after(0, self.life, self.transport.sent, size)

    # --- the end -----------------------------------------------------------------------------------------------------

    def server_closed(self) -> None:
        """The server closed: the client reads what was sent before, then the end."""
        self._scheduler.soon(self.life, self._lose)
        delay_us = max(self._last_down_us - self._scheduler.now_us, 0) + self._network.latency_us(self._random)
        self._scheduler.after(delay_us, None, self._tell_client)

    def close(self) -> None:
        """The client closed, or the connection broke; what it sent may still arrive before the server learns of it."""
        self._network.forget(self)
        client, self.client = self.client, None
        if client is not None:
            self._scheduler.after(0, None, client.connection_lost)
        arrival_us = max(self._last_up_us - self._scheduler.now_us, 0)
        # The network may swallow what is on its way, or bring it yet.
        delay_us = arrival_us + 500 if self._random.random() < 0.6 else 0
        delay_us += self._random.choice((0, 1_000, 300_000))
        self._scheduler.after(delay_us, self.life, self._lose)

    def die(self) -> None:
        """The server's process is gone."""
        self._network.forget(self)
        self._lost = True
        # The kernel may still send what the process handed to it.
        on_its_way_us = max(self._last_down_us - self._scheduler.now_us, 0) if self._random.random() < 0.5 else 0
        self._scheduler.after(on_its_way_us + self._network.latency_us(self._random), None, self._tell_client)

    def _lose(self) -> None:
        if not self._lost:
            self._lost = True
            self.transport.closing = True
            self._inbox.clear()
            self.connection.connection_lost(None)

    def _tell_client(self) -> None:
        self._network.forget(self)
        client, self.client = self.client, None
        if client is not None:
            client.connection_lost()


class Network:
    """All connections; ``accept`` is the server's factory while it listens."""

    def __init__(self, scheduler: Scheduler, random: Random) -> None:
        self.scheduler = scheduler
        self.random = random
        self.slow = False
        self.accept: Callable[[], Connection] | None = None
        self.life: Life | None = None
        self._links: dict[Link, None] = {}
        self._count = 0

    def latency_us(self, random: Random) -> int:
        low, high = SLOW_LATENCY_US if self.slow and random.random() < 0.3 else LATENCY_US
        return random.randrange(low, high)

    def connect(self, client: ClientEnd) -> Link | None:
        """A new connection, or None when nobody listens."""
        if self.accept is None or self.life is None:
            return None
        self._count += 1
        link = Link(self, f"10.0.0.{self._count % 250 + 1}", client, self.life)
        self._links[link] = None
        link.accepted(self.accept())
        return link

    def forget(self, link: Link) -> None:
        self._links.pop(link, None)

    def break_one(self) -> bool:
        """Break a connection that chance picks."""
        if not self._links:
            return False
        self.random.choice(list(self._links)).close()
        return True

    def server_died(self) -> None:
        """All connections of the broker's process are gone."""
        self.accept = None
        for link in list(self._links):
            link.die()
