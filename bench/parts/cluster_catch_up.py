"""A broker comes back after 2 GB were written without it: when it is in sync again, and what clients notice of that."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from bench import clusters
from bench.clusters import REPLICAS, Cluster, ReplicatedTopic, addresses, await_in_sync, replicated_topic
from bench.context import Context, back_with_memory
from bench.loads import Extent
from bench.parts.cluster_produce import LARGE_CONNECTIONS, PARTITIONS, large_of, rate_of, run_checked, warm_up
from bench.parts.large import BATCH_BYTES
from bench.parts.tiny import add_percentiles
from bench.wire import Client

BEHIND_BYTES = 2_000_000_000
AWAY = clusters.NODES - 1
# Of the clients' requests, from the moment on at which the first of it comes: a JVM's start would be another load.
BESIDE_S = 6.0
PATIENCE_S = 120.0
# So much of it has come when it has begun to.
BEGUN_BYTES = 1_000_000
_PAUSE_S = 0.02


def run(context: Context) -> None:
    """Once in each round, on a cluster of its own."""
    clusters.alternate(context, measure)


def measure(context: Context, name: str) -> None:
    """Kill a broker, write what it will lack, have it back."""
    with clusters.running(context, name) as cluster:
        large, small = (replicated_topic(cluster, count) for count in (LARGE_CONNECTIONS, PARTITIONS))
        warm_up(context, name, cluster, small)
        cluster.kill(AWAY)
        # The host may hold everybody up for this, so that brokers take each other for dead: leaders are asked later.
        back_with_memory(context.root, REPLICAS * BEHIND_BYTES)
        large, small = (without_it(cluster, topic) for topic in (large, small))
        load = replace(large_of(cluster, large), extent=Extent(120, 0, BEHIND_BYTES // BATCH_BYTES))
        outcome, _ = run_checked(cluster, large, load)
        context.add(
            "produce to two replicas", "MB/s", name, outcome.requests * len(load.batch()) / outcome.seconds / 1e6
        )
        come_back(context, name, cluster, large, small)


def without_it(cluster: Cluster, topic: ReplicatedTopic) -> ReplicatedTopic:
    """The topic once the others are those in sync."""
    leaders = await_in_sync(addresses(cluster), topic.name, len(topic.leaders), REPLICAS - 1)
    return ReplicatedTopic(topic.name, leaders)


def come_back(context: Context, name: str, cluster: Cluster, large: ReplicatedTopic, small: ReplicatedTopic) -> None:
    """Start the broker, beside clients that go on with small requests to the two others."""
    away = cluster.brokers[AWAY].data_directory
    behind_bytes = max(stored_bytes(broker.data_directory, large.name) for broker in cluster.brokers)
    behind_bytes -= (stored_before := stored_bytes(away, large.name))
    with ThreadPoolExecutor(2) as threads:
        started_s = time.monotonic()
        start = threads.submit(cluster.start_one, AWAY)
        wait_until_grown(away, large.name, stored_before + BEGUN_BYTES)
        begun_s = time.monotonic()
        beside = threads.submit(replace(rate_of(cluster, small), seconds=BESIDE_S, warmup_seconds=0).run)
        wait_until_in_sync(cluster, large)
        over_s = time.monotonic()
        start.result()
        latency = beside.result().produce
    context.add("restart to in sync", "s", name, over_s - started_s)
    context.add("catch-up", "MB/s", name, (behind_bytes - BEGUN_BYTES) / (over_s - begun_s) / 1e6)
    add_percentiles(context, "beside", name, latency)


def stored_bytes(data_directory: Path, topic: str) -> int:
    """Bytes in the segments of a topic."""
    return sum(segment.stat().st_size for segment in data_directory.glob(f"{topic}-*/*.log"))


def wait_until_grown(data_directory: Path, topic: str, size: int) -> None:
    """Wait until a topic's segments hold so much."""
    deadline_s = time.monotonic() + PATIENCE_S
    while stored_bytes(data_directory, topic) < size:
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"nothing came to {data_directory} within {PATIENCE_S:.0f} s")
        time.sleep(_PAUSE_S)


def wait_until_in_sync(cluster: Cluster, topic: ReplicatedTopic) -> None:
    """Wait until all replicas are in sync, as a broker has it that was never away."""
    deadline_s = time.monotonic() + PATIENCE_S
    with Client(cluster.bootstrap) as client:
        while any(state.in_sync < REPLICAS for state in client.states(topic.name)):
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"{topic.name} is not in sync again within {PATIENCE_S:.0f} s")
            time.sleep(_PAUSE_S)
