"""CreateTopics and CreatePartitions where replicas can be placed, and administrators' requests to each broker."""

from __future__ import annotations

from typing import Any

from comparator.cluster import Cluster
from comparator.encoding import Tree
from comparator.registry import cluster_scenario

TIMEOUT_MS = 10_000
TOPIC = 2


def placed(*replicas: list[int], first: int = 0) -> list[Tree]:
    return [{"partition_index": first + index, "broker_ids": ids} for index, ids in enumerate(replicas)]


def create(
    cluster: Cluster, broker_id: int, note: str, version: int = 7, validate_only: bool = False, **topic: Any
) -> None:
    wanted = {"name": "wanted", "num_partitions": -1, "replication_factor": -1, "assignments": [], **topic}
    fields = {"topics": [wanted], "timeout_ms": TIMEOUT_MS, "validate_only": validate_only}
    cluster.call(broker_id, "CreateTopics", version, note, **fields)


PLACEMENTS: dict[str, list[Tree]] = {
    "on one": placed([2]),
    "on all": placed([1, 2, 3], [3, 2, 1]),
    "twice on one": placed([1, 1]),
    "on one that is not there": placed([1, 9]),
    "on a negative one": placed([1, -1]),
    "on nobody": placed([]),
    "on more and less": placed([1, 2], [3]),
    "beginning with partition 1": placed([1], first=1),
    "a partition twice": [*placed([1]), *placed([2])],
    "out of order": placed([1, 2], [2, 3])[::-1],
    "on too many": placed([1, 2, 3, 4]),
}


@cluster_scenario
def topics_are_placed_as_asked(cluster: Cluster) -> None:
    for factor in (-2, -1, 0, 1, 2, 3, 4, 32767):
        create(cluster, 1, f"factor {factor}", validate_only=True, num_partitions=2, replication_factor=factor)
    for note, assignments in PLACEMENTS.items():
        for version in (4, 7):
            create(cluster, 2, note, version, validate_only=True, assignments=assignments)
    create(cluster, 1, "placed and counted", validate_only=True, num_partitions=1, assignments=placed([1]))
    create(cluster, 1, "placed, with a factor", validate_only=True, replication_factor=1, assignments=placed([1]))
    for number, (note, assignments) in enumerate(PLACEMENTS.items()):
        create(cluster, 3, note, name=f"placed-{number}", assignments=assignments)


@cluster_scenario
def replicas_that_the_controller_places(cluster: Cluster) -> None:
    for factor in (-1, 1, 2, 3):
        name = f"spread-{factor}"
        create(cluster, 1, f"factor {factor}", name=name, num_partitions=6, replication_factor=factor)
        seen: list[Any] = []

        def told(name: str = name, seen: list[Any] = seen) -> bool:
            reply = cluster.brokers[2].quietly("Metadata", 12, topics=[{"name": name}], allow_auto_topic_creation=False)
            seen[:] = reply["topics"][0]["partitions"]
            return len(seen) == 6

        cluster.brokers[2].wait_until(told, name)
        cluster.note(
            f"placed by factor {factor}",
            {
                "replicas": [len(set(each["replica_nodes"])) for each in seen],
                "preferred": all(each["leader_id"] == each["replica_nodes"][0] for each in seen),
            },
        )


@cluster_scenario
def partitions_are_placed_as_asked(cluster: Cluster) -> None:
    cluster.prepare_topic("grown", [[1, 2]])

    def grow(note: str, count: int, *replicas: list[int] | None, validate_only: bool = True) -> None:
        given = None if replicas == (None,) else [{"broker_ids": ids} for ids in replicas]
        for version in (1, 3):
            topics = [{"name": "grown", "count": count, "assignments": given}]
            fields = {"topics": topics, "timeout_ms": TIMEOUT_MS, "validate_only": validate_only}
            cluster.call(2, "CreatePartitions", version, note, **fields)

    grow("anywhere", 3, None)
    grow("two", 3, [2, 3], [3, 1])
    grow("too few places", 3, [2, 3])
    grow("too many places", 2, [2, 3], [3, 1])
    grow("no places", 3)
    grow("more replicas", 2, [1, 2, 3])
    grow("fewer replicas", 2, [1])
    grow("different replicas", 3, [1, 2], [3])
    grow("twice on one", 2, [2, 2])
    grow("on one that is not there", 2, [2, 9])
    grow("on nobody", 2, [])
    grow("not more", 1, None)
    grow("for good", 2, [3, 2], validate_only=False)
    cluster.wait_for("grown", [1, 3], [{1, 2}, {2, 3}])
    cluster.call(1, "DescribeTopicPartitions", 0, "grown", topics=[{"name": "grown"}])


@cluster_scenario
def requests_for_the_controller_at_each_broker(cluster: Cluster) -> None:
    for broker_id in cluster.ids:
        name = f"by-{broker_id}"
        create(cluster, broker_id, "a topic", name=name, assignments=placed([1, 2]))
        create(cluster, broker_id, "a topic that is there", name=name, num_partitions=1)
        cluster.wait_for(name, [1], [{1, 2}])
        grown = {"name": name, "count": 2, "assignments": [{"broker_ids": [2, 3]}]}
        cluster.call(broker_id, "CreatePartitions", 3, "one more", topics=[grown], timeout_ms=TIMEOUT_MS)
        cluster.wait_for(name, [1, 2], [{1, 2}, {2, 3}])
        changes = [{"name": "retention.ms", "config_operation": 0, "value": "5000"}]
        resources = [
            {"resource_type": TOPIC, "resource_name": name, "configs": changes},
            {"resource_type": TOPIC, "resource_name": "no-such-topic", "configs": changes},
        ]
        cluster.call(broker_id, "IncrementalAlterConfigs", 1, "of topics", resources=resources)
        replaced = [{**each, "configs": [{"name": "segment.ms", "value": "soon"}]} for each in resources]
        cluster.call(broker_id, "AlterConfigs", 2, "of topics", resources=replaced)
        elected = [{"topic": name, "partitions": [0, 1, 2]}]
        fields = {"election_type": 0, "topic_partitions": elected, "timeout_ms": TIMEOUT_MS}
        cluster.call(broker_id, "ElectLeaders", 2, "of leaders that lead", **fields)
        moved = [{"name": name, "partitions": [{"partition_index": 0, "replicas": None}]}]
        cluster.call(broker_id, "AlterPartitionReassignments", 1, "none", topics=moved, timeout_ms=TIMEOUT_MS)
        cluster.call(broker_id, "ListPartitionReassignments", 0, "none", topics=None, timeout_ms=TIMEOUT_MS)
        levels = [{"feature": "no.such.feature", "max_version_level": 1, "upgrade_type": 1}]
        cluster.call(broker_id, "UpdateFeatures", 1, "an unknown one", timeout_ms=TIMEOUT_MS, feature_updates=levels)
        deleted = [{"name": name, "topic_id": bytes(16)}, {"name": "no-such-topic", "topic_id": bytes(16)}]
        cluster.call(broker_id, "DeleteTopics", 6, "topics", topics=deleted, timeout_ms=TIMEOUT_MS)
