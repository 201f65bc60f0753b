"""Large batches: 1 MB requests over 1 and 8 connections, and another client's tiny requests while they pour in."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from bench.contestants import Contestant, topic
from bench.context import Context, CpuMeter
from bench.parts.tiny import RECORD_BYTES, check_log
from bench.parts.warmup import warm_up
from bench.raw_load import Job, Outcome
from bench.subprocesses import raw_load, start_raw_load

# A thousand records of 1,000 bytes: a batch just below Kafka's default max.message.bytes.
RECORDS, LARGE_RECORD_BYTES = 1000, 1000
BATCH_BYTES = 1_010_000
WARMUP_S = 0.5


def run(context: Context) -> None:
    """1 and 8 connections alone, then 8 with another client beside."""
    # Half a second of warm-up at more than 1 GB/s comes first.
    written_bytes = 2 * context.volume.bulk_bytes
    with context.running() as brokers:
        warm_up(context, brokers)
        for connections in (1, 8):
            context.alternate(brokers, partial(measure, context, connections), written_bytes=written_bytes)
        context.alternate(brokers, partial(measure_beside, context), written_bytes=written_bytes)


def large_job(context: Context, broker: Contestant, topic_name: str, connections: int) -> Job:
    """A bulk transfer, bounded by its volume and, on a slow disk, by time."""
    return Job(
        broker.bootstrap,
        topic_name,
        records=RECORDS,
        record_bytes=LARGE_RECORD_BYTES,
        connections=connections,
        in_flight=5 if connections == 1 else 2,
        seconds=30,
        warmup_seconds=WARMUP_S,
        requests=context.volume.bulk_bytes // BATCH_BYTES,
    )


def measure(context: Context, connections: int, name: str, broker: Contestant) -> None:
    """A bulk transfer against one broker."""
    with topic(broker, connections) as topic_name:
        cpu = CpuMeter(broker.pid)
        outcome = raw_load(large_job(context, broker, topic_name, connections))
        cpu_seconds = cpu.seconds()
        check_log(broker, topic_name, connections, outcome, RECORDS)
    context.add(f"{connections} conn produce", "MB/s", name, outcome.mb_per_second)
    context.add(
        f"{connections} conn CPU", "s/GB", name, cpu_seconds / (outcome.acknowledged * outcome.batch_bytes / 1e9)
    )


def measure_beside(context: Context, name: str, broker: Contestant) -> None:
    """Tiny requests of another client for as long as a bulk transfer over 8 connections lasts."""
    with topic(broker, 8) as large_topic, topic(broker, 1) as tiny_topic:
        tiny_job = Job(broker.bootstrap, tiny_topic, record_bytes=RECORD_BYTES, warmup_seconds=1.0, seconds=2.0)
        # The bulk transfer starts first and outlasts the tiny requests.
        large = start_raw_load(replace(large_job(context, broker, large_topic, 8), requests=2**62, seconds=4.0))
        tiny = raw_load(tiny_job)
        outcome = Outcome(**large.outcome())
    context.add("tiny beside 8 conn", "1/s", name, tiny.requests_per_second)
    context.add("tiny beside 8 conn p50", "µs", name, tiny.p50_us)
    context.add("tiny beside 8 conn p99", "µs", name, tiny.p99_us)
    context.add("8 conn beside tiny produce", "MB/s", name, outcome.mb_per_second)
