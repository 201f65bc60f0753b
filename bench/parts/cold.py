"""A tail consumer's latency alone, and while another consumer reads data that lies on the disk only."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path

from bench.contestants import Contestant, topic
from bench.context import Context, CpuMeter
from bench.loads import Extent, Fetch, Latency, LatencyOutcome
from bench.parts.large import RECORDS, large_load
from bench.parts.warmup import warm_up

PARTITIONS = 8
# A rate at which neither the broker nor the generator is busy.
RATE = 1000
CONNECTIONS = 4
# Of the latencies, in both volumes: less than a broker takes for the reading, or there is nobody to be beside.
WARMUP_S, SECONDS = 0.5, 1.5


def run(context: Context) -> None:
    """Fill a topic, then measure without and with the cold reader, in every round."""
    with context.running() as brokers:
        warm_up(context, brokers)
        context.alternate(brokers, partial(measure, context), context.fewer_rounds)


def measure(context: Context, name: str, broker: Contestant) -> None:
    """One broker: alone, then beside."""
    with topic(broker, PARTITIONS) as cold_topic:
        written = large_load(context, broker, cold_topic, PARTITIONS).run()
        drop_pages(broker.data_directory, cold_topic)
        alone = tail_latency(broker, SECONDS, WARMUP_S)
        end_offset = min(written.by_connection) * RECORDS
        extent = Extent(WARMUP_S + SECONDS + 1, warmup_seconds=0)
        cpu = CpuMeter(broker.pid)
        reader = Fetch(
            broker.bootstrap, cold_topic, PARTITIONS, end_offset=end_offset, is_endless=False, extent=extent
        ).start()
        beside = tail_latency(broker, SECONDS, WARMUP_S)
        read = reader.outcome()
    if read.seconds < WARMUP_S + SECONDS:
        context.say(f"{name} had read everything after {read.seconds:.1f} s: the rest of the time nobody was beside")
    context.add("tail p99 alone", "µs", name, alone.end_to_end.p99_us)
    context.add("tail p99 beside a cold reader", "µs", name, beside.end_to_end.p99_us)
    context.add("tail p99 factor", "×", name, beside.end_to_end.p99_us / alone.end_to_end.p99_us)
    context.add("cold read", "MB/s", name, read.fetched_bytes / read.seconds / 1e6)
    context.add("cold read CPU", "s/GB", name, cpu.seconds() / (read.fetched_bytes / 1e9))


def tail_latency(broker: Contestant, seconds: float, warmup_seconds: float) -> LatencyOutcome:
    """Latency from produce to consume at a modest rate."""
    with topic(broker, CONNECTIONS) as topic_name:
        load = Latency(broker.bootstrap, topic_name, RATE, CONNECTIONS)
        return replace(load, seconds=seconds, warmup_seconds=warmup_seconds).run()


def drop_pages(data_directory: Path, topic_name: str) -> None:
    """Write a topic's segments to the disk and drop them from the page cache."""
    os.sync()
    for path in data_directory.glob(f"{topic_name}-*/*.log"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
