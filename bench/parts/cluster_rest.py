"""A cluster at rest, with 1,000 partitions of three replicas that hold a record each: processor time and memory."""

from __future__ import annotations

import time

from bench import clusters
from bench.clusters import ClusterCpu, ReplicatedTopic, led_by, replicated_topic
from bench.context import Context
from bench.parts.cluster_produce import add_memory
from bench.wire import Client, record_batch

PARTITIONS = 1000
SETTLE_S = 10.0
MEASURED_S = 10.0
FILLED_AT_ONCE = 50
TRIES = 20


def run(context: Context) -> None:
    """Once in each round, on a cluster of its own."""
    clusters.alternate(context, measure)


def measure(context: Context, name: str) -> None:
    """Fill the partitions and leave the cluster alone."""
    with clusters.running(context, name) as cluster:
        started_s = time.monotonic()
        topic = replicated_topic(cluster, PARTITIONS)
        for leader in sorted(set(topic.leaders)):
            led = led_by(leader, topic.leaders)
            with Client(leader) as client:
                for start in range(0, len(led), FILLED_AT_ONCE):
                    fill(client, topic, led[start : start + FILLED_AT_ONCE])
        context.add("1,000 partitions made and filled", "s", name, time.monotonic() - started_s)
        time.sleep(SETTLE_S)
        cpu = ClusterCpu(cluster)
        time.sleep(MEASURED_S)
        context.add("1,000 partitions CPU", "% of a core", name, 100 * cpu.seconds() / MEASURED_S)
        add_memory(context, "1,000 partitions", name, cluster)


def fill(client: Client, topic: ReplicatedTopic, partitions: list[int]) -> None:
    """A record for each of these partitions; tried again where so many new ones keep followers from being in sync."""
    for left in reversed(range(TRIES)):
        try:
            client.produce(topic.name, dict.fromkeys(partitions, record_batch(1, 100)))
            return
        except RuntimeError:
            if not left:
                raise
            time.sleep(1.0)
