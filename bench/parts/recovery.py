"""Recovery: kill -9 after a bulk transfer, and of very many partitions; the time until all is served again."""

from __future__ import annotations

import time
from dataclasses import replace

from bench.contestants import PYBROKER, Contestant
from bench.context import Context, settle
from bench.loads import Extent
from bench.parts.large import BATCH_BYTES, RECORDS, large_load
from bench.wire import Client, record_batch

PARTITIONS = 8
MANY_TOPICS, MANY_PARTITIONS = 200, 100
MANY = f"{MANY_TOPICS * MANY_PARTITIONS:,} partitions"
BATCHES_EACH = 3


def run(context: Context) -> None:
    """Once per broker: the log is large."""
    for name in context.brokers:
        with context.running_one(name) as broker:
            measure(context, name, broker)
            if name == PYBROKER:  # Kafka takes many minutes to make them
                measure_partitions(context, broker)
        settle()


def measure(context: Context, name: str, broker: Contestant) -> None:
    """Fill, kill, start."""
    topic_name = "recovery"
    with Client(broker.bootstrap) as client:
        client.create_topic(topic_name, PARTITIONS)
    extent = Extent(120, warmup_seconds=0, requests=context.volume.recovery_bytes // BATCH_BYTES)
    load = replace(large_load(context, broker, topic_name, PARTITIONS), extent=extent)
    outcome = load.run()
    broker.kill()
    started = time.perf_counter()
    broker.start(timeout_s=300)
    with Client(broker.bootstrap) as client:
        client.await_leaders(topic_name, range(PARTITIONS))
        serving_s = time.perf_counter() - started
        written = sum(client.end_offsets(topic_name, range(PARTITIONS)).values())
    context.add("log", "GB", name, outcome.acknowledged * len(load.batch()) / 1e9)
    context.add("start after kill -9", "s", name, serving_s)
    if written < outcome.acknowledged * RECORDS:
        raise RuntimeError(f"{name} acknowledged {outcome.acknowledged * RECORDS} records and recovered {written}")


def measure_partitions(context: Context, broker: Contestant) -> None:
    """A few small batches in each of many partitions, then kill, start, and ask each for its end."""
    batches = dict.fromkeys(range(MANY_PARTITIONS), record_batch(1, 100))
    with Client(broker.bootstrap) as client:
        for number in range(MANY_TOPICS):
            client.create_topic(f"many-{number}", MANY_PARTITIONS)
        for _ in range(BATCHES_EACH):
            for number in range(MANY_TOPICS):
                client.produce(f"many-{number}", batches)
    broker.kill()
    started = time.perf_counter()
    broker.start(timeout_s=300)
    context.add(f"{MANY} start after kill -9", "s", PYBROKER, time.perf_counter() - started)
    with Client(broker.bootstrap) as client:
        ends = [client.end_offsets(f"many-{number}", range(MANY_PARTITIONS)) for number in range(MANY_TOPICS)]
    if any(end != BATCHES_EACH for topic in ends for end in topic.values()):
        raise RuntimeError("a record is missing after the start")
    context.add(f"{MANY} all asked for after kill -9", "s", PYBROKER, time.perf_counter() - started)
