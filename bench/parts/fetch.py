"""Fetches of what is in the page cache: small ones, one batch of one record each, and as much as fits."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

from bench.contestants import Contestant, topic
from bench.context import Context, CpuMeter
from bench.loads import Extent, Fetch
from bench.parts.large import large_load
from bench.parts.tiny import RECORD_BYTES, add_generator, add_outcome
from bench.parts.warmup import SECONDS, highest_rate, warm_up
from bench.wire import Client, record_batch

PARTITIONS = 8
SMALL_CONNECTIONS, BULK_CONNECTIONS = (1, 8), (1, 8)


def run(context: Context) -> None:
    """Fill a topic of each kind per broker, then read them in every round."""
    with context.running() as brokers, ExitStack() as stack:
        warm_up(context, brokers)
        small: dict[str, str] = {}
        bulk: dict[str, tuple[str, int]] = {}
        for name, broker in brokers.items():
            small[name] = stack.enter_context(topic(broker, PARTITIONS))
            with Client(broker.bootstrap) as client:
                client.produce(small[name], dict.fromkeys(range(PARTITIONS), record_batch(1, RECORD_BYTES)))
            bulk_topic = stack.enter_context(topic(broker, PARTITIONS))
            large_load(context, broker, bulk_topic, PARTITIONS).run()
            bulk[name] = bulk_topic, shared_end(broker, bulk_topic)
        for name, broker in brokers.items():
            load = Fetch(broker.bootstrap, small[name], PARTITIONS, PARTITIONS, end_offset=1, extent=Extent(SECONDS, 0))
            highest_rate(context, name, partial(rate_of, load))
        for connections in SMALL_CONNECTIONS:
            context.alternate(brokers, partial(measure_small, context, small, connections))
        for connections in BULK_CONNECTIONS:
            context.alternate(brokers, partial(measure_bulk, context, bulk, connections))


def rate_of(load: Fetch) -> float:
    """Requests per second of one run."""
    return load.run().requests_per_second


def measure_small(context: Context, topics: dict[str, str], connections: int, name: str, broker: Contestant) -> None:
    """Each connection asks for the one record of its partition, again and again."""
    extent = Extent(context.volume.seconds, context.volume.warmup_seconds)
    cpu = CpuMeter(broker.pid)
    outcome = Fetch(broker.bootstrap, topics[name], connections, connections, end_offset=1, extent=extent).run()
    cpu_seconds = cpu.seconds()
    add_outcome(context, f"{connections}×1", "fetches", name, outcome, cpu_seconds)


def shared_end(broker: Contestant, topic_name: str) -> int:
    """The offset that every partition reaches."""
    with Client(broker.bootstrap) as client:
        return min(client.end_offsets(topic_name, range(PARTITIONS)).values())


def measure_bulk(
    context: Context, topics: dict[str, tuple[str, int]], connections: int, name: str, broker: Contestant
) -> None:
    """The connections share the partitions and read them from end to end, again and again.

    Each goes on with the next partition where all have ended: asking behind an end would measure how long a broker lets
    a fetch wait there.
    """
    topic_name, end_offset = topics[name]
    cpu = CpuMeter(broker.pid)
    extent = Extent(context.volume.seconds, warmup_seconds=0)
    load = Fetch(broker.bootstrap, topic_name, PARTITIONS, connections, end_offset=end_offset, extent=extent)
    outcome = load.run()
    cpu_seconds = cpu.seconds()
    label = f"{connections} conn"
    context.add(f"{label} fetch", "MB/s", name, outcome.fetched_bytes / outcome.seconds / 1e6)
    context.add(f"{label} CPU", "s/GB", name, cpu_seconds / (outcome.fetched_bytes / 1e9))
    add_generator(context, label, name, outcome.client_cpu_share)
