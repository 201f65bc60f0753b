"""Commits of offsets: how many OffsetCommit requests of one partition the broker answers, how fast, at which CPU."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial

from bench.contestants import Contestant, topic
from bench.context import Context, CpuMeter
from bench.parts.warmup import SECONDS, highest_rate
from bench.raw_load import Job, Outcome
from bench.subprocesses import Generator

SHAPES = ((1, 1), (8, 1), (8, 5))
# The last shape goes on until so many are committed, or the time is over.
MILLION_SHAPE = (8, 5)
TIMEOUT_S = 200.0
NO_LIMIT = 2**62


def run(context: Context) -> None:
    """Every shape, in every round."""
    with context.running() as brokers:
        for name, broker in brokers.items():
            with topic(broker, 8) as topic_name:
                job = Job(broker.bootstrap, topic_name, connections=8, in_flight=5, seconds=SECONDS, warmup_seconds=0)
                highest_rate(context, name, partial(rate, job))
        for connections, in_flight in SHAPES:
            context.alternate(brokers, partial(measure, context, connections, in_flight))


def measure(context: Context, connections: int, in_flight: int, name: str, broker: Contestant) -> None:
    """One shape against one broker."""
    is_million = (connections, in_flight) == MILLION_SHAPE
    with topic(broker, connections) as topic_name:
        cpu = CpuMeter(broker.pid)
        outcome = commit(
            Job(
                broker.bootstrap,
                topic_name,
                connections=connections,
                in_flight=in_flight,
                seconds=TIMEOUT_S if is_million else context.volume.seconds,
                warmup_seconds=0 if is_million else context.volume.warmup_seconds,
                requests=context.volume.commits if is_million else NO_LIMIT,
            )
        )
        cpu_seconds = cpu.seconds()
    shape = f"{connections}×{in_flight}"
    context.add(f"{shape} commits", "1/s", name, outcome.requests_per_second)
    context.add(f"{shape} p50", "µs", name, outcome.p50_us)
    context.add(f"{shape} p99", "µs", name, outcome.p99_us)
    context.add(f"{shape} CPU", "s/million", name, cpu_seconds / outcome.acknowledged * 1e6)


def rate(job: Job) -> float:
    """Commits per second in one run of the warm-up."""
    return commit(job).requests_per_second


def commit(job: Job) -> Outcome:
    """Run the committer to its end."""
    return Outcome(**Generator("bench.commit_load", asdict(job)).outcome())
