"""A broker whose connections are handed frames as a transport would, for what a request costs without a network."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from pybroker.cluster.decisions.operations import NewTopic
from pybroker.config.broker import BrokerConfig
from pybroker.net.connection import Connection
from pybroker.server import BrokerServer

TOPIC = "t"
_NEVER = 1 << 60


class CountingTransport:
    """Counts the bytes of replies, and forgets them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.bytes_sent = 0

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else None

    def set_write_buffer_limits(self, high: int) -> None: ...

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes) -> None:
        self.bytes_sent += len(data)

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None:
        self._connection.connection_lost(None)

    abort = close


T = TypeVar("T", bound=CountingTransport)


def connected(server: BrokerServer, is_ordinary: bool = False) -> tuple[Connection, CountingTransport]:
    """A connection of a client; ``is_ordinary`` never learns a fast path."""
    connection, transport = connected_over(CountingTransport, server)
    if is_ordinary:
        connection._fast_paths._pause = _NEVER
    return connection, transport


def connected_over(transport: type[T], server: BrokerServer) -> tuple[Connection, T]:
    """A connection of a client over a transport of one's own."""
    assert server._sockets is not None
    connection = Connection(server._sockets.processor, server._sockets.listeners[0].name)
    made = transport(connection)
    connection.connection_made(made)  # type: ignore[arg-type]
    return connection, made


def receive(connection: Connection, data: bytes) -> None:
    """What the loop does when a socket is readable."""
    connection.get_buffer(-1)[: len(data)] = data
    connection.buffer_updated(len(data))
    scheduler = connection._processor.scheduler
    while scheduler.is_full:  # a turn was long, by chance: what is asked meanwhile would wait for the loop
        scheduler._next()


async def with_server(measure: Callable[[BrokerServer], Awaitable[None]]) -> None:
    """Run it on a broker with a topic of one partition."""
    with tempfile.TemporaryDirectory() as data_dir:
        server = BrokerServer(BrokerConfig.load(listen=["127.0.0.1:0"], data_dir=data_dir, dev=True))
        await server.start()
        created = asyncio.Event()
        server.services.controller.create_topics([NewTopic(TOPIC, 1)], lambda _: created.set())
        await created.wait()
        await measure(server)
        await server.stop()
