"""``serve --workers 2`` beside one worker and Apache Kafka: tiny requests, small fetches and commits.

Each of the 8 connections goes to the broker that leads its partition, or coordinates its group.

The generator runs on the same two processors, and takes from two workers what it leaves idle beside one.  So beside
the plain ratio of rates stands the ratio of what each could do with a processor for every worker: requests by the
processor time of the brokers that they took, times the number of workers.  Two workers that got in each other's way,
or had more to do for each request, would fall short of twice as many there; what the generator takes does not count.

No processor of a virtual machine is sure to be a whole one: two may be threads of one core, or wait for the host.  So
the first figure is what two busy processes get done at once, by what one gets done alone.  Ratios of a machine where
that is far from 2 say little of the brokers.
"""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
from harness.pybroker_process import PybrokerProcess
from harness.waiting import wait_until

from bench.contestants import KAFKA, PROPERTIES, PYBROKER, Contestant, make, pybroker_command
from bench.context import LONG_SESSIONS, Context
from bench.loads import Commit, Extent, Fetch, Outcome, Produce
from bench.parts.tiny import RECORD_BYTES, add_generator
from bench.parts.warmup import SECONDS, highest_rate
from bench.process_stats import cpu_seconds
from bench.wire import Client, record_batch

CONNECTIONS = 8
WORKERS = (1, 2)
# Processes begin to count together, once all of them have started.
START_S, COUNTING_S = 0.5, 1.0
COUNTING = """
import sys, time
begin = float(sys.argv[1])
end = begin + float(sys.argv[2])
count = 0
while (now := time.time()) < end:
    count += now >= begin
print(count)
"""
# Workers that are stopped while others are measured shall be the same brokers to their store afterwards.
LONG_STORE_SESSIONS = {"pybroker.metadata.session.timeout.ms": LONG_SESSIONS["broker.session.timeout.ms"]}


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
    for _ in range(context.fewer_rounds):
        context.add("two busy processes by one", "×", PYBROKER, counted_by(2) / counted_by(1))
    with ExitStack() as stack:
        contestants: dict[str, Started] = {}
        for name in context.brokers:
            for workers in (1,) if name == KAFKA else WORKERS:
                started = stack.enter_context(running(context, name, workers))
                contestants[f"{name}, {workers}"] = started
        for label, load in LOADS.items():
            for started in contestants.values():
                highest_rate(context, f"{started.name}, {label}", partial(warm, load, started))
            context.alternate(contestants, partial(measure, context, label, load))
            add_ratios(context, label)


def counted_by(processes: int) -> int:
    """How far so many processes count at once, all of them together, in ``COUNTING_S``."""
    command = [sys.executable, "-c", COUNTING, str(time.time() + START_S), str(COUNTING_S)]
    counting = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    return sum(int(each.communicate()[0]) for each in counting)


def warm(load: Load, started: Started) -> float:
    """The rate of a run while the contestant warms up."""
    return load(started, Extent(SECONDS, warmup_seconds=0)).requests_per_second


def measure(context: Context, label: str, load: Load, _: str, started: Started) -> None:
    """One load against one contestant: what it did, and what it could do, in requests per second."""
    before_s = sum(map(cpu_seconds, started.pids))
    outcome = load(started, Extent(context.volume.seconds, context.volume.warmup_seconds))
    cpu_s = sum(map(cpu_seconds, started.pids)) - before_s
    rate, capacity = outcome.requests_per_second, started.workers * outcome.acknowledged / cpu_s
    counts = WORKERS if started.name == KAFKA else (started.workers,)
    for count in counts:  # Apache Kafka is one broker, which stands beside one worker and beside two
        context.add(shown(label, count), "1/s", started.name, rate)
        add_generator(context, f"{shown(label, count)},", started.name, outcome.client_cpu_share)
    if started.name != KAFKA:
        context.add(f"{shown(label, started.workers)}, capacity", "1/s", started.name, capacity)


def shown(label: str, workers: int) -> str:
    """What the rate of a load with so many workers is called."""
    return f"{label}, {workers} worker{'s' * (workers > 1)}"


def add_ratios(context: Context, label: str) -> None:
    """Two workers by one, round by round."""
    for what, behind in (("rate", ""), ("capacity", ", capacity")):
        one, two = (context.measurements.get(context.part, shown(label, count) + behind) for count in WORKERS)
        assert one is not None
        assert two is not None
        for name in one.samples.keys() - {KAFKA}:
            for alone, both in zip(one.samples[name], two.samples[name], strict=True):
                context.add(f"{label} {what} of two by one", "×", name, both / alone)


@contextmanager
def running(context: Context, name: str, workers: int) -> Iterator[Started]:
    """Apache Kafka, or the command with so many workers, on a fresh directory; what it has started ends with it."""
    directory = context.root / uuid.uuid4().hex[:8]
    broker: Contestant
    if name == KAFKA:
        broker = make(name, directory, LONG_SESSIONS)
    else:
        settings = {**PROPERTIES, **LONG_SESSIONS, **LONG_STORE_SESSIONS}
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
