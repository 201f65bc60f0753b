"""Tiny requests: how many Produce requests of one small record the broker answers, how fast, at which CPU."""

from __future__ import annotations

from functools import partial

from bench.contestants import Contestant, topic
from bench.context import Context, CpuMeter
from bench.parts.warmup import warm_up
from bench.raw_load import Job, Outcome
from bench.subprocesses import raw_load
from bench.wire import Client

SHAPES = ((1, 1), (8, 1), (8, 5))
RECORD_BYTES = 200


def run(context: Context) -> None:
    """Every shape, in every round, on a fresh topic each."""
    with context.running() as brokers:
        warm_up(context, brokers)
        for connections, in_flight in SHAPES:
            context.alternate(brokers, partial(measure, context, connections, in_flight))


def measure(context: Context, connections: int, in_flight: int, name: str, broker: Contestant) -> None:
    """One shape against one broker."""
    with topic(broker, connections) as topic_name:
        cpu = CpuMeter(broker.pid)
        outcome = raw_load(
            Job(
                broker.bootstrap,
                topic_name,
                record_bytes=RECORD_BYTES,
                connections=connections,
                in_flight=in_flight,
                seconds=context.volume.seconds,
                warmup_seconds=context.volume.warmup_seconds,
            )
        )
        cpu_seconds = cpu.seconds()
        check_log(broker, topic_name, connections, outcome)
    shape = f"{connections}×{in_flight}"
    context.add(f"{shape} requests", "1/s", name, outcome.requests_per_second)
    context.add(f"{shape} p50", "µs", name, outcome.p50_us)
    context.add(f"{shape} p99", "µs", name, outcome.p99_us)
    context.add(f"{shape} CPU", "s/million", name, cpu_seconds / outcome.acknowledged * 1e6)


def check_log(broker: Contestant, topic_name: str, partitions: int, outcome: Outcome, records: int = 1) -> None:
    """Raise ``RuntimeError`` unless the log holds exactly what was acknowledged."""
    with Client(broker.bootstrap) as client:
        written = sum(client.end_offsets(topic_name, range(partitions)).values())
    if written != outcome.acknowledged * records:
        raise RuntimeError(f"{outcome.acknowledged * records} records acknowledged, {written} in the log")
