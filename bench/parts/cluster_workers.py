"""``serve --workers 2`` beside one worker and Apache Kafka: tiny requests, small fetches and commits.

Each of the 8 connections goes to the broker that leads its partition, or coordinates its group.

The generator runs on the same two processors, and takes from two workers what it leaves idle beside one.  So beside
the plain ratio of rates stands the ratio of what each could do with a processor for every worker: requests by the
processor time of the brokers that they took, times the number of workers.  Two workers that got in each other's way,
or had more to do for each request, would fall short of twice as many there; what the generator takes does not count.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
from harness.pybroker_process import PybrokerProcess
from harness.waiting import wait_until

from bench.contestants import KAFKA, PROPERTIES, Contestant, make, pybroker_command
from bench.context import LONG_SESSIONS, Context
from bench.loads import Commit, Extent, Fetch, Outcome, Produce
from bench.parts.tiny import RECORD_BYTES, check_generator
from bench.parts.warmup import SECONDS, highest_rate
from bench.process_stats import cpu_seconds
from bench.wire import Client, record_batch

CONNECTIONS = 8
WORKERS = (1, 2)


@dataclass(frozen=True, slots=True)
class Started:
    """A contestant that runs: its name in the table, its brokers' processes, and a topic with the leaders of it.

    The topic's partitions have one record each at first; ``written`` is another one, which tiny requests fill.
    """

    name: str
    workers: int
    broker: Contestant
    pids: tuple[int, ...]
    read: tuple[str, list[str]]
    written: tuple[str, list[str]]

    @property
    def pid(self) -> int:
        return self.broker.pid

    @property
    def data_directory(self) -> Path:
        return self.broker.data_directory


Load = Callable[[Started, Extent], Outcome]


def tiny(in_flight: int, started: Started, extent: Extent) -> Outcome:
    """Produce requests of one small record."""
    topic, leaders = started.written
    sizes = (1, RECORD_BYTES, CONNECTIONS, in_flight)
    return Produce(started.broker.bootstrap, topic, *sizes, extent, leaders).run()


def fetches(started: Started, extent: Extent) -> Outcome:
    """Fetches of the one record of a partition, again and again."""
    topic, leaders = started.read
    load = Fetch(
        started.broker.bootstrap, topic, CONNECTIONS, CONNECTIONS, end_offset=1, extent=extent, leaders=leaders
    )
    return load.run()


def commits(started: Started, extent: Extent) -> Outcome:
    """Commits of one partition's offset."""
    return Commit(started.broker.bootstrap, started.read[0], CONNECTIONS, 1, extent).run()


LOADS: dict[str, Load] = {
    "8×1": partial(tiny, 1),
    "8×5": partial(tiny, 5),
    "8×1 fetches": fetches,
    "8×1 commits": commits,
}


def run(context: Context) -> None:
    """Every load in every round, each contestant warmed up by it before."""
    with ExitStack() as stack:
        contestants: dict[str, Started] = {}
        for name in context.brokers:
            for workers in (1,) if name == KAFKA else WORKERS:
                started = stack.enter_context(running(context, name, workers))
                contestants[f"{name}, {workers}"] = started
        for label, load in LOADS.items():
            found: dict[tuple[str, int], list[tuple[float, float]]] = {}
            for started in contestants.values():
                highest_rate(context, f"{started.name}, {label}", partial(warm, load, started))
            context.alternate(contestants, partial(measure, context, label, load, found))
            add_ratios(context, label, found)


def warm(load: Load, started: Started) -> float:
    """The rate of a run while the contestant warms up."""
    return load(started, Extent(SECONDS, warmup_seconds=0)).requests_per_second


def measure(
    context: Context,
    label: str,
    load: Load,
    found: dict[tuple[str, int], list[tuple[float, float]]],
    _: str,
    started: Started,
) -> None:
    """One load against one contestant: what it did, and what it could do, in requests per second."""
    before_s = sum(map(cpu_seconds, started.pids))
    outcome = load(started, Extent(context.volume.seconds, context.volume.warmup_seconds))
    cpu_s = sum(map(cpu_seconds, started.pids)) - before_s
    check_generator(context, outcome.client_cpu_share)
    rate, capacity = outcome.requests_per_second, started.workers * outcome.acknowledged / cpu_s
    found.setdefault((started.name, started.workers), []).append((rate, capacity))
    counts = WORKERS if started.name == KAFKA else (started.workers,)
    for count in counts:  # Apache Kafka is one broker, which stands beside one worker and beside two
        context.add(f"{label}, {count} worker{'s' * (count > 1)}", "1/s", started.name, rate)
    if started.name != KAFKA:
        shown = f"{label}, {started.workers} worker{'s' * (started.workers > 1)}"
        context.add(f"{shown}, capacity", "1/s", started.name, capacity)
        context.add(f"{shown}, generator", "of a core", started.name, outcome.client_cpu_share)


def add_ratios(context: Context, label: str, found: dict[tuple[str, int], list[tuple[float, float]]]) -> None:
    """Two workers by one, round by round."""
    for name in {name for name, _ in found} - {KAFKA}:
        for alone, both in zip(*(found[name, count] for count in WORKERS), strict=True):
            context.add(f"{label} rate of two by one", "×", name, both[0] / alone[0])
            context.add(f"{label} capacity of two by one", "×", name, both[1] / alone[1])


@contextmanager
def running(context: Context, name: str, workers: int) -> Iterator[Started]:
    """Apache Kafka, or the command with so many workers, on a fresh directory; what it has started ends with it."""
    directory = context.root / uuid.uuid4().hex[:8]
    broker: Contestant
    if name == KAFKA:
        broker = make(name, directory, LONG_SESSIONS)
    else:
        settings = {**PROPERTIES, **LONG_SESSIONS}
        broker = PybrokerProcess(directory, settings, ("--workers", str(workers)), command=pybroker_command(name))
    try:
        broker.start()
        pids = (broker.pid,)
        if name != KAFKA:
            pids = tuple(child.pid for child in psutil.Process(broker.pid).children(recursive=True))
        read, written = (topic_with_leaders(broker, workers) for _ in range(2))
        for leader in set(read[1]):
            led = [index for index, each in enumerate(read[1]) if each == leader]
            with Client(leader) as client:
                client.produce(read[0], dict.fromkeys(led, record_batch(1, RECORD_BYTES)))
        yield Started(name, workers, broker, pids, read, written)
        broker.stop()
    finally:
        broker.kill()


def topic_with_leaders(broker: Contestant, workers: int) -> tuple[str, list[str]]:
    """A new topic with a partition for each connection; who leads each, once as many lead as there are workers."""
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    with Client(broker.bootstrap) as client:
        client.begin_topic(topic, CONNECTIONS, 1)
        wait_until(lambda: len(client.states(topic)) == CONNECTIONS, f"leaders of {topic}")
        leaders = [state.leader for state in client.states(topic)]
    if len(set(leaders)) != workers:
        raise RuntimeError(f"{len(set(leaders))} of {workers} workers lead")
    for leader in set(leaders):
        with Client(leader) as client:
            client.await_leaders(topic, [index for index, each in enumerate(leaders) if each == leader])
    return topic, leaders
