"""What one OffsetCommit costs in the broker, without sockets: alone in its turn of the loop, and five in one read.

Run it with ``.venv/bin/python -m bench.commit_path``, with ``--profile`` for cProfile's view of it.  Frames reach a
connection as a transport would hand them over, so that the figures are Python, the decisions of the group and the
write into the page cache, without system calls of a network.  Best of several rounds; look at the load average first.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import struct
import tempfile
import time
from collections.abc import Awaitable, Callable

import uvloop

from bench.produce_path import NoTransport
from pybroker.cluster.operations import NewTopic
from pybroker.config.broker import BrokerConfig
from pybroker.net.connection import Connection
from pybroker.server import BrokerServer
from pybroker_protocol import codec
from pybroker_protocol.messages.find_coordinator import FindCoordinatorRequest
from pybroker_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pybroker_protocol.schema import Message

ROUNDS = 9
REQUESTS = 2_000
SHAPES = ((1, 1), (1, 5), (8, 1), (8, 5))
FIND_COORDINATOR, OFFSET_COMMIT = (10, 4), (8, 9)


class CountingTransport(NoTransport):
    """Counts the bytes of replies."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self.bytes_sent = 0

    def write(self, data: bytes) -> None:
        self.bytes_sent += len(data)


def frame(api: tuple[int, int], message: Message) -> bytes:
    """A whole request frame."""
    key, version = api
    body = struct.pack(">hhih", key, version, 1, 5) + b"bench" + b"\0" + codec.encode(message, version)
    return struct.pack(">i", len(body)) + body


def commit(group: str) -> bytes:
    """A commit of one partition by nobody in particular."""
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=123_456, committed_leader_epoch=-1, committed_metadata=""
    )
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    request = OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=-1, member_id="", group_instance_id=None, topics=[topic]
    )
    return frame(OFFSET_COMMIT, request)


async def replies_of(connections: list[tuple[Connection, CountingTransport]], bytes_expected: int) -> None:
    """Let the loop turn until every connection has sent so many bytes."""
    while any(transport.bytes_sent < bytes_expected for _, transport in connections):
        await asyncio.sleep(0)


def receive(connection: Connection, data: bytes) -> None:
    """What the loop does when a socket is readable."""
    connection.get_buffer(-1)[: len(data)] = data
    connection.buffer_updated(len(data))


async def best_us(server: BrokerServer, connection_count: int, in_flight: int, is_ordinary: bool = False) -> float:
    """Microseconds of CPU per commit, best round; ``is_ordinary`` without the short way."""
    assert server._sockets is not None
    connections = []
    for _ in range(connection_count):
        connection = Connection(server._sockets, server._sockets._listeners[0])
        transport = CountingTransport(connection)
        connection.connection_made(transport)  # type: ignore[arg-type]
        if is_ordinary:
            connection._shortcut_pause = 1 << 60
        connections.append((connection, transport))
    bursts = [commit(f"group-{number}") * in_flight for number in range(connection_count)]
    receive(connections[0][0], frame(FIND_COORDINATOR, FindCoordinatorRequest(key_type=0, coordinator_keys=["group"])))
    await replies_of(connections[:1], 1)
    connections[0][1].bytes_sent = 0
    receive(connections[0][0], commit("group-0"))
    await replies_of(connections[:1], 1)
    reply_bytes, connections[0][1].bytes_sent = connections[0][1].bytes_sent, 0
    best, turns = float("inf"), REQUESTS // (connection_count * in_flight)
    for _ in range(ROUNDS):
        started = time.thread_time()
        for _ in range(turns):
            for (connection, transport), burst in zip(connections, bursts, strict=True):
                transport.bytes_sent = 0
                receive(connection, burst)
            await replies_of(connections, in_flight * reply_bytes)
        best = min(best, time.thread_time() - started)
    return best / (turns * connection_count * in_flight) * 1e6


async def with_server(measure: Callable[[BrokerServer], Awaitable[None]]) -> None:
    """Run it on a broker with a topic."""
    with tempfile.TemporaryDirectory() as data_dir:
        server = BrokerServer(BrokerConfig.load(listen=["127.0.0.1:0"], data_dir=data_dir, dev=True))
        await server.start()
        created = asyncio.Event()
        server.services.controller.create_topics([NewTopic("t", 1)], lambda _: created.set())
        await created.wait()
        await measure(server)
        await server.stop()


async def measure_all(server: BrokerServer) -> None:
    for shape in SHAPES:
        for way in ("ordinary", "short"):
            print(f"{way:9} {shape[0]}×{shape[1]} {await best_us(server, *shape, way == 'ordinary'):6.2f} µs")


async def profile(server: BrokerServer) -> None:
    await best_us(server, 1, 1)
    profiler = cProfile.Profile(time.thread_time)
    with profiler:
        await best_us(server, 8, 5)
    profiler.print_stats("tottime")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", action="store_true")
    chosen = profile if parser.parse_args().profile else measure_all
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(with_server(chosen))
