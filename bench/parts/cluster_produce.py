"""Produce to three replicas with acks=all: large batches, tiny requests, and latency at a fixed rate; CPU and memory.

CPU and memory are those of the whole cluster.  The generator, whose processor time is not counted, shares two
processors with three brokers.
"""

from __future__ import annotations

from dataclasses import replace

from bench import clusters
from bench.clusters import Cluster, ClusterCpu, ReplicatedTopic, replicated_topic
from bench.context import Context, back_with_memory
from bench.loads import Extent, Latency, Outcome, Produce
from bench.parts.large import BATCH_BYTES, LARGE_RECORD_BYTES, RECORDS
from bench.parts.tiny import RECORD_BYTES, add_generator, add_outcome, add_percentiles
from bench.parts.warmup import highest_rate

PARTITIONS = 12
TINY_SHAPES = ((8, 1), (8, 5))
LARGE_CONNECTIONS, LARGE_IN_FLIGHT = 6, 2
# Moderate: a cluster of Kafka's on two processors answers 390 to 490 of them in a second.
RATE, RATE_RECORD_BYTES = 250.0, 1000
WARMUP_S, LARGE_WARMUP_REQUESTS = 2.0, 600


def run(context: Context) -> None:
    """Everything in each round, on a cluster of its own."""
    clusters.alternate(context, measure)


def measure(context: Context, name: str) -> None:
    """One cluster, warm."""
    with clusters.running(context, name) as cluster:
        add_memory(context, "idle", name, cluster)
        topic = replicated_topic(cluster, PARTITIONS)
        warm_up(context, name, cluster, topic)
        for connections, in_flight in TINY_SHAPES:
            measure_tiny(context, name, cluster, topic, connections, in_flight)
        measure_rate(context, name, cluster)
        measure_large(context, name, cluster)
        add_memory(context, "loaded", name, cluster)


def load_of(cluster: Cluster, topic: ReplicatedTopic) -> Produce:
    """Tiny requests to the leaders of a topic."""
    return Produce(cluster.bootstrap, topic.name, 1, RECORD_BYTES, leaders=topic.leaders)


def large_of(cluster: Cluster, topic: ReplicatedTopic) -> Produce:
    """Large batches to the leaders of a topic."""
    shape = (RECORDS, LARGE_RECORD_BYTES, LARGE_CONNECTIONS, LARGE_IN_FLIGHT)
    return Produce(cluster.bootstrap, topic.name, *shape, leaders=topic.leaders)


def rate_of(cluster: Cluster, topic: ReplicatedTopic) -> Latency:
    """Records of 1 KB at the fixed rate."""
    shape = (RATE, len(topic.leaders), None, 0, RATE_RECORD_BYTES)
    return Latency(cluster.bootstrap, topic.name, *shape, leaders=topic.leaders)


def warm_up(context: Context, name: str, cluster: Cluster, topic: ReplicatedTopic) -> None:
    """Both kinds of requests for a while."""
    tiny = replace(load_of(cluster, topic), connections=8, in_flight=5, extent=Extent(WARMUP_S, 0))
    highest_rate(context, name, lambda: tiny.run().requests_per_second)
    replace(large_of(cluster, topic), extent=Extent(10.0, 0, LARGE_WARMUP_REQUESTS)).run()


def measure_tiny(
    context: Context, name: str, cluster: Cluster, topic: ReplicatedTopic, connections: int, in_flight: int
) -> None:
    """Requests of one small record, each in a partition of its connection's."""
    extent = Extent(context.volume.seconds, context.volume.warmup_seconds)
    load = replace(load_of(cluster, topic), connections=connections, in_flight=in_flight, extent=extent)
    outcome, cpu = run_checked(cluster, topic, load)
    add_outcome(context, f"{connections}×{in_flight}", "requests", name, outcome, cpu)


def measure_rate(context: Context, name: str, cluster: Cluster) -> None:
    """Records of 1 KB by schedule, a connection for each partition."""
    load = rate_of(cluster, replicated_topic(cluster, PARTITIONS))
    cpu = ClusterCpu(cluster)
    outcome = replace(load, seconds=2 * context.volume.seconds, warmup_seconds=context.volume.warmup_seconds).run()
    context.add("fixed rate CPU", "s", name, cpu.seconds())
    add_generator(context, "fixed rate", name, outcome.client_cpu_share)
    add_percentiles(context, "fixed rate", name, outcome.produce)


def measure_large(context: Context, name: str, cluster: Cluster) -> None:
    """A bulk transfer: each byte is written three times on one machine."""
    volume = context.volume.bulk_bytes
    topic = replicated_topic(cluster, LARGE_CONNECTIONS)
    back_with_memory(context.root, clusters.REPLICAS * volume)
    load = replace(large_of(cluster, topic), extent=Extent(30.0, 0.5, volume // BATCH_BYTES))
    outcome, cpu = run_checked(cluster, topic, load)
    batch_bytes = len(load.batch())
    context.add("large produce", "MB/s", name, outcome.requests * batch_bytes / outcome.seconds / 1e6)
    context.add("large p99", "µs", name, outcome.latency.p99_us)
    context.add("large CPU", "s/GB", name, cpu / (outcome.acknowledged * batch_bytes / 1e9))
    add_generator(context, "large", name, outcome.client_cpu_share)


def run_checked(cluster: Cluster, topic: ReplicatedTopic, load: Produce) -> tuple[Outcome, float]:
    """Run a load; its outcome and the cluster's CPU seconds.  The logs must hold exactly what was acknowledged."""
    before = sum(clusters.end_offsets(topic).values())
    cpu = ClusterCpu(cluster)
    outcome = load.run()
    cpu_seconds = cpu.seconds()
    written = sum(clusters.end_offsets(topic).values()) - before
    if written != outcome.acknowledged * load.records:
        raise RuntimeError(f"{outcome.acknowledged * load.records} records acknowledged, {written} in the log")
    return outcome, cpu_seconds


def add_memory(context: Context, when: str, name: str, cluster: Cluster) -> None:
    """Resident memory, with shared pages counted for each broker and once; and what the brokers allocated alone.

    pybroker maps its logs: their pages are the page cache's, and count for it while they are mapped.
    """
    context.add(f"{when} RSS", "MB", name, clusters.resident_mb(cluster))
    context.add(f"{when} PSS", "MB", name, clusters.proportional_memory_mb(cluster))
    context.add(f"{when} RssAnon", "MB", name, clusters.allocated_mb(cluster))
