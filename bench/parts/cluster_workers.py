"""``serve --workers 2`` against one worker: tiny requests over 8 connections, each to the leader of its partition.

The generator runs on the same two processors, and takes from two workers what it leaves idle beside one.  So beside
the plain ratio of rates stands the ratio of what each could do with a processor for every worker: requests by the
processor time of the brokers that they took, times the number of workers.  Two workers that got in each other's way,
or had more to do for each request, would fall short of twice as many there; what the generator takes does not count.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
from harness.pybroker_process import PybrokerProcess
from harness.waiting import wait_until

from bench.contestants import PROPERTIES, PYBROKER
from bench.context import Context, settle
from bench.loads import Extent, Produce
from bench.parts.tiny import RECORD_BYTES, check_generator
from bench.process_stats import cpu_seconds
from bench.wire import Client

CONNECTIONS = 8
SHAPES = (1, 5)
WORKERS = (1, 2)


def run(context: Context) -> None:
    """One and two workers in alternating order, each start with every shape; pybroker alone."""
    for number in range(context.volume.rounds):
        found = dict(measure(context, count) for count in (WORKERS if number % 2 == 0 else reversed(WORKERS)))
        alone, both = (found[count] for count in WORKERS)
        for in_flight in SHAPES:
            shape = f"{CONNECTIONS}×{in_flight}"
            context.add(f"{shape} rate of two by one", "×", PYBROKER, both[in_flight][0] / alone[in_flight][0])
            context.add(f"{shape} capacity of two by one", "×", PYBROKER, both[in_flight][1] / alone[in_flight][1])


def measure(context: Context, workers: int) -> tuple[int, dict[int, tuple[float, float]]]:
    """So many workers: by requests in flight, what they did and what they could do, in requests per second."""
    found = {}
    with running(context, workers) as broker:
        leaders = leaders_of(broker, topic := f"bench-{uuid.uuid4().hex[:8]}", workers)
        brokers = psutil.Process(broker.pid).children(recursive=True)
        for in_flight in SHAPES:
            extent = Extent(context.volume.seconds, context.volume.warmup_seconds)
            load = Produce(broker.bootstrap, topic, 1, RECORD_BYTES, CONNECTIONS, in_flight, extent, leaders)
            before_s = sum(cpu_seconds(each.pid) for each in brokers)
            outcome = load.run()
            cpu_s = sum(cpu_seconds(each.pid) for each in brokers) - before_s
            check_generator(context, outcome.client_cpu_share)
            rate, capacity = outcome.requests_per_second, workers * outcome.acknowledged / cpu_s
            found[in_flight] = rate, capacity
            shape = f"{CONNECTIONS}×{in_flight}, {workers} worker{'s' * (workers > 1)}"
            context.add(f"{shape} requests", "1/s", PYBROKER, rate)
            context.add(f"{shape} capacity", "1/s", PYBROKER, capacity)
            context.add(f"{shape} generator", "of a core", PYBROKER, outcome.client_cpu_share)
    return workers, found


@contextmanager
def running(context: Context, workers: int) -> Iterator[PybrokerProcess]:
    """The command with so many workers, on a fresh directory; what it has started ends with it."""
    directory = context.root / uuid.uuid4().hex[:8]
    settle()
    broker = PybrokerProcess(directory, PROPERTIES, ("--workers", str(workers)))
    try:
        broker.start()
        yield broker
        broker.stop()
    finally:
        broker.kill()
        shutil.rmtree(directory, ignore_errors=True)


def leaders_of(broker: PybrokerProcess, topic: str, workers: int) -> list[str]:
    """Make a topic with a partition for each connection; who leads each, once as many lead as there are workers."""
    with Client(broker.bootstrap) as client:
        client.begin_topic(topic, CONNECTIONS, 1)
        wait_until(lambda: len(client.states(topic)) == CONNECTIONS, f"leaders of {topic}")
        leaders = [state.leader for state in client.states(topic)]
    if len(set(leaders)) != workers:
        raise RuntimeError(f"{len(set(leaders))} of {workers} workers lead")
    for leader in set(leaders):
        with Client(leader) as client:
            client.await_leaders(topic, [index for index, each in enumerate(leaders) if each == leader])
    return leaders
