"""Kafka's own performance tools, on their own defaults but for batches that are worth sending."""

from __future__ import annotations

import re
from functools import partial

from harness.apache_kafka import CONSUMER_PERFORMANCE, PRODUCER_PERFORMANCE, run_kafka_tool

from bench.contestants import Contestant, topic
from bench.context import Context, CpuMeter
from bench.parts.warmup import warm_up

RECORD_BYTES = 1000
PARTITIONS = 4
TOOL_JVM_OPTIONS = ("-Xmx512m", "-XX:+UseG1GC")
TIMEOUT_S = 180
PRODUCED = re.compile(r"^(\d+) records sent, .*?([\d.]+) MB/sec\).*?([\d.]+) ms 99th", re.MULTILINE)


def run(context: Context) -> None:
    """Produce a topic, then consume it, in every round."""
    with context.running() as brokers:
        warm_up(context, brokers)
        context.alternate(
            brokers, partial(measure, context), context.fewer_rounds, written_bytes=context.volume.bulk_bytes
        )


def measure(context: Context, name: str, broker: Contestant) -> None:
    """Both directions against one broker."""
    records = context.volume.bulk_bytes // RECORD_BYTES
    gigabytes = records * RECORD_BYTES / 1e9
    with topic(broker, PARTITIONS) as topic_name:
        cpu = CpuMeter(broker.pid)
        mb_per_second = produce(broker, topic_name, records)
        context.add("produce", "MB/s", name, mb_per_second)
        context.add("produce CPU", "s/GB", name, cpu.seconds() / gigabytes)
        cpu = CpuMeter(broker.pid)
        mb_per_second = consume(broker, topic_name, records)
        context.add("consume", "MB/s", name, mb_per_second)
        context.add("consume CPU", "s/GB", name, cpu.seconds() / gigabytes)


def produce(broker: Contestant, topic_name: str, records: int) -> float:
    """MB/s of ProducerPerformance, which counts in units of 2**20."""
    finished = run_kafka_tool(
        PRODUCER_PERFORMANCE,
        *("--topic", topic_name, "--num-records", str(records), "--record-size", str(RECORD_BYTES)),
        *("--throughput", "-1", "--producer-props", f"bootstrap.servers={broker.bootstrap}"),
        *("batch.size=500000", "linger.ms=10", "buffer.memory=134217728"),
        timeout_s=TIMEOUT_S,
        jvm_options=TOOL_JVM_OPTIONS,
    )
    totals = PRODUCED.findall(finished.stdout)
    if not totals or int(totals[-1][0]) != records:
        raise RuntimeError(f"ProducerPerformance did not finish:\n{finished.stdout[-2000:]}")
    return float(totals[-1][1]) * 2**20 / 1e6


def consume(broker: Contestant, topic_name: str, records: int) -> float:
    """MB/s of ConsumerPerformance while it fetches, without the time it takes to join its group."""
    finished = run_kafka_tool(
        CONSUMER_PERFORMANCE,
        *("--bootstrap-server", broker.bootstrap, "--topic", topic_name, "--num-records", str(records)),
        *("--timeout", "60000"),
        timeout_s=TIMEOUT_S,
        jvm_options=TOOL_JVM_OPTIONS,
    )
    lines = [line.split(", ") for line in finished.stdout.splitlines() if ", " in line]
    columns, values = lines[-2:]
    row = dict(zip(columns, values, strict=True))
    if int(row["data.consumed.in.nMsg"]) < records:
        raise RuntimeError(f"ConsumerPerformance did not finish:\n{finished.stdout[-2000:]}")
    return float(row["fetch.MB.sec"]) * 2**20 / 1e6
