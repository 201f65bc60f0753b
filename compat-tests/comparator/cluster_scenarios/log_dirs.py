"""Log dirs of each broker, of which there are two: what lies where, and replicas that are moved between them."""

from __future__ import annotations

from functools import partial
from typing import Any

from harness.batches import batch

from comparator.broker import Broker
from comparator.cluster import Cluster
from comparator.registry import cluster_scenario
from comparator.scenarios.log_dirs import move
from comparator.scenarios.produce import produce


def dirs_of(broker: Broker) -> list[str]:
    """The paths of both, in order."""
    return sorted(each["log_dir"] for each in broker.quietly("DescribeLogDirs", 4, topics=[])["results"])


def prepare(cluster: Cluster, name: str, replicas: list[list[int]]) -> None:
    """A topic whose replicas all lie in the first dir of their broker, with a batch in each partition."""
    indexes = list(range(len(replicas)))
    for broker_id, broker in cluster.brokers.items():
        # Where a replica is to begin may be said before it is there.
        move(broker, 2, f"before it is there, at {broker_id}", (dirs_of(broker)[0], {name: indexes}))
    cluster.prepare_topic(name, replicas)
    write(cluster, name, replicas)


def write(cluster: Cluster, name: str, replicas: list[list[int]]) -> None:
    for index, (leader, *_) in enumerate(replicas):
        produce(cluster.brokers[leader], 9, f"to partition {index}", name, batch(b"v"), partition=index)


def lies_in(broker: Broker, path: str, name: str) -> bool:
    """Whether all replicas of the topic lie in this dir, and none is on its way."""

    def kept(result: Any) -> list[Any]:
        return [each for topic in result["topics"] for each in topic["partitions"]]

    asked = [{"topic": name, "partitions": [0, 1, 2]}]
    results = broker.quietly("DescribeLogDirs", 4, topics=asked)["results"]
    return all(result["log_dir"] == path and not each["is_future_key"] for result in results for each in kept(result))


@cluster_scenario
def log_dirs_are_told_by_each(cluster: Cluster) -> None:
    prepare(cluster, "kept", [[1, 2], [3, 1]])
    asked = [{"topic": "kept", "partitions": [0, 1, 2]}, {"topic": "no-such-topic", "partitions": [0]}]
    for version in cluster.versions("DescribeLogDirs"):
        cluster.call_each("DescribeLogDirs", version, "a topic", topics=asked)


@cluster_scenario
def replicas_are_moved_between_log_dirs(cluster: Cluster) -> None:
    name, replicas = "shelved", [[1, 2], [2, 3], [3, 1]]
    prepare(cluster, name, replicas)
    asked = [{"topic": name, "partitions": [0, 1, 2]}]
    for version, number in ((1, 1), (2, 0)):
        for broker_id, broker in cluster.brokers.items():
            here = [index for index, ids in enumerate(replicas) if broker_id in ids]
            target = dirs_of(broker)[number]
            move(broker, version, f"to dir {number}, at {broker_id}", (target, {name: here}))
            broker.wait_until(partial(lies_in, broker, target, name), f"{name} in {target}")
            move(broker, version, f"to where they are, at {broker_id}", (target, {name: here}))
            everywhere = {name: [0, 1, 2, 3]}
            move(broker, version, f"of all brokers to where they are, at {broker_id}", (target, everywhere))
            move(broker, version, f"to no such dir, at {broker_id}", ("/no-such-dir", {name: here}))
        cluster.call_each("DescribeLogDirs", 5, f"in dir {number}", topics=asked)
        write(cluster, name, replicas)
        cluster.call_each("DescribeLogDirs", 5, f"in dir {number}, with more in it", topics=asked)
    cluster.call_each("DescribeTopicPartitions", 0, "in the end", topics=[{"name": name}])
