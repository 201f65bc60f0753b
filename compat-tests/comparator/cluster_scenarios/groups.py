"""Groups at their coordinators, whichever broker their members have asked: both protocols, from join to leave."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from comparator.broker import Broker
from comparator.cluster import GROUP, OFFSETS, Cluster
from comparator.cluster_scenarios.losses import ABSENT
from comparator.registry import cluster_scenario
from comparator.scenarios import classic_groups, consumer_groups
from comparator.scenarios.groups import protocols

# Each broker leads one partition.
SPREAD = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
# Sessions outlive a broker that is stopped and started on a busy machine; of consumers brokers allow no longer ones.
PATIENT_MS, PATIENT_CONSUMER_MS = 300_000, 60_000


def found_from_each(cluster: Cluster, group: str) -> list[Broker]:
    """The group's coordinator as each broker names it."""
    coordinators = []
    for broker_id in cluster.running():
        reply = cluster.call(broker_id, "FindCoordinator", 6, group, key_type=GROUP, coordinator_keys=[group])
        coordinators.append(cluster.brokers[reply["coordinators"][0]["node_id"]])
        coordinators[-1].wait_for_coordinator(group)
    return coordinators


def classic_members(cluster: Cluster, group: str, topic: str, join_version: int) -> list[classic_groups.Member]:
    """A member by each broker, none of which has joined."""
    subscription = protocols(topic=topic)
    return [
        classic_groups.Member(coordinator, group, f"member {number}", None, join_version, subscription, PATIENT_MS)
        for number, coordinator in enumerate(found_from_each(cluster, group), start=1)
    ]


def consumers(cluster: Cluster, group: str, topic: str) -> list[consumer_groups.Member]:
    """The same of the new protocol; the group assigns as often as it wants."""
    coordinators = found_from_each(cluster, group)
    consumer_groups.prepare(coordinators[0], group, session_timeout_ms=PATIENT_CONSUMER_MS)
    return [
        consumer_groups.Member(coordinator, group, f"member {number}", [topic])
        for number, coordinator in enumerate(coordinators, start=1)
    ]


def committed_offsets(topic: str, topic_id: bytes, offset: int, *indexes: int) -> list[dict[str, Any]]:
    partitions = [{"partition_index": index, "committed_offset": offset + index} for index in indexes]
    return [{"name": topic, "topic_id": topic_id, "partitions": partitions}]


def fetch_offsets(broker: Broker, note: str, group: str, topic: str, topic_id: bytes, **who: Any) -> None:
    """What is committed, in every version; only the newer ones say who asks."""
    asked = {"name": topic, "partition_indexes": [0, 1, 2]}
    for version in broker.versions("OffsetFetch"):
        if version < 8:
            broker.call("OffsetFetch", version, note, group_id=group, topics=[asked])
        else:
            groups = [{"group_id": group, "topics": [{**asked, "topic_id": topic_id}], **who}]
            broker.call("OffsetFetch", version, note, groups=groups)


def list_everywhere(cluster: Cluster, note: str, group: str) -> None:
    for broker_id in cluster.running():
        for version in cluster.versions("ListGroups"):
            listed = cluster.brokers[broker_id].quietly("ListGroups", version)
            own = [each for each in listed["groups"] if each["group_id"] == group]
            cluster.note(f"{note}, listed by {broker_id}, v{version}", {"groups": own})


def commit(
    member: consumer_groups.Member, version: int, topic: str, topic_id: bytes, offset: int, *indexes: int
) -> None:
    """A member of a consumer group commits for partitions, with its epoch."""
    offsets = committed_offsets(topic, topic_id, offset, *indexes)
    fields = {"generation_id_or_member_epoch": member.epoch, "member_id": member.name}
    member.broker.call("OffsetCommit", version, f"of {member.name}", group_id=member.group, topics=offsets, **fields)


def go_on_as_two(leader: classic_groups.Member, follower: classic_groups.Member) -> None:
    """Who is left joins anew, the follower last, and shares the partitions."""
    rejoining = leader.begin_join()
    follower.join()
    leader.joined(rejoining)
    classic_groups.share(leader, follower)


@contextmanager
def another_coordinator(cluster: Cluster) -> Iterator[Broker]:
    """The broker that coordinates what ``ABSENT`` did, while that is stopped; at the end all is as before."""
    with cluster.stopped(ABSENT):
        cluster.wait_for(OFFSETS, [1, 2, 1], [{1, 2}] * 3)
        yield cluster.brokers[1]
    cluster.prepare_coordinators()


@cluster_scenario
def classic_groups_at_their_coordinators(cluster: Cluster) -> None:
    topic = "shared"
    cluster.prepare_coordinators()
    topic_id = cluster.prepare_topic(topic, SPREAD)
    names = cluster.names_by_coordinator("sharing", GROUP)
    for (broker_id, group), join_version in zip(names.items(), (4, 5, 9), strict=True):
        coordinator = cluster.brokers[broker_id]
        first, second, third = classic_members(cluster, group, topic, join_version)
        first.join()
        classic_groups.share(first)
        classic_groups.form(first, second, third)
        for index, member in enumerate((first, second, third)):
            member.heartbeat()
            for version in coordinator.versions("OffsetCommit"):
                offsets = committed_offsets(topic, topic_id, 10 * version, index)
                fields = {"generation_id_or_member_epoch": member.generation, "member_id": member.member_id}
                note = f"of {member.name}"
                coordinator.call("OffsetCommit", version, note, group_id=group, topics=offsets, **fields)
        for version in coordinator.versions("DescribeGroups"):
            coordinator.call("DescribeGroups", version, "three members", groups=[group])
        list_everywhere(cluster, "three members", group)
        fetch_offsets(coordinator, "three members", group, topic, topic_id)
        third.leave()
        second.heartbeat("hears that one left")
        go_on_as_two(first, second)
        for member in (first, second):
            member.heartbeat("of the next generation")
            member.commit(topic, 7)
            member.leave()
        coordinator.call("DescribeGroups", 5, "nobody is left", groups=[group])
        list_everywhere(cluster, "nobody is left", group)
        deleted = [{"name": topic, "partitions": [{"partition_index": 1}]}]
        coordinator.call("OffsetDelete", 0, "of partition 1", group_id=group, topics=deleted)
        fetch_offsets(coordinator, "nobody is left", group, topic, topic_id)
        coordinator.call("DeleteGroups", 2, "nobody is left", groups_names=[group])
        list_everywhere(cluster, "deleted", group)


@cluster_scenario
def consumer_groups_at_their_coordinators(cluster: Cluster) -> None:
    topic = "consumed"
    cluster.prepare_coordinators()
    topic_id = cluster.prepare_topic(topic, SPREAD)
    for broker_id, group in cluster.names_by_coordinator("consuming", GROUP).items():
        coordinator = cluster.brokers[broker_id]
        first, second, third = consumers(cluster, group, topic)
        first.join()
        second.join()
        consumer_groups.settle(first, second)
        third.join()
        consumer_groups.settle(first, second, third)
        for version in coordinator.versions("ConsumerGroupDescribe"):
            consumer_groups.describe(coordinator, group, "three members", version)
        list_everywhere(cluster, "three members", group)
        for member in (first, second, third):
            indexes = [index for each in member.owned for index in each["partitions"]]
            for version in (9, 10):
                commit(member, version, topic, topic_id, 10 * version, *indexes)
            who = {"member_id": member.name, "member_epoch": member.epoch}
            fetch_offsets(coordinator, f"for {member.name}", group, topic, topic_id, **who)
        third.leave()
        consumer_groups.settle(first, second)
        consumer_groups.describe(coordinator, group, "two members")
        second.leave()
        first.leave()
        consumer_groups.describe(coordinator, group, "nobody is left")
        list_everywhere(cluster, "nobody is left", group)
        fetch_offsets(coordinator, "nobody is left", group, topic, topic_id)
        coordinator.call("DeleteGroups", 2, "nobody is left", groups_names=[group])


@cluster_scenario
def classic_groups_outlive_their_coordinator(cluster: Cluster) -> None:
    topic = "shared-on"
    cluster.prepare_coordinators()
    topic_id = cluster.prepare_topic(topic, SPREAD)
    group = cluster.names_by_coordinator("sharing-on", GROUP)[ABSENT]
    first, second, third = classic_members(cluster, group, topic, classic_groups.JOIN)
    first.join()
    classic_groups.share(first)
    classic_groups.form(first, second)
    first.commit(topic, 5)
    with another_coordinator(cluster) as coordinator:
        found_from_each(cluster, group)
        for member in (first, second, third):
            member.go_to(coordinator)
        coordinator.call("DescribeGroups", 5, "its state came along", groups=[group])
        fetch_offsets(coordinator, "its state came along", group, topic, topic_id)
        list_everywhere(cluster, "its state came along", group)
        for member in (first, second):
            member.heartbeat("goes on")
            member.begin_sync(assignments=[]).reply()
            member.commit(topic, 6)
        first.heartbeat("of a generation before", generation_id=first.generation - 1)
        joining = third.begin_join()
        classic_groups.wait_for_members(first, 3)
        rejoining = first.begin_join()
        second.join()
        first.joined(rejoining)
        third.joined(joining)
        classic_groups.share(first, second, third)
        # Who has left is written down with the next generation, and not before.
        second.leave()
        for member in (first, third):
            member.heartbeat("hears that one left")
        go_on_as_two(first, third)
        first.commit(topic, 7)
    found_from_each(cluster, group)
    for member in (first, third):
        member.go_to(cluster.brokers[ABSENT])
        member.heartbeat("goes on at the first coordinator")
    cluster.call(ABSENT, "DescribeGroups", 5, "back at the first coordinator", groups=[group])
    fetch_offsets(cluster.brokers[ABSENT], "back at the first coordinator", group, topic, topic_id)
    first.leave()
    third.leave()


@cluster_scenario
def consumer_groups_outlive_their_coordinator(cluster: Cluster) -> None:
    topic = "consumed-on"
    cluster.prepare_coordinators()
    topic_id = cluster.prepare_topic(topic, SPREAD)
    group = cluster.names_by_coordinator("consuming-on", GROUP)[ABSENT]
    first, second, third = consumers(cluster, group, topic)
    first.join()
    second.join()
    consumer_groups.settle(first, second)
    commit(first, 10, topic, topic_id, 5, 0)
    with another_coordinator(cluster) as coordinator:
        found_from_each(cluster, group)
        for member in (first, second, third):
            member.broker = coordinator
        consumer_groups.describe(coordinator, group, "its state came along")
        list_everywhere(cluster, "its state came along", group)
        for member in (first, second):
            member.beat("goes on")
            who = {"member_id": member.name, "member_epoch": member.epoch}
            fetch_offsets(coordinator, f"for {member.name}", group, topic, topic_id, **who)
            commit(member, 10, topic, topic_id, 6, 0)
        third.join()
        consumer_groups.settle(first, second, third)
        consumer_groups.describe(coordinator, group, "one has come")
        second.leave()
    found_from_each(cluster, group)
    for member in (first, third):
        member.broker = cluster.brokers[ABSENT]
    consumer_groups.settle(first, third)
    consumer_groups.describe(cluster.brokers[ABSENT], group, "back at the first coordinator")
    fetch_offsets(cluster.brokers[ABSENT], "back at the first coordinator", group, topic, topic_id)
    first.leave()
    third.leave()
