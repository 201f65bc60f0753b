"""OffsetCommit, OffsetFetch and OffsetDelete."""

from __future__ import annotations

from typing import Any

from comparator.broker import Broker
from comparator.registry import scenario
from comparator.scenarios.groups import join, leave, protocols, sync

UNKNOWN_ID = b"\x01" * 16
FIRST_FETCH_VERSION_WITH_GROUPS = 8


def commit(broker: Broker, version: int, note: str, group: str, topic: str, **more: Any) -> Any:
    """Commit for one partition, as the simple consumer unless a member is given."""
    partitions = [
        {
            "partition_index": more.pop("partition", 0),
            "committed_offset": more.pop("offset", 5),
            "committed_leader_epoch": more.pop("leader_epoch", -1),
            "committed_metadata": more.pop("metadata", "metadata"),
        }
    ]
    topics = [{"name": topic, "topic_id": more.pop("topic_id", bytes(16)), "partitions": partitions}]
    return broker.call("OffsetCommit", version, note, group_id=group, topics=topics, **more)


def fetch(broker: Broker, version: int, note: str, group: str, topics: list[dict[str, Any]] | None, **more: Any) -> Any:
    if version < FIRST_FETCH_VERSION_WITH_GROUPS:
        # The struct of these versions has no topic id at all.
        if topics is not None:
            topics = [{name: value for name, value in topic.items() if name != "topic_id"} for topic in topics]
        return broker.call("OffsetFetch", version, note, group_id=group, topics=topics, **more)
    member: dict[str, Any] = {name: more.pop(name) for name in ("member_id", "member_epoch") if name in more}
    groups = [{"group_id": group, "topics": topics, **member}]
    return broker.call("OffsetFetch", version, note, groups=groups, **more)


@scenario
def the_simple_consumer_in_every_version(broker: Broker) -> None:
    topic_id = broker.prepare_topic("committed", partitions=3)
    for version in broker.versions("OffsetCommit"):
        group = f"simple-v{version}"
        broker.wait_for_coordinator(group)
        commit(broker, version, "commit", group, "committed", topic_id=topic_id, leader_epoch=0)
        commit(broker, version, "another partition", group, "committed", topic_id=topic_id, partition=1, metadata=None)
        commit(broker, version, "unknown partition", group, "committed", topic_id=topic_id, partition=9)
        commit(broker, version, "negative partition", group, "committed", topic_id=topic_id, partition=-1)
        commit(broker, version, "unknown topic", group, "committed-missing", topic_id=UNKNOWN_ID)
        commit(broker, version, "negative offset", group, "committed", topic_id=topic_id, partition=2, offset=-1)
        commit(broker, version, "metadata too long", group, "committed", topic_id=topic_id, metadata="x" * 5000)
        commit(broker, version, "a member of nothing", group, "committed", topic_id=topic_id, member_id="m")
        generation = {"generation_id_or_member_epoch": 7, "topic_id": topic_id}
        commit(broker, version, "a generation of nothing", group, "committed", **generation)
        commit(broker, version, "empty group", "", "committed", topic_id=topic_id)
        broker.call("OffsetCommit", version, "nothing", group_id=group, topics=[])


@scenario
def retention_time_of_old_versions(broker: Broker) -> None:
    broker.prepare_topic("retained")
    broker.wait_for_coordinator("retained")
    for version in (2, 4):
        commit(broker, version, "an hour", "retained", "retained", retention_time_ms=3_600_000)
    fetch(broker, 5, "it is there", "retained", [{"name": "retained", "partition_indexes": [0]}])


@scenario
def fetch_in_every_version(broker: Broker) -> None:
    topic_id = broker.prepare_topic("fetched", partitions=3)
    broker.wait_for_coordinator("fetcher")
    broker.wait_for_coordinator("fetcher-missing")
    commit(broker, 9, "partition 0", "fetcher", "fetched", leader_epoch=0)
    commit(broker, 9, "partition 1", "fetcher", "fetched", partition=1, offset=0, metadata="")
    for version in broker.versions("OffsetFetch"):
        known = [{"name": "fetched", "topic_id": topic_id, "partition_indexes": [0, 1, 2, 9]}]
        unknown = [{"name": "fetched-missing", "topic_id": UNKNOWN_ID, "partition_indexes": [0]}]
        fetch(broker, version, "committed or not", "fetcher", known)
        fetch(broker, version, "unknown topic", "fetcher", unknown)
        fetch(broker, version, "unknown group", "fetcher-missing", known)
        fetch(broker, version, "empty group", "", known)
        fetch(broker, version, "no topics", "fetcher", [])
        no_partitions = [{"name": "fetched", "topic_id": topic_id, "partition_indexes": []}]
        fetch(broker, version, "no partitions", "fetcher", no_partitions)
        if version >= 2:
            fetch(broker, version, "all topics", "fetcher", None)
            fetch(broker, version, "all topics of an unknown group", "fetcher-missing", None)
        if version >= 7:
            fetch(broker, version, "stable ones", "fetcher", known, require_stable=True)
        if version >= 9:
            fetch(broker, version, "as a member of a classic group", "fetcher", known, member_id="m", member_epoch=3)
    twice = [{"group_id": group, "topics": None} for group in ("fetcher", "fetcher-missing")]
    broker.call("OffsetFetch", 8, "two groups", groups=twice)
    broker.call("OffsetFetch", 8, "no groups", groups=[])


@scenario
def members_commit(broker: Broker) -> None:
    broker.prepare_topic("members-commit")
    group = "members-commit"
    broker.wait_for_coordinator(group)
    member = join(broker, 9, "member", group)
    name, generation = member["member_id"], member["generation_id"]
    for version in (2, 7, 9):
        early = {"member_id": name, "generation_id_or_member_epoch": generation}
        commit(broker, version, "before the sync", group, group, **early)
    sync(broker, 5, "member", group, member)
    for version in (2, 7, 9):
        commits: dict[str, dict[str, Any]] = {
            "member": {"member_id": name, "generation_id_or_member_epoch": generation},
            "older generation": {"member_id": name, "generation_id_or_member_epoch": generation - 1},
            "later generation": {"member_id": name, "generation_id_or_member_epoch": generation + 1},
            "stranger": {"member_id": "stranger", "generation_id_or_member_epoch": generation},
            "simple consumer beside members": {},
            "no generation": {"member_id": name},
            "no member": {"generation_id_or_member_epoch": generation},
        }
        for note, fields in commits.items():
            commit(broker, version, note, group, group, **fields)
    instance = {"member_id": name, "generation_id_or_member_epoch": generation, "group_instance_id": "one"}
    commit(broker, 9, "an instance nobody is", group, group, **instance)
    leave(broker, 5, "leave", group, name)
    commit(broker, 9, "after leaving", group, group, member_id=name, generation_id_or_member_epoch=generation)
    commit(broker, 9, "simple consumer of an empty group", group, group)
    commit(broker, 9, "generation of an empty group", group, group, generation_id_or_member_epoch=generation)


@scenario
def delete_offsets(broker: Broker) -> None:
    broker.prepare_topic("forgotten", partitions=2)
    group = "forgetful"
    broker.wait_for_coordinator(group)
    broker.wait_for_coordinator("forgetful-missing")
    commit(broker, 9, "to be deleted", group, "forgotten")

    def delete(note: str, group: str, topic: str, *partitions: int) -> None:
        topics = [{"name": topic, "partitions": [{"partition_index": index} for index in partitions]}]
        broker.call("OffsetDelete", 0, note, group_id=group, topics=topics)

    delete("unknown group", "forgetful-missing", "forgotten", 0)
    delete("empty group", "", "forgotten", 0)
    delete("unknown topic", group, "forgotten-missing", 0)
    delete("unknown partition", group, "forgotten", 9)
    delete("one there, one not", group, "forgotten", 0, 1)
    fetch(broker, 9, "deleted", group, [{"name": "forgotten", "topic_id": bytes(16), "partition_indexes": [0]}])
    broker.call("OffsetDelete", 0, "nothing", group_id=group, topics=[])


@scenario
def deleting_offsets_of_a_subscribed_topic(broker: Broker) -> None:
    broker.prepare_topic("subscribed")
    broker.prepare_topic("not-subscribed")
    group = "subscriber"
    broker.wait_for_coordinator(group)
    member = join(broker, 9, "member", group, protocols=protocols("range", topic="subscribed"))
    sync(broker, 5, "member", group, member)
    generation = {"member_id": member["member_id"], "generation_id_or_member_epoch": member["generation_id"]}
    for topic in ("subscribed", "not-subscribed"):
        commit(broker, 9, topic, group, topic, **generation)
    topics = [{"name": name, "partitions": [{"partition_index": 0}]} for name in ("subscribed", "not-subscribed")]
    broker.call("OffsetDelete", 0, "one of them is in use", group_id=group, topics=topics)
    leave(broker, 5, "leave", group, member["member_id"])
    broker.call("OffsetDelete", 0, "none is in use", group_id=group, topics=topics)


@scenario
def offsets_go_with_their_topic(broker: Broker) -> None:
    broker.prepare_topic("short-lived")
    group = "short-lived"
    broker.wait_for_coordinator(group)
    commit(broker, 9, "commit", group, "short-lived")
    broker.quietly("DeleteTopics", 6, topics=[{"name": "short-lived"}], timeout_ms=10_000)

    def is_forgotten() -> bool:
        reply = broker.quietly("OffsetFetch", 8, groups=[{"group_id": group, "topics": None}])
        return not reply["groups"][0]["topics"]

    broker.wait_until(is_forgotten, "the offsets to be deleted")
    fetch(broker, 9, "nothing left", group, None)


@scenario
def a_group_of_nothing_but_offsets(broker: Broker) -> None:
    broker.prepare_topic("lonely")
    group = "lonely"
    broker.wait_for_coordinator(group)
    commit(broker, 9, "commit", group, "lonely")
    for version in broker.versions("DescribeGroups"):
        broker.call("DescribeGroups", version, groups=[group])
    for version in broker.versions("ListGroups"):
        listed = broker.quietly("ListGroups", version)
        broker.note(f"listed in version {version}", [entry for entry in listed["groups"] if entry["group_id"] == group])
    member = join(broker, 9, "a member comes", group)
    sync(broker, 5, "a member comes", group, member)
    leave(broker, 5, "and goes", group, member["member_id"])
    topics = [{"name": "lonely", "topic_id": bytes(16), "partition_indexes": [0]}]
    fetch(broker, 9, "the offsets are still there", group, topics)
    broker.call("DeleteGroups", 2, groups_names=[group])
    fetch(broker, 9, "the offsets went with the group", group, topics)


@scenario
def commits_of_one_group_do_not_show_in_another(broker: Broker) -> None:
    topic_id = broker.prepare_topic("shared", partitions=2)
    for number, group in enumerate(("sharing-a", "sharing-b")):
        broker.wait_for_coordinator(group)
        commit(broker, 9, group, group, "shared", offset=10 + number)
        commit(broker, 10, f"{group} by id", group, "", topic_id=topic_id, partition=1, offset=20 + number)
    for version in (8, 9, 10):
        groups = [{"group_id": group, "topics": None} for group in ("sharing-a", "sharing-b")]
        broker.call("OffsetFetch", version, "both at once", groups=groups)
    commit(broker, 9, "an older offset is taken as well", "sharing-a", "shared", offset=3)
    fetch(broker, 9, "the last one counts", "sharing-a", None)
