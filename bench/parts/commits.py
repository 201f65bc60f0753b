"""Commits of offsets: how many OffsetCommit requests of one partition the broker answers, how fast, at which CPU."""

from __future__ import annotations

from functools import partial

from bench.contestants import Contestant, topic
from bench.context import Context, CpuMeter
from bench.loads import Commit, Extent
from bench.parts.tiny import add_outcome
from bench.parts.warmup import SECONDS, highest_rate

SHAPES = ((1, 1), (8, 1), (8, 5))
# The last shape goes on until so many are committed, or the time is over.
MILLION_SHAPE = (8, 5)
TIMEOUT_S = 200.0


def run(context: Context) -> None:
    """Every shape, in every round."""
    with context.running() as brokers:
        for name, broker in brokers.items():
            with topic(broker, 8) as topic_name:
                load = Commit(broker.bootstrap, topic_name, 8, 5, Extent(SECONDS, warmup_seconds=0))
                highest_rate(context, name, partial(rate, load))
        for connections, in_flight in SHAPES:
            context.alternate(brokers, partial(measure, context, connections, in_flight))


def measure(context: Context, connections: int, in_flight: int, name: str, broker: Contestant) -> None:
    """One shape against one broker."""
    extent = Extent(context.volume.seconds, context.volume.warmup_seconds)
    if (connections, in_flight) == MILLION_SHAPE:
        extent = Extent(TIMEOUT_S, warmup_seconds=0, requests=context.volume.commits)
    with topic(broker, connections) as topic_name:
        cpu = CpuMeter(broker.pid)
        outcome = Commit(broker.bootstrap, topic_name, connections, in_flight, extent).run()
        cpu_seconds = cpu.seconds()
    add_outcome(context, f"{connections}×{in_flight}", "commits", name, outcome, cpu_seconds)


def rate(load: Commit) -> float:
    """Commits per second in one run of the warm-up."""
    return load.run().requests_per_second
