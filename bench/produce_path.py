"""What one small Produce request costs in the broker, without sockets: the ordinary way and the short way.

Run it with ``.venv/bin/python -m bench.produce_path``.  Frames reach a connection as a transport would hand them over,
so that the figures are Python, the checks of the batch and the write into the page cache, without system calls of a
network.  Best of several rounds; look at the load average first.
"""

from __future__ import annotations

import asyncio
import struct
import tempfile
import time
from typing import Any

import uvloop

from pybroker.cluster.operations import NewTopic
from pybroker.config.broker import BrokerConfig
from pybroker.net.connection import Connection
from pybroker.server import BrokerServer
from pybroker_protocol import codec
from pybroker_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pybroker_protocol.record_codec import build_batch

ROUNDS = 9
REQUESTS = 3_000
VERSION = 9


class NoTransport:
    """Takes replies and forgets them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else None

    def set_write_buffer_limits(self, high: int) -> None: ...

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None:
        self._connection.connection_lost(None)

    abort = close


def small_produce() -> bytes:
    """A frame with one batch of one record of 100 bytes."""
    batch = build_batch([(None, b"v" * 100)], timestamp_ms=time.time_ns() // 1_000_000)
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch)])
    request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=1_000, topic_data=[data])
    frame = struct.pack(">hhih", 0, VERSION, 1, 5) + b"bench" + b"\0" + codec.encode(request, VERSION)
    return struct.pack(">i", len(frame)) + frame


def best_us(connection: Connection, frame: bytes, in_flight: int) -> float:
    """Microseconds of CPU per request when so many arrive together, best round."""
    best = float("inf")
    arrived = frame * in_flight
    for _ in range(ROUNDS):
        started = time.thread_time()
        for _ in range(REQUESTS // in_flight):
            connection.get_buffer(-1)[: len(arrived)] = arrived
            connection.buffer_updated(len(arrived))
        best = min(best, time.thread_time() - started)
    return best / REQUESTS * 1e6


async def measure() -> None:
    with tempfile.TemporaryDirectory() as data_dir:
        server = BrokerServer(BrokerConfig.load(listen=["127.0.0.1:0"], data_dir=data_dir, dev=True))
        await server.start()
        created = asyncio.Event()
        server.services.controller.create_topics([NewTopic("t", 1)], lambda _: created.set())
        await created.wait()
        assert server._sockets is not None
        for name, in_flight in (("ordinary", 1), ("ordinary", 5), ("short", 1), ("short", 5)):
            connection = Connection(server._sockets, server._sockets._listeners[0])
            connection.connection_made(NoTransport(connection))  # type: ignore[arg-type]
            if name == "ordinary":
                connection._shortcut_pause = 1 << 60
            print(f"{name:9} {in_flight} at once {best_us(connection, small_produce(), in_flight):6.2f} µs")
        await server.stop()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(measure())
