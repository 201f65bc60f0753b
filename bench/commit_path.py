"""What one OffsetCommit costs in the broker, without sockets: alone in its turn of the loop, and five in one read.

Run it with ``.venv/bin/python -m bench.commit_path``, with ``--profile`` for cProfile's view of it.  Frames reach a
connection as a transport would hand them over, so that the figures are Python, the decisions of the group and the
write into the page cache, without system calls of a network.  Best of several rounds; look at the load average first.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import time

import uvloop

from bench.loads import commit_frame
from bench.wire import FIND_COORDINATOR, frame
from bench.without_sockets import TOPIC, CountingTransport, connected, receive, with_server
from pybroker.net.connection import Connection
from pybroker.server import BrokerServer
from pybroker_protocol.messages.find_coordinator import FindCoordinatorRequest

ROUNDS = 9
REQUESTS = 2_000
SHAPES = ((1, 1), (1, 5), (8, 1), (8, 5))


async def replies_of(connections: list[tuple[Connection, CountingTransport]], bytes_expected: int) -> None:
    """Let the loop turn until every connection has sent so many bytes."""
    while any(transport.bytes_sent < bytes_expected for _, transport in connections):
        await asyncio.sleep(0)


async def best_us(server: BrokerServer, connection_count: int, in_flight: int, is_ordinary: bool = False) -> float:
    """Microseconds of CPU per commit, best round; ``is_ordinary`` without a fast path."""
    connections = [connected(server, is_ordinary) for _ in range(connection_count)]
    # By nobody in particular.
    commits = [commit_frame(f"group-{number}", ("", -1), TOPIC, 0) for number in range(connection_count)]
    bursts = [commit * in_flight for commit in commits]
    receive(connections[0][0], frame(FIND_COORDINATOR, FindCoordinatorRequest(key_type=0, coordinator_keys=["group"])))
    await replies_of(connections[:1], 1)
    connections[0][1].bytes_sent = 0
    receive(connections[0][0], commits[0])
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


async def measure_all(server: BrokerServer) -> None:
    for shape in SHAPES:
        for way in ("ordinary", "fast path"):
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
