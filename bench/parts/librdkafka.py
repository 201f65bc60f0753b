"""What a C client sees: confluent-kafka produces and consumes records of 1 KB."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial

from bench.contestants import Contestant, topic
from bench.context import Context, CpuMeter
from bench.librdkafka_load import Job, Outcome
from bench.parts.warmup import warm_up
from bench.subprocesses import Generator

RECORD_BYTES = 1000
PARTITIONS = 4


def run(context: Context) -> None:
    """Produce a topic, then consume it, in every round."""
    with context.running() as brokers:
        warm_up(context, brokers)
        context.alternate(brokers, partial(measure, context), written_bytes=context.volume.bulk_bytes)


def measure(context: Context, name: str, broker: Contestant) -> None:
    """Both directions against one broker."""
    records = context.volume.bulk_bytes // RECORD_BYTES
    with topic(broker, PARTITIONS) as topic_name:
        for kind in ("produce", "consume"):
            job = Job(broker.bootstrap, topic_name, kind, records, RECORD_BYTES)
            cpu = CpuMeter(broker.pid)
            outcome = Outcome(**Generator.of_module("bench.librdkafka_load", asdict(job)).outcome())
            context.add(kind, "MB/s", name, outcome.records * RECORD_BYTES / outcome.seconds / 1e6)
            context.add(f"{kind} CPU", "s/GB", name, cpu.seconds() / (records * RECORD_BYTES / 1e9))
