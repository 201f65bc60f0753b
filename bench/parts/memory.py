"""Memory: idle, with 1,000 idle connections, and with 10,000 partitions that each hold a record."""

from __future__ import annotations

import shutil
import time
import uuid
from contextlib import ExitStack

from bench.contestants import PYBROKER, Contestant, make
from bench.context import Context
from bench.process_stats import Memory, memory
from bench.wire import API_VERSIONS, Client, connect, exchange, frame, record_batch
from pybroker_protocol.messages import request_class

CONNECTIONS = 1000
TOPICS, PARTITIONS = 100, 100
SETTLE_S = 3.0
# Every partition's files are written to the disk; how long that takes is one of the figures.
STOP_TIMEOUT_S = 300.0


def run(context: Context) -> None:
    """Idle and connections for both; partitions for pybroker, since Kafka takes many minutes to make them."""
    for name in context.brokers:
        directory = context.root / uuid.uuid4().hex[:8]
        broker = make(name, directory)
        try:
            broker.start()
            idle = at_rest(broker)
            context.add("idle RSS", "MB", name, idle.rss_mb)
            context.add("idle RssAnon", "MB", name, idle.anon_mb)
            context.add("idle RssFile", "MB", name, idle.file_mb)
            context.add(f"{CONNECTIONS:,} connections add", "MB", name, measure_connections(broker) - idle.anon_mb)
            if name == PYBROKER:
                measure_partitions(context, broker)
        finally:
            broker.kill()
            shutil.rmtree(directory, ignore_errors=True)


def at_rest(broker: Contestant) -> Memory:
    """Memory a while after the last request."""
    time.sleep(SETTLE_S)
    return memory(broker.pid)


def measure_connections(broker: Contestant) -> float:
    """RssAnon while many clients are connected, each of which has said hello."""
    hello = frame(API_VERSIONS, request_class(API_VERSIONS)(client_software_name="bench", client_software_version="1"))
    with ExitStack() as stack:
        for _ in range(CONNECTIONS):
            connection = stack.enter_context(connect(broker.bootstrap, 30))
            exchange(connection, hello)
        return at_rest(broker).anon_mb


def measure_partitions(context: Context, broker: Contestant) -> None:
    """Fill many partitions, start again on them, and look at time and memory."""
    batches = dict.fromkeys(range(PARTITIONS), record_batch(1, 100))
    started = time.perf_counter()
    with Client(broker.bootstrap) as client:
        for number in range(TOPICS):
            client.create_topic(f"many-{number}", PARTITIONS)
            client.produce(f"many-{number}", batches)
    context.add("10,000 partitions made and filled", "s", PYBROKER, time.perf_counter() - started)
    started = time.perf_counter()
    broker.stop(STOP_TIMEOUT_S)
    context.add("10,000 partitions stop", "s", PYBROKER, time.perf_counter() - started)
    started = time.perf_counter()
    broker.start()
    context.add("10,000 partitions start", "s", PYBROKER, time.perf_counter() - started)
    resting = at_rest(broker)
    context.add("10,000 partitions RssAnon", "MB", PYBROKER, resting.anon_mb)
    context.add("10,000 partitions RssFile", "MB", PYBROKER, resting.file_mb)
    with Client(broker.bootstrap) as client:
        ends = [client.end_offsets(f"many-{number}", range(PARTITIONS)) for number in range(TOPICS)]
    if any(end != 1 for topic in ends for end in topic.values()):
        raise RuntimeError("a record is missing after the start")
