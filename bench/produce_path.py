"""What one small Produce request costs in the broker, without sockets: the ordinary way and by a front.

Run it with ``.venv/bin/python -m bench.produce_path``.  Frames reach a connection as a transport would hand them over,
so that the figures are Python, the checks of the batch and the write into the page cache, without system calls of a
network.  Best of several rounds; look at the load average first.
"""

from __future__ import annotations

import asyncio
import time

import uvloop

from bench.wire import produce_frame, record_batch
from bench.without_sockets import TOPIC, connected, receive, with_server
from pybroker.net.connection import Connection
from pybroker.server import BrokerServer

ROUNDS = 9
REQUESTS = 3_000
RECORD_BYTES = 100


def best_us(connection: Connection, frame: bytes, in_flight: int) -> float:
    """Microseconds of CPU per request when so many arrive together, best round."""
    best = float("inf")
    arrived = frame * in_flight
    for _ in range(ROUNDS):
        started = time.thread_time()
        for _ in range(REQUESTS // in_flight):
            receive(connection, arrived)
        best = min(best, time.thread_time() - started)
    return best / REQUESTS * 1e6


async def measure(server: BrokerServer) -> None:
    """Print both ways, one request and five at once."""
    frame = produce_frame(TOPIC, {0: record_batch(1, RECORD_BYTES)})
    for way in ("ordinary", "front"):
        for in_flight in (1, 5):
            connection, _ = connected(server, is_ordinary=way == "ordinary")
            print(f"{way:9} {in_flight} at once {best_us(connection, frame, in_flight):6.2f} µs")


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(with_server(measure))
