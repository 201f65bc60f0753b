"""What two brokers say while the third is stopped, and what is not for strangers."""

from __future__ import annotations

from functools import partial
from typing import Any

from harness.batches import batch

from comparator.broker import Broker
from comparator.cluster import Cluster
from comparator.cluster_scenarios.leaders import fetch_fields
from comparator.encoding import Tree
from comparator.registry import cluster_scenario

ABSENT = 3
TIMEOUT_MS = 3_000
# Of brokers among each other: AlterPartition, Envelope, BrokerRegistration, BrokerHeartbeat, UnregisterController,
# AllocateProducerIds, AssignReplicasToDirs, Vote, FetchSnapshot.
BROKERS_KEYS = (4, 5, 6, 7, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73)


def produce(cluster: Cluster, broker_id: int, name: str, note: str, acks: int, version: int = 9) -> Any:
    data = [{"name": name, "partition_data": [{"index": 0, "records": batch(b"v")}]}]
    return cluster.call(
        broker_id, "Produce", version, f"{name}, {note}", acks=acks, timeout_ms=TIMEOUT_MS, topic_data=data
    )


@cluster_scenario
def too_few_in_sync(cluster: Cluster) -> None:
    cluster.prepare_topic("pair", [[1, ABSENT]])
    cluster.prepare_topic("trio", [[1, 2, ABSENT]])
    cluster.prepare_topic("wants-three", [[1, 2]], min_insync_replicas="3")
    cluster.prepare_topic("single", [[1]])
    names = ("pair", "trio", "wants-three", "single")
    for name in names:
        for acks in (-1, 1):
            produce(cluster, 1, name, f"all there, acks {acks}", acks)
    with cluster.stopped(ABSENT):
        cluster.wait_for("pair", [1], [{1}])
        cluster.wait_for("trio", [1], [{1, 2}])
        for version in (3, 9, 12):
            for name in names:
                for acks in (-1, 1):
                    produce(cluster, 1, name, f"one gone, acks {acks}", acks, version)
        for name in names:
            asked = [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}]
            topics = [{"name": name, "partitions": asked}]
            cluster.call(1, "ListOffsets", 7, f"the end of {name}", replica_id=-1, topics=topics)
            cluster.call(1, "Fetch", 11, f"of {name}", **fetch_fields(name, bytes(16), 0))
    cluster.wait_for("pair", [1], [{1, ABSENT}])
    produce(cluster, 1, "pair", "all back, acks -1", -1)


@cluster_scenario
def a_broker_is_missed(cluster: Cluster) -> None:
    missed = cluster.prepare_topic("missed", [[ABSENT]])
    cluster.prepare_topic("missed-in-part", [[1, ABSENT], [ABSENT, 2], [2, 1]])
    names: list[Tree] = [{"name": "missed"}, {"name": "missed-in-part"}]
    with cluster.stopped(ABSENT):
        cluster.wait_for("missed", [-1], [None])
        cluster.wait_for("missed-in-part", [1, 2, 2], [{1}, {2}, {1, 2}])
        for version in cluster.versions("Metadata"):
            cluster.call(1, "Metadata", version, "missed", topics=names, allow_auto_topic_creation=False)
        for broker_id in cluster.running():
            cluster.call(broker_id, "DescribeTopicPartitions", 0, "missed", topics=names)
            for version in cluster.versions("DescribeCluster"):
                cluster.call(broker_id, "DescribeCluster", version, "brokers", endpoint_type=1)
            cluster.call(
                broker_id, "DescribeCluster", 2, "with fenced ones", endpoint_type=1, include_fenced_brokers=True
            )
            for version in (9, 12):
                produce(cluster, broker_id, "missed", "which nobody leads", 1, version)
            cluster.call(broker_id, "Fetch", 12, "which nobody leads", **fetch_fields("missed", missed, 0))
            asked = [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}]
            topics = [{"name": "missed", "partitions": asked}]
            cluster.call(broker_id, "ListOffsets", 7, "which nobody leads", replica_id=-1, topics=topics)


@cluster_scenario
def topics_are_made_while_a_broker_is_missed(cluster: Cluster) -> None:
    with cluster.stopped(ABSENT):
        for broker_id in cluster.running():
            for factor in (2, 3, 4):
                topic = {"name": f"made-{broker_id}-{factor}", "num_partitions": 2, "replication_factor": factor}
                cluster.call(broker_id, "CreateTopics", 7, f"factor {factor}", topics=[topic], timeout_ms=TIMEOUT_MS)
            for note, ids in (("on it alone", [ABSENT]), ("on it, too", [ABSENT, 1]), ("on others", [1, 2])):
                assignments = [{"partition_index": 0, "broker_ids": ids}]
                topic = {
                    "name": f"placed-{broker_id}-{len(ids)}-{ids[0]}",
                    "num_partitions": -1,
                    "replication_factor": -1,
                    "assignments": assignments,
                }
                cluster.call(broker_id, "CreateTopics", 7, note, topics=[topic], timeout_ms=TIMEOUT_MS)
        cluster.wait_for("placed-1-2-3", [1], [{1}])
        cluster.call(2, "DescribeTopicPartitions", 0, "on it, too", topics=[{"name": "placed-1-2-3"}])
        grown = {"name": "placed-1-2-1", "count": 2, "assignments": [{"broker_ids": [ABSENT, 1]}]}
        cluster.call(1, "CreatePartitions", 3, "on it, too", topics=[grown], timeout_ms=TIMEOUT_MS)
        grown = {"name": "placed-1-2-1", "count": 3, "assignments": [{"broker_ids": [ABSENT, ABSENT]}]}
        cluster.call(1, "CreatePartitions", 3, "on it alone", topics=[grown], timeout_ms=TIMEOUT_MS)


@cluster_scenario
def strangers_are_no_brokers(cluster: Cluster) -> None:
    for broker_id in cluster.ids:
        for key in BROKERS_KEYS:
            frame = key.to_bytes(2, "big") + bytes(2) + (7).to_bytes(4, "big") + b"\xff\xff\x00"
            cluster.brokers[broker_id].call_frame(f"key {key}, at {broker_id}", frame)


@cluster_scenario
def nobody_is_unregistered_who_is_not_there(cluster: Cluster) -> None:
    for broker_id in (0, 9, -1):
        for number, asked in cluster.brokers.items():
            asked.call("UnregisterBroker", 0, f"broker {broker_id}, at {number}", broker_id=broker_id)


@cluster_scenario
def a_broker_that_is_gone_is_unregistered(cluster: Cluster) -> None:
    """Its replicas stay assigned to it, and once it is back it is what it was."""
    cluster.prepare_topic("unregistered", [[1, 2, ABSENT], [ABSENT, 1, 2]])
    cluster.prepare_topic("unregistered-alone", [[ABSENT]])
    names = [{"name": "unregistered"}, {"name": "unregistered-alone"}]

    def told(note: str, *ids: int) -> None:
        for broker_id in ids:
            fields = {"endpoint_type": 1, "include_fenced_brokers": True}
            cluster.call(broker_id, "DescribeCluster", 2, f"{note}, fenced ones", **fields)
            cluster.call(broker_id, "DescribeTopicPartitions", 0, note, topics=names)
            cluster.call(broker_id, "Metadata", 12, note, topics=names, allow_auto_topic_creation=False)

    def is_gone(asked: Broker) -> bool:
        reply = asked.quietly("DescribeCluster", 2, endpoint_type=1, include_fenced_brokers=True)
        return [each["broker_id"] for each in reply["brokers"] if each["broker_id"] == ABSENT] == []

    with cluster.stopped(ABSENT):
        cluster.wait_for("unregistered", [1, 1], [{1, 2}, {1, 2}])
        cluster.wait_for("unregistered-alone", [-1], [None])
        told("stopped", 1, 2)
        cluster.brokers[2].call("UnregisterBroker", 0, "that is gone, at 2", broker_id=ABSENT)
        for broker_id in (1, 2):
            asked = cluster.brokers[broker_id]
            asked.wait_until(partial(is_gone, asked), "one broker less")
            asked.call("UnregisterBroker", 0, f"that is unregistered, at {broker_id}", broker_id=ABSENT)
        told("unregistered", 1, 2)
        for replicas in ([1, ABSENT], [ABSENT]):
            topic = {
                "name": f"on-the-unregistered-{len(replicas)}",
                "num_partitions": -1,
                "replication_factor": -1,
                "assignments": [{"partition_index": 0, "broker_ids": replicas}],
            }
            cluster.call(1, "CreateTopics", 7, f"on {replicas}", topics=[topic], timeout_ms=TIMEOUT_MS)
    cluster.wait_for("unregistered", [1, 1], [{1, 2, ABSENT}, {1, 2, ABSENT}])
    cluster.wait_for("unregistered-alone", [ABSENT], [{ABSENT}])
    told("back", *cluster.ids)
