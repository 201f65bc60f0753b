"""Reassignments and elections: what is refused, what ends at once, and what waits for a broker that is not there."""

from __future__ import annotations

from typing import Any

from comparator.cluster import Cluster
from comparator.registry import cluster_scenario

TIMEOUT_MS = 10_000
PREFERRED, UNCLEAN = 0, 1
# A broker that is not there for a while.
ABSENT = 3


def move(
    cluster: Cluster,
    broker_id: int,
    note: str,
    *moved: tuple[str, int, list[int] | None],
    version: int = 1,
    **more: Any,
) -> None:
    topics: dict[str, list[Any]] = {}
    for name, index, replicas in moved:
        topics.setdefault(name, []).append({"partition_index": index, "replicas": replicas})
    wanted = [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
    cluster.call(broker_id, "AlterPartitionReassignments", version, note, topics=wanted, timeout_ms=TIMEOUT_MS, **more)


def listing(cluster: Cluster, note: str, name: str, *indexes: int) -> None:
    topics = [{"name": name, "partition_indexes": list(indexes)}]
    cluster.call_each("ListPartitionReassignments", 0, note, topics=topics, timeout_ms=TIMEOUT_MS)


def described(cluster: Cluster, note: str, name: str) -> None:
    for broker_id in cluster.running():
        cluster.call(broker_id, "DescribeTopicPartitions", 0, note, topics=[{"name": name}])


def elect(cluster: Cluster, broker_id: int, note: str, kind: int, name: str, *indexes: int) -> None:
    for version in (1, 2):
        topics = [{"topic": name, "partitions": list(indexes)}]
        fields = {"election_type": kind, "topic_partitions": topics, "timeout_ms": TIMEOUT_MS}
        cluster.call(broker_id, "ElectLeaders", version, note, **fields)


@cluster_scenario
def reassignments_that_are_refused(cluster: Cluster) -> None:
    cluster.prepare_topic("stays", [[1, 2], [2, 3]])
    for broker_id, version in ((1, 0), (2, 1), (3, 1)):
        for note, replicas in {
            "to no such broker": [1, 9],
            "to the same twice": [2, 2],
            "to nobody": [],
            "to a negative one": [-1],
            "nothing under way": None,
        }.items():
            move(cluster, broker_id, note, ("stays", 0, replicas), version=version)
        move(cluster, broker_id, "unknown ones", ("stays", 2, [1, 2]), ("no-such-topic", 0, [1, 2]), version=version)
        move(cluster, broker_id, "to where it is", ("stays", 0, [1, 2]), version=version)
    for note, replicas in (("fewer", [1]), ("more", [1, 2, 3]), ("as many", [1, 2])):
        move(cluster, 2, f"{note}, as many as before", ("stays", 0, replicas), allow_replication_factor_change=False)
    listing(cluster, "nothing", "stays", 0, 1, 2)
    described(cluster, "after all", "stays")


@cluster_scenario
def reassignments_that_end_by_themselves(cluster: Cluster) -> None:
    cluster.prepare_topic("goes", [[1, 2]])
    for note, replicas, leader in (
        ("another order", [2, 1], 1),
        ("another follower", [1, 3], 1),
        ("one more", [1, 3, 2], 1),
        ("other brokers", [2, 3], 2),
        ("one alone", [3], 3),
        ("three", [1, 2, 3], 3),
    ):
        move(cluster, 2, note, ("goes", 0, replicas))
        cluster.wait_for("goes", [leader], [set(replicas)])
        cluster.wait_for_replicas("goes", [replicas])
        listing(cluster, note, "goes", 0)
        for broker_id in cluster.ids:
            asked = [{"name": "goes"}]
            cluster.call(broker_id, "Metadata", 6, note, topics=asked, allow_auto_topic_creation=False)


@cluster_scenario
def reassignments_that_wait_for_a_broker(cluster: Cluster) -> None:
    cluster.prepare_topic("waits", [[1, 2], [2, 1]])
    with cluster.stopped(ABSENT):
        for note, replicas in (("one more", [1, 2, ABSENT]), ("another", [1, ABSENT]), ("in place", [2, ABSENT])):
            move(cluster, 2, note, ("waits", 0, replicas))
            cluster.wait_for_replicas("waits", [{1, 2, ABSENT}, {1, 2}])
            for broker_id in cluster.running():
                topics = [{"name": "waits", "partition_indexes": [0, 1]}]
                cluster.call(broker_id, "ListPartitionReassignments", 0, note, topics=topics, timeout_ms=TIMEOUT_MS)
            described(cluster, note, "waits")
            move(cluster, 1, f"{note}, taken back", ("waits", 0, None))
            cluster.wait_for_replicas("waits", [{1, 2}, {1, 2}])
            described(cluster, f"{note}, taken back", "waits")
            move(cluster, 1, f"{note}, taken back twice", ("waits", 0, None))
        move(cluster, 1, "to it alone", ("waits", 1, [ABSENT]))
        cluster.wait_for_replicas("waits", [{1, 2}, {1, 2, ABSENT}])
        described(cluster, "to it alone", "waits")
    cluster.wait_for("waits", [1, ABSENT], [{1, 2}, {ABSENT}])
    listing(cluster, "at last", "waits", 0, 1)


@cluster_scenario
def preferred_leaders_are_elected(cluster: Cluster) -> None:
    cluster.prepare_topic("prefers", [[1, 2, 3], [2, 3, 1]])
    elect(cluster, 1, "of those that lead", PREFERRED, "prefers", 0, 1, 2)
    move(cluster, 1, "another order", ("prefers", 0, [2, 1, 3]))
    cluster.wait_for("prefers", [1, 2], [{1, 2, 3}, {1, 2, 3}])
    elect(cluster, 3, "of one that does not lead", PREFERRED, "prefers", 0)
    cluster.wait_for("prefers", [2, 2], [{1, 2, 3}, {1, 2, 3}])
    described(cluster, "after the election", "prefers")
    for broker_id in cluster.ids:
        elect(cluster, broker_id, "unclean, where one leads", UNCLEAN, "prefers", 0, 1)
        elect(cluster, broker_id, "of no such type", 7, "prefers", 0)


@cluster_scenario
def nobody_is_elected_who_is_not_there(cluster: Cluster) -> None:
    cluster.prepare_topic("alone", [[ABSENT]])
    cluster.prepare_topic("not-alone", [[ABSENT, 1]])
    with cluster.stopped(ABSENT):
        cluster.wait_for("alone", [-1], [None])
        cluster.wait_for("not-alone", [1], [{1}])
        for broker_id in cluster.running():
            for name in ("alone", "not-alone"):
                elect(cluster, broker_id, f"preferred of {name}", PREFERRED, name, 0)
                elect(cluster, broker_id, f"unclean of {name}", UNCLEAN, name, 0)
        for name in ("alone", "not-alone"):
            described(cluster, f"{name} meanwhile", name)
    cluster.wait_for("alone", [ABSENT], [{ABSENT}])
    cluster.wait_for("not-alone", [1], [{1, ABSENT}])
    elect(cluster, 1, "once it is back", PREFERRED, "not-alone", 0)
    cluster.wait_for("not-alone", [ABSENT], [{1, ABSENT}])
    described(cluster, "once it is back", "not-alone")
