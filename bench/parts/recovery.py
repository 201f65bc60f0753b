"""Recovery: kill -9 after a bulk transfer, then the time until the broker serves again, with nothing missing."""

from __future__ import annotations

import time
from dataclasses import replace

from bench.contestants import Contestant
from bench.context import Context, settle
from bench.loads import Extent
from bench.parts.large import BATCH_BYTES, RECORDS, large_load
from bench.wire import Client

PARTITIONS = 8


def run(context: Context) -> None:
    """Once per broker: the log is large."""
    for name in context.brokers:
        with context.running_one(name) as broker:
            measure(context, name, broker)
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
        client.await_leaders(topic_name, PARTITIONS)
        serving_s = time.perf_counter() - started
        written = sum(client.end_offsets(topic_name, range(PARTITIONS)).values())
    context.add("log", "GB", name, outcome.acknowledged * len(load.batch()) / 1e9)
    context.add("start after kill -9", "s", name, serving_s)
    if written < outcome.acknowledged * RECORDS:
        raise RuntimeError(f"{name} acknowledged {outcome.acknowledged * RECORDS} records and recovered {written}")
