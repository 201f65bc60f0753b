"""OffsetCommit, OffsetFetch and OffsetDelete."""

from __future__ import annotations

from typing import Any

from comparator.wire import Tree

from conformance.wire.asking import GROUP, UNKNOWN_ID, Wire
from conformance.wire.test_groups import Member, wait_for_members
from pybroker_protocol.errors import ErrorCode

NOTHING = (-1, -1, "")
SIMPLE: dict[str, Any] = {"member_id": "", "generation_id_or_member_epoch": -1}
BY_ID = 10


def commit(wire: Wire, group: str, topic: str, offset: int = 5, version: int = 9, **more: Any) -> int:
    """Commit for one partition, as the simple consumer unless a member is given; the partition's error code."""
    partition = {
        "partition_index": more.pop("index", 0),
        "committed_offset": offset,
        "committed_leader_epoch": more.pop("leader_epoch", -1),
        "committed_metadata": more.pop("metadata", "metadata"),
    }
    asked = {"name": topic, "topic_id": more.pop("topic_id", bytes(16)), "partitions": [partition]}
    reply = wire.ask("OffsetCommit", version, group_id=group, topics=[asked], **{**SIMPLE, **more})
    error: int = reply["topics"][0]["partitions"][0]["error_code"]
    return error


def as_member(member: Member, generation: int | None = None) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.instance,
        "generation_id_or_member_epoch": member.generation if generation is None else generation,
    }


def fetch_topics(wire: Wire, group: str, topics: Tree, **more: Any) -> Tree:
    (found,) = wire.ask("OffsetFetch", 9, groups=[{"group_id": group, "topics": topics}], **more)["groups"]
    assert found["error_code"] == 0, found
    return found["topics"]


def fetch_offset(wire: Wire, group: str, topic: str, index: int = 0) -> tuple[int, int, str]:
    """(offset, leader epoch, metadata) of one partition."""
    (found,) = fetch_topics(wire, group, [{"name": topic, "partition_indexes": [index]}])
    (partition,) = found["partitions"]
    assert partition["error_code"] == 0, partition
    return partition["committed_offset"], partition["committed_leader_epoch"], partition["metadata"]


# --- what is kept ----------------------------------------------------------------------------------------------------


def test_nothing_committed_is_minus_one(wire: Wire, group: str, topic: str) -> None:
    assert fetch_offset(wire, group, topic) == NOTHING
    commit(wire, group, topic)
    assert fetch_offset(wire, group, topic, 7) == NOTHING


def test_a_commit_keeps_its_metadata_and_its_leader_epoch(wire: Wire, group: str, topic: str) -> None:
    assert commit(wire, group, topic, 5, leader_epoch=3, metadata="up to here") == 0
    assert fetch_offset(wire, group, topic) == (5, 3, "up to here")
    assert commit(wire, group, topic, 6, metadata=None) == 0
    assert fetch_offset(wire, group, topic) == (6, -1, "")


def test_the_last_commit_counts_even_if_it_is_lower(wire: Wire, group: str, topic: str) -> None:
    for offset in (7, 9, 3):
        commit(wire, group, topic, offset)
    assert fetch_offset(wire, group, topic)[0] == 3


def test_commits_that_are_alike_are_kept_one_by_one(wire: Wire, group: str, topic: str) -> None:
    """A broker that learns from requests that repeat themselves must still keep each of them."""
    member = Member(wire, group)
    member.form()
    for offset in range(30):
        assert commit(wire, group, topic, offset, leader_epoch=offset, **as_member(member)) == 0
        assert fetch_offset(wire, group, topic)[:2] == (offset, offset)
    for generation in (member.generation - 1, member.generation + 1):
        error = commit(wire, group, topic, 99, **as_member(member, generation))
        assert error == ErrorCode.ILLEGAL_GENERATION
    member.leave()
    assert commit(wire, group, topic, 99, **as_member(member)) == ErrorCode.UNKNOWN_MEMBER_ID
    assert fetch_offset(wire, group, topic)[0] == 29


def test_null_topics_are_all_and_no_topics_are_none(wire: Wire, group: str) -> None:
    topics = sorted(wire.topic() for _ in range(2))
    for topic in topics:
        commit(wire, group, topic)
    assert sorted(found["name"] for found in fetch_topics(wire, group, None)) == topics
    assert fetch_topics(wire, group, []) == []


def test_groups_are_fetched_together_and_kept_apart(wire: Wire, group: str, topic: str) -> None:
    other = wire.name_of(GROUP)
    commit(wire, group, topic, 1)
    commit(wire, other, topic, 2)
    asked = [{"group_id": each, "topics": None} for each in (group, other)]
    replied = wire.ask("OffsetFetch", 8, groups=asked)["groups"]
    found = {each["group_id"]: each["topics"][0]["partitions"][0]["committed_offset"] for each in replied}
    assert found == {group: 1, other: 2}


def test_offsets_are_committed_and_fetched_by_topic_id(wire: Wire, group: str, topic: str) -> None:
    topic_id = wire.topic_id(topic)
    assert commit(wire, group, "", 4, version=BY_ID, topic_id=topic_id) == 0
    assert commit(wire, group, "", 4, version=BY_ID, topic_id=UNKNOWN_ID) == ErrorCode.UNKNOWN_TOPIC_ID
    asked = [{"topic_id": each, "partition_indexes": [0]} for each in (topic_id, UNKNOWN_ID)]
    (replied,) = wire.ask("OffsetFetch", BY_ID, groups=[{"group_id": group, "topics": asked}])["groups"]
    found = {each["topic_id"]: each["partitions"][0] for each in replied["topics"]}
    assert (found[topic_id]["committed_offset"], found[topic_id]["error_code"]) == (4, 0)
    assert found[UNKNOWN_ID]["error_code"] == ErrorCode.UNKNOWN_TOPIC_ID


# --- what is refused -------------------------------------------------------------------------------------------------


def test_partitions_that_are_not_there_are_refused_one_by_one(wire: Wire, group: str, topic: str) -> None:
    partitions = [{"partition_index": index, "committed_offset": 1, "committed_metadata": ""} for index in (0, 9)]
    reply = wire.ask("OffsetCommit", 9, group_id=group, topics=[{"name": topic, "partitions": partitions}], **SIMPLE)
    codes = {found["partition_index"]: found["error_code"] for found in reply["topics"][0]["partitions"]}
    assert codes == {0: ErrorCode.NONE, 9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert commit(wire, group, "missing-topic") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert fetch_offset(wire, group, topic)[0] == 1


def test_metadata_has_a_bound(wire: Wire, group: str, topic: str) -> None:
    assert commit(wire, group, topic, metadata="x" * 4096) == 0
    assert commit(wire, group, topic, 6, metadata="x" * 4097) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert fetch_offset(wire, group, topic)[0] == 5


def test_a_stale_member_does_not_commit(wire: Wire, group: str, topic: str) -> None:
    member = Member(wire, group)
    member.form()
    assert commit(wire, group, topic, **as_member(member)) == 0
    for generation in (member.generation - 1, member.generation + 1):
        error = commit(wire, group, topic, 9, **as_member(member, generation))
        assert error == ErrorCode.ILLEGAL_GENERATION
    stranger = {**as_member(member), "member_id": "stranger"}
    assert commit(wire, group, topic, 9, **stranger) == ErrorCode.UNKNOWN_MEMBER_ID
    assert fetch_offset(wire, group, topic)[0] == 5


def test_the_simple_consumer_commits_only_where_nobody_is_a_member(wire: Wire, group: str, topic: str) -> None:
    assert commit(wire, group, topic) == 0
    member = Member(wire, group)
    member.form()
    assert commit(wire, group, topic, 9) == ErrorCode.UNKNOWN_MEMBER_ID
    member.leave()
    assert commit(wire, group, topic, 10) == 0
    assert fetch_offset(wire, group, topic)[0] == 10


def test_a_generation_of_a_group_that_is_not_there(wire: Wire, group: str, topic: str) -> None:
    claimed: dict[str, Any] = {"member_id": "m", "generation_id_or_member_epoch": 7}
    assert commit(wire, group, topic, version=8, **claimed) == ErrorCode.ILLEGAL_GENERATION
    assert commit(wire, group, topic, version=9, **claimed) == ErrorCode.GROUP_ID_NOT_FOUND


def test_commits_during_a_rebalance(wire: Wire, group: str, topic: str) -> None:
    first, second = Member(wire, group), Member(wire, group)
    first.form()
    second.get_id()
    second.send_join()
    wait_for_members(wire, group, 2)
    # While members join, the generation before still holds; while the leader assigns, none does.
    assert commit(wire, group, topic, 1, **as_member(first)) == 0
    first.send_join()
    for member in (first, second):
        member.joined()
    assert commit(wire, group, topic, 2, **as_member(first)) == ErrorCode.REBALANCE_IN_PROGRESS
    assert fetch_offset(wire, group, topic)[0] == 1


def test_a_replaced_static_member_does_not_commit(wire: Wire, group: str, topic: str) -> None:
    static = Member(wire, group, instance="one")
    static.form()
    Member(wire, group, instance="one").join()
    assert commit(wire, group, topic, **as_member(static)) == ErrorCode.FENCED_INSTANCE_ID


# --- what is deleted -------------------------------------------------------------------------------------------------


def delete(wire: Wire, group: str, topic: str) -> tuple[int, int]:
    """(the error code of the request, that of its partition); the latter is 0 where none is answered."""
    asked = [{"name": topic, "partitions": [{"partition_index": 0}]}]
    reply = wire.ask("OffsetDelete", 0, group_id=group, topics=asked)
    codes = [found["error_code"] for each in reply["topics"] for found in each["partitions"]]
    return reply["error_code"], codes[0] if codes else 0


def test_a_deleted_offset_is_gone(wire: Wire, group: str, topic: str) -> None:
    assert delete(wire, group, topic) == (ErrorCode.GROUP_ID_NOT_FOUND, 0)
    commit(wire, group, topic)
    other = wire.topic()
    commit(wire, group, other)
    assert delete(wire, group, topic) == (0, 0)
    assert fetch_offset(wire, group, topic) == NOTHING
    assert [found["name"] for found in fetch_topics(wire, group, None)] == [other]


def test_offsets_of_a_topic_that_is_read_are_not_deleted(wire: Wire, group: str) -> None:
    topic = wire.topic()
    member = Member(wire, group)
    member.topic = topic
    member.form()
    commit(wire, group, topic, **as_member(member))
    assert delete(wire, group, topic) == (0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
    assert fetch_offset(wire, group, topic)[0] == 5
    member.leave()
    assert delete(wire, group, topic) == (0, 0)


def test_offsets_go_with_their_group(wire: Wire, group: str, topic: str) -> None:
    commit(wire, group, topic)
    wire.ask("DeleteGroups", 2, groups_names=[group])
    assert fetch_offset(wire, group, topic) == NOTHING
