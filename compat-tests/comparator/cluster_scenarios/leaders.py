"""Requests for a partition at its leader, at a follower, and at a broker that has no replica of it."""

from __future__ import annotations

from typing import Any

from harness.batches import BASE_TIMESTAMP_MS, batch

from comparator.cluster import Cluster
from comparator.encoding import Tree
from comparator.registry import cluster_scenario

LEADER, FOLLOWER, STRANGER = 1, 2, 3
EPOCHS = ((-1, "no epoch"), (0, "its epoch"), (9, "a later epoch"))


def prepare(cluster: Cluster, name: str) -> bytes:
    """A topic with a batch, whose only partition is led by ``LEADER`` and followed by ``FOLLOWER``."""
    topic_id = cluster.prepare_topic(name, [[LEADER, FOLLOWER]])
    for broker in cluster.brokers.values():
        broker.wait_until(lambda broker=broker: known(broker, topic_id), f"{name}'s id")  # type: ignore[misc]
    produced = [{"name": name, "partition_data": [{"index": 0, "records": batch(b"one", b"two")}]}]
    reply = cluster.brokers[LEADER].quietly("Produce", 9, acks=-1, timeout_ms=10_000, topic_data=produced)
    assert reply["responses"][0]["partition_responses"][0]["error_code"] == 0, reply
    cluster.brokers[FOLLOWER].wait_until(lambda: followed(cluster, name) == 2, f"{name} to be followed")
    return topic_id


def known(broker: Any, topic_id: bytes) -> bool:
    reply = broker.quietly("Metadata", 12, topics=[{"topic_id": topic_id, "name": None}])
    return bool(reply["topics"][0]["error_code"] == 0)


def followed(cluster: Cluster, name: str) -> int:
    """The high watermark that the follower tells."""
    reply = cluster.brokers[FOLLOWER].quietly("Fetch", 11, **fetch_fields(name, bytes(16), 0))
    watermark: int = reply["responses"][0]["partitions"][0]["high_watermark"]
    return watermark


def fetch_fields(name: str, topic_id: bytes, offset: int, epoch: int = -1, **more: Any) -> dict[str, Tree]:
    asked = {"partition": 0, "current_leader_epoch": epoch, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    topics = [{"topic": name, "topic_id": topic_id, "partitions": [asked]}]
    return {"max_wait_ms": 100, "min_bytes": 1, "max_bytes": 1 << 25, "session_epoch": -1, "topics": topics, **more}


@cluster_scenario
def produce_elsewhere(cluster: Cluster) -> None:
    topic_id = prepare(cluster, "produced-to")
    for version in cluster.versions("Produce"):
        data = {"index": 0, "records": batch(b"v")}
        topic = {"name": "produced-to", "topic_id": topic_id, "partition_data": [data, {**data, "index": 7}]}
        for acks in (-1, 1):
            for broker_id in (FOLLOWER, STRANGER):
                cluster.call(
                    broker_id, "Produce", version, f"acks {acks}", acks=acks, timeout_ms=5000, topic_data=[topic]
                )
    cluster.call(
        LEADER, "Produce", cluster.versions("Produce")[-1], "at last", acks=-1, timeout_ms=5000, topic_data=[topic]
    )


@cluster_scenario
def fetch_elsewhere(cluster: Cluster) -> None:
    topic_id = prepare(cluster, "fetched")
    for version in cluster.versions("Fetch"):
        for broker_id in cluster.ids:
            cluster.call(broker_id, "Fetch", version, "from 0", **fetch_fields("fetched", topic_id, 0))
    for version in (9, 12, 16, 17):
        for epoch, note in EPOCHS:
            for broker_id in cluster.ids:
                fields = fetch_fields("fetched", topic_id, 0, epoch)
                cluster.call(broker_id, "Fetch", version, f"with {note}", **fields)
    for offset in (1, 2, 3, -1):
        for broker_id in cluster.ids:
            cluster.call(broker_id, "Fetch", 12, f"from {offset}", **fetch_fields("fetched", topic_id, offset))


@cluster_scenario
def fetch_by_rack(cluster: Cluster) -> None:
    topic_id = prepare(cluster, "racked")

    def preferred() -> int:
        reply = cluster.brokers[LEADER].quietly("Fetch", 11, **fetch_fields("racked", bytes(16), 0, rack_id="rack-2"))
        found: int = reply["responses"][0]["partitions"][0]["preferred_read_replica"]
        return found

    cluster.brokers[LEADER].wait_until(lambda: preferred() == FOLLOWER, "the replica in rack-2")
    for version in (10, 11, 12, 13, cluster.versions("Fetch")[-1]):
        for rack in ("", "rack-1", "rack-2", "rack-3", "no-such-rack"):
            for broker_id in (LEADER, FOLLOWER):
                fields = fetch_fields("racked", topic_id, 0, rack_id=rack)
                cluster.call(broker_id, "Fetch", version, f"in {rack!r}", **fields)


@cluster_scenario
def offsets_elsewhere(cluster: Cluster) -> None:
    prepare(cluster, "listed")
    for version in cluster.versions("ListOffsets"):
        for timestamp in (-1, -2, BASE_TIMESTAMP_MS):
            asked = [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}]
            topics = [{"name": "listed", "partitions": asked}]
            cluster.call_each("ListOffsets", version, f"at {timestamp}", replica_id=-1, topics=topics)
    for replica_id in (-1, -2):
        for epoch, note in EPOCHS:
            asked = [{"partition_index": 0, "current_leader_epoch": epoch, "timestamp": -1}]
            topics = [{"name": "listed", "partitions": asked}]
            asker = f"{note}, replica {replica_id}"
            cluster.call_each("ListOffsets", 7, asker, replica_id=replica_id, topics=topics)


@cluster_scenario
def epochs_elsewhere(cluster: Cluster) -> None:
    prepare(cluster, "epochs")
    for version in cluster.versions("OffsetForLeaderEpoch"):
        for epoch, note in EPOCHS:
            for replica_id in (-1, -2):
                asked = [{"partition": 0, "current_leader_epoch": epoch, "leader_epoch": 0}]
                topics = [{"topic": "epochs", "partitions": asked}]
                asker = f"{note}, replica {replica_id}"
                cluster.call_each("OffsetForLeaderEpoch", version, asker, replica_id=replica_id, topics=topics)


@cluster_scenario
def what_else_only_a_leader_does(cluster: Cluster) -> None:
    prepare(cluster, "led")
    trimmed = [{"name": "led", "partitions": [{"partition_index": 0, "offset": 1}]}]
    for version in cluster.versions("DeleteRecords"):
        for broker_id in (STRANGER, FOLLOWER, LEADER):
            cluster.call(broker_id, "DeleteRecords", version, "one record", topics=trimmed, timeout_ms=5000)
    asked = [{"name": "led", "partition_indexes": [0, 1]}]
    cluster.call_each("DescribeProducers", 0, "producers", topics=asked)
    marker = {
        "producer_id": 77,
        "producer_epoch": 0,
        "transaction_result": True,
        "topics": [{"name": "led", "partition_indexes": [0]}],
        "coordinator_epoch": 0,
    }
    for broker_id in (FOLLOWER, STRANGER):
        cluster.call(broker_id, "WriteTxnMarkers", 1, "a marker", markers=[marker])


@cluster_scenario
def internal_topics_elsewhere(cluster: Cluster) -> None:
    cluster.prepare_coordinators()
    data = [{"name": "__consumer_offsets", "partition_data": [{"index": 0, "records": batch(b"v", key=b"k")}]}]
    trimmed = [{"name": "__consumer_offsets", "partitions": [{"partition_index": 0, "offset": 0}]}]
    for version in (3, 9, 12):
        cluster.call_each("Produce", version, "internal", acks=-1, timeout_ms=5000, topic_data=data)
    cluster.call_each("DeleteRecords", 2, "internal", topics=trimmed, timeout_ms=5000)
