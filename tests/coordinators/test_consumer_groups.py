"""ConsumerGroupHeartbeat (KIP-848) in virtual time: members join, move on, are fenced, and leave."""

from __future__ import annotations

from typing import Any

import pytest

from pybroker.coordinators.group.consumer.consumer_records import KINDS, ResolvedRegex, regular_expression_record
from pybroker.coordinators.group.group_records import key_kind
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.record_codec import build_batch, decode_records
from pybroker_protocol.records import batches
from tests.coordinators.consumer_support import (
    ASSIGNMENT_INTERVAL_MS,
    JOIN,
    LEAVE,
    LEAVE_STATIC,
    SESSION_MS,
    ConsumerCluster,
    Member,
    assigned,
    replayed,
    settle,
)
from tests.coordinators.support import Reply
from tests.coordinators.test_transactional_offsets import error_inside


@pytest.fixture
def cluster() -> ConsumerCluster:
    made = ConsumerCluster()
    made.set_topics(t=6, u=2)
    return made


def kinds_written(cluster: ConsumerCluster, since: int = 0) -> list[int]:
    """The kinds of the records from an offset on; a tombstone's is negative."""
    log = memoryview(cluster.world.partitions.logs.get(0, bytearray()))
    records = [record for position, _ in batches(log) for record in decode_records(log[position:])]
    return [
        key_kind(record.key or b"") * (1 if record.value is not None else -1)
        for record in records
        if record.offset >= since
    ]


def end(cluster: ConsumerCluster) -> int:
    return cluster.world.partitions.ends.get(0, 0)


def test_members_who_come_and_go_cause_no_lines_of_log(
    cluster: ConsumerCluster, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        for number in range(20):
            assert cluster.enter(f"m{number}", "t").error == 0
            cluster.world.advance(ASSIGNMENT_INTERVAL_MS)
            cluster.beat(f"m{number}", LEAVE)
    assert not caplog.records


# --- joining and reconciling -----------------------------------------------------------------------------------------


def test_first_member_gets_everything_at_epoch_2(cluster: ConsumerCluster) -> None:
    reply = cluster.enter("a", "t", "u")
    assert reply.error == 0
    assert (reply.response.member_id, reply.response.member_epoch) == ("a", 2)
    assert reply.response.heartbeat_interval_ms == 5_000
    assert assigned(reply) == {"t": {0, 1, 2, 3, 4, 5}, "u": {0, 1}}


def test_first_member_writes_what_kafka_writes(cluster: ConsumerCluster) -> None:
    cluster.enter("a", "t")
    assert kinds_written(cluster) == [5, 3, 7, 6, 8]
    assert set(kinds_written(cluster)) <= KINDS


def test_heartbeat_without_news_writes_nothing_and_tells_nothing(cluster: ConsumerCluster) -> None:
    cluster.enter("a", "t")
    appends = cluster.world.partitions.appends
    reply = cluster.beat("a", 2)
    assert (reply.error, reply.response.member_epoch, reply.response.assignment) == (0, 2, None)
    assert cluster.world.partitions.appends == appends


def test_full_heartbeat_is_told_the_assignment_again(cluster: ConsumerCluster) -> None:
    cluster.enter("a", "u")
    reply = cluster.beat("a", 2, topics=["u"], rebalance_ms=60_000, owned={"u": {0, 1}})
    assert assigned(reply) == {"u": {0, 1}}


def test_what_a_member_has_goes_to_another_only_when_it_let_go(cluster: ConsumerCluster) -> None:
    cluster.enter("a", "t")
    cluster.world.advance(ASSIGNMENT_INTERVAL_MS)
    joined = cluster.enter("b", "t")
    assert (joined.response.member_epoch, assigned(joined)) == (3, {})
    told = cluster.beat("a", 2)
    assert told.response.member_epoch == 2
    kept = assigned(told)
    assert kept is not None
    assert len(kept["t"]) == 3
    assert cluster.beat("b", 3).response.assignment is None
    assert cluster.beat("a", 2).response.member_epoch == 2
    assert cluster.describe_consumer().group_state == "Reconciling"
    assert cluster.beat("a", 2, owned=kept).response.member_epoch == 3
    given = assigned(cluster.beat("b", 3))
    assert given is not None
    assert given["t"] == {0, 1, 2, 3, 4, 5} - kept["t"]
    assert cluster.describe_consumer().group_state == "Stable"


def test_newcomers_inside_the_assignment_interval_wait_for_one_common_assignment(cluster: ConsumerCluster) -> None:
    cluster.enter("a", "t")
    assert cluster.enter("b", "t").response.member_epoch == 2
    assert cluster.enter("c", "t").response.member_epoch == 2
    assert cluster.describe_consumer().group_state == "Assigning"
    assert (cluster.group().group_epoch, cluster.group().assignment_epoch) == (4, 2)
    cluster.world.advance(ASSIGNMENT_INTERVAL_MS)
    assert cluster.beat("b", 2).response.member_epoch == 4
    assert cluster.group().assignment_epoch == 4


def test_an_assignment_of_the_future_keeps_no_newcomer_waiting(cluster: ConsumerCluster) -> None:
    cluster.enter("a", "t")
    cluster.group().assignment_timestamp_ms += 1_000_000  # by a coordinator whose clock was ahead
    assert cluster.enter("b", "t").response.member_epoch == 3


def test_group_may_choose_its_own_intervals_inside_the_brokers_bounds(cluster: ConsumerCluster) -> None:
    cluster.set_group_configs(
        "g",
        consumer_assignment_interval_ms=0,
        consumer_heartbeat_interval_ms=7_000,
        consumer_session_timeout_ms=50_000,
    )
    assert cluster.enter("a", "t").response.heartbeat_interval_ms == 7_000
    assert cluster.enter("b", "t").response.member_epoch == 3
    cluster.world.advance(49_999)
    assert set(cluster.group().members) == {"a", "b"}
    cluster.set_group_configs("g", consumer_session_timeout_ms=999_999)
    cluster.beat("a", 2)
    cluster.world.advance(60_000)
    assert not cluster.group().members


def test_server_makes_the_member_id_up_to_version_0(cluster: ConsumerCluster) -> None:
    reply = cluster.enter("", "t", version=0)
    assert reply.error == 0
    assert len(reply.response.member_id) == 22
    assert cluster.enter("", "t", version=1).error == ErrorCode.INVALID_REQUEST


def test_assignor_is_the_one_that_most_members_name(cluster: ConsumerCluster) -> None:
    cluster.enter("a", "t")
    assert cluster.describe_consumer().assignor_name == "uniform"
    cluster.enter("b", "t", assignor="range")
    assert cluster.describe_consumer().assignor_name == "range"
    assert cluster.enter("c", "t", assignor="nope").error == ErrorCode.UNSUPPORTED_ASSIGNOR


def test_full_group_takes_nobody_else() -> None:
    cluster = ConsumerCluster(group_consumer_max_size=1)
    cluster.set_topics(t=1)
    assert cluster.enter("a", "t").error == 0
    assert cluster.enter("b", "t").error == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert cluster.beat("a", 2).error == 0


def test_member_that_subscribes_to_less_gives_it_up_at_once(cluster: ConsumerCluster) -> None:
    cluster.enter("a", "t", "u")
    told = cluster.beat("a", 2, topics=["u"])
    assert assigned(told) == {"u": {0, 1}}
    assert cluster.group().members["a"].pending_revocation
    assert cluster.beat("a", 2, owned={"u": {0, 1}}).response.member_epoch == 2
    cluster.world.advance(ASSIGNMENT_INTERVAL_MS)
    assert cluster.beat("a", 2).response.member_epoch == 3


# --- topics ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topics", "expected"),
    [
        ({"t": 8, "u": 2}, {"t": set(range(8))}),
        ({"t": 6, "u": 2, "v": 1}, {"t": set(range(6)), "v": {0}}),
        ({"u": 2}, {}),
    ],
)
def test_changed_topics_reach_the_group_by_the_next_heartbeat(
    cluster: ConsumerCluster, topics: dict[str, int], expected: dict[str, set[int]]
) -> None:
    member = Member(cluster, "a", "t", "v")
    settle(cluster, member)
    assert member.owned == {"t": set(range(6))}
    cluster.set_topics(**topics)
    settle(cluster, member)
    assert member.owned == expected


def test_topics_of_no_interest_change_nothing(cluster: ConsumerCluster) -> None:
    member = Member(cluster, "a", "t")
    settle(cluster, member)
    appends = cluster.world.partitions.appends
    cluster.set_topics(t=6, u=9, w=1)
    settle(cluster, member)
    assert cluster.world.partitions.appends == appends


# --- regular expressions ---------------------------------------------------------------------------------------------


def test_regular_expression_is_resolved_behind_the_heartbeat(cluster: ConsumerCluster) -> None:
    joined = cluster.enter("a", regex="t|u.*")
    assert (joined.response.member_epoch, assigned(joined)) == (1, {})
    cluster.world.advance()
    assert assigned(cluster.beat("a", 1)) == {"t": {0, 1, 2, 3, 4, 5}, "u": {0, 1}}
    assert cluster.describe_consumer().members[0].subscribed_topic_regex == "t|u.*"


def test_regular_expression_matches_whole_names_that_come_later(cluster: ConsumerCluster) -> None:
    member = Member(cluster, "a", regex="u[0-9]*")
    settle(cluster, member)
    assert member.owned == {"u": {0, 1}}
    cluster.set_topics(t=6, u=2, u7=1, uu=1)
    settle(cluster, member, rounds=15)
    assert member.owned == {"u": {0, 1}, "u7": {0}}
    cluster.set_topics(u7=1)
    settle(cluster, member, rounds=15)
    assert member.owned == {"u7": {0}}


def test_regular_expression_resolved_in_a_version_yet_to_come_is_resolved_anew(cluster: ConsumerCluster) -> None:
    """A Kafka whose directory was taken over counted its metadata by another measure, and far beyond this one."""
    member = Member(cluster, "a", regex="u[0-9]*")
    settle(cluster, member)
    theirs = ResolvedRegex(frozenset({"u"}), 500_000, cluster.world.clock.now_ms())
    record = regular_expression_record("g", "u[0-9]*", theirs)
    cluster.world.partitions.write(0, build_batch([record], timestamp_ms=cluster.world.clock.now_ms()))
    member.cluster = again = ConsumerCluster(cluster.world)
    again.set_topics(t=6, u=2, u7=1)
    settle(again, member, rounds=15)
    assert member.owned == {"u": {0, 1}, "u7": {0}}
    assert again.group().resolved["u[0-9]*"].version == again.metadata.image.epoch


def test_regular_expression_and_names_add_up(cluster: ConsumerCluster) -> None:
    member = Member(cluster, "a", "t", regex="u")
    settle(cluster, member)
    assert member.owned == {"t": set(range(6)), "u": {0, 1}}
    member.beat(regex="")
    settle(cluster, member)
    assert member.owned == {"t": set(range(6))}
    assert not cluster.group().resolved


@pytest.mark.parametrize("regex", ["(", "*a", "a{9999}", "(?=a)", r"\1"])
def test_hostile_regular_expression_is_refused_and_disturbs_nobody(cluster: ConsumerCluster, regex: str) -> None:
    settle(cluster, Member(cluster, "a", "t"))
    appends = cluster.world.partitions.appends
    assert cluster.enter("b", regex=regex).error == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert cluster.world.partitions.appends == appends
    assert set(cluster.group().members) == {"a"}


def test_last_member_takes_its_regular_expression_along(cluster: ConsumerCluster) -> None:
    cluster.enter("a", regex="t")
    cluster.world.advance()
    assert set(cluster.group().resolved) == {"t"}
    cluster.beat("a", LEAVE)
    assert not cluster.group().resolved
    assert cluster.group().metadata_hash == 0


def test_refused_heartbeat_does_not_keep_its_regular_expression_from_being_resolved(cluster: ConsumerCluster) -> None:
    member = Member(cluster, "a", regex="t")
    settle(cluster, member)
    cluster = member.cluster = cluster.with_unknown_state("a")
    cluster.world.advance(10_001)  # the group's expressions are not resolved again sooner
    assert member.beat(regex="u").error == ErrorCode.FENCED_MEMBER_EPOCH
    member.how["regex"] = "u"
    settle(cluster, member)
    assert member.owned == {"u": {0, 1}}


# --- fencing ---------------------------------------------------------------------------------------------------------


def test_epochs_that_the_coordinator_did_not_give_are_fenced(cluster: ConsumerCluster) -> None:
    cluster.enter("a", "t")
    assert cluster.beat("a", 3).error == ErrorCode.FENCED_MEMBER_EPOCH
    assert cluster.beat("a", 1).error == ErrorCode.FENCED_MEMBER_EPOCH
    assert cluster.beat("x", 2).error == ErrorCode.UNKNOWN_MEMBER_ID
    assert cluster.beat("a", 2, group="other").error == ErrorCode.GROUP_ID_NOT_FOUND
    assert cluster.beat("a", 2).error == 0


def test_member_that_lost_a_response_may_be_one_epoch_behind(cluster: ConsumerCluster) -> None:
    cluster.enter("a", "t")
    cluster.world.advance(ASSIGNMENT_INTERVAL_MS)
    cluster.beat("a", 2, topics=["t", "u"])
    assert cluster.group().members["a"].member_epoch == 3
    assert cluster.beat("a", 2).error == ErrorCode.FENCED_MEMBER_EPOCH
    assert cluster.beat("a", 2, owned={"t": {9}}).error == ErrorCode.FENCED_MEMBER_EPOCH
    again = cluster.beat("a", 2, owned={"t": {0, 1}})
    assert (again.error, again.response.member_epoch) == (0, 3)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"rebalance_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"owned": {"t": {0}}}, "TopicPartitions must be empty when (re-)joining."),
        ({"owned": None}, "TopicPartitions must be empty when (re-)joining."),
        ({"topics": None}, "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."),
        ({"instance": " "}, "InstanceId can't be empty."),
        ({"rack": ""}, "RackId can't be empty."),
        ({"group": ""}, "GroupId can't be empty."),
    ],
)
def test_incomplete_join_is_an_invalid_request(cluster: ConsumerCluster, how: dict[str, Any], message: str) -> None:
    complete: dict[str, Any] = {"topics": ["t"], "owned": {}, "rebalance_ms": 60_000}
    reply = cluster.beat("a", JOIN, **{**complete, **how})
    assert (reply.error, reply.response.error_message) == (ErrorCode.INVALID_REQUEST, message)


def test_epochs_below_those_of_leaving_are_invalid(cluster: ConsumerCluster) -> None:
    assert cluster.beat("a", -3).error == ErrorCode.INVALID_REQUEST
    assert cluster.beat("a", LEAVE_STATIC).error == ErrorCode.INVALID_REQUEST


def test_silent_member_is_out_after_its_session(cluster: ConsumerCluster) -> None:
    cluster.enter("a", "t")
    cluster.world.advance(ASSIGNMENT_INTERVAL_MS)
    member = Member(cluster, "b", "t")
    settle(cluster, member, rounds=3)
    cluster.world.advance(SESSION_MS - ASSIGNMENT_INTERVAL_MS - 3_000 - 1)
    assert set(cluster.group().members) == {"a", "b"}
    cluster.beat("b", member.epoch)
    cluster.world.advance(1)
    assert set(cluster.group().members) == {"b"}
    settle(cluster, member)
    assert member.owned == {"t": {0, 1, 2, 3, 4, 5}}


def test_member_that_holds_others_up_is_out_after_its_rebalance_timeout(cluster: ConsumerCluster) -> None:
    cluster.enter("a", "t", rebalance_ms=5_000)
    cluster.world.advance(ASSIGNMENT_INTERVAL_MS)
    cluster.enter("b", "t")
    assert cluster.beat("a", 2).response.assignment is not None
    cluster.world.advance(4_999)
    cluster.beat("a", 2)
    cluster.world.advance(1)
    assert set(cluster.group().members) == {"b"}
    assert cluster.beat("a", 2).error == ErrorCode.UNKNOWN_MEMBER_ID


def test_member_that_let_go_in_time_stays(cluster: ConsumerCluster) -> None:
    cluster.enter("a", "t", rebalance_ms=5_000)
    cluster.world.advance(ASSIGNMENT_INTERVAL_MS)
    cluster.enter("b", "t")
    cluster.beat("a", 2, owned=assigned(cluster.beat("a", 2)))
    cluster.world.advance(6_000)
    assert set(cluster.group().members) == {"a", "b"}


# --- leaving, static members -----------------------------------------------------------------------------------------


def test_member_that_leaves_is_gone_at_once(cluster: ConsumerCluster) -> None:
    cluster.enter("a", "t")
    reply = cluster.beat("a", LEAVE)
    assert (reply.error, reply.response.member_id, reply.response.member_epoch) == (0, "a", LEAVE)
    assert cluster.describe_consumer().group_state == "Empty"
    assert cluster.beat("a", LEAVE).error == ErrorCode.UNKNOWN_MEMBER_ID
    cluster.world.advance(2 * SESSION_MS)


def test_static_member_comes_back_to_what_it_had(cluster: ConsumerCluster) -> None:
    member = Member(cluster, "a", "t", instance="i")
    settle(cluster, member, Member(cluster, "b", "t"))
    had = member.owned
    assert len(had["t"]) == 3
    assert cluster.beat("a", LEAVE_STATIC, instance="i").response.member_epoch == LEAVE_STATIC
    epoch = cluster.group().group_epoch
    back = cluster.enter("a2", "t", instance="i")
    assert (back.error, assigned(back)) == (0, had)
    assert cluster.group().group_epoch == epoch
    assert cluster.beat("a", member.epoch, instance="i").error == ErrorCode.FENCED_INSTANCE_ID


def test_instance_id_in_use_is_not_released(cluster: ConsumerCluster) -> None:
    cluster.enter("a", "t", instance="i")
    assert cluster.enter("b", "t", instance="i").error == ErrorCode.UNRELEASED_INSTANCE_ID
    assert cluster.beat("b", LEAVE, instance="i").error == ErrorCode.FENCED_INSTANCE_ID
    assert cluster.beat("a", LEAVE, instance="j").error == ErrorCode.UNKNOWN_MEMBER_ID
    assert cluster.beat("a", 2, instance="i").error == 0


def test_static_member_that_does_not_come_back_is_out_after_its_session(cluster: ConsumerCluster) -> None:
    cluster.enter("a", "t", instance="i")
    cluster.beat("a", LEAVE_STATIC, instance="i")
    cluster.world.advance(SESSION_MS)
    assert not cluster.group().members


# --- what others ask of the group ------------------------------------------------------------------------------------


def test_commits_need_the_members_epoch(cluster: ConsumerCluster) -> None:
    cluster.enter("a", "t")
    assert cluster.commit_error(5, "a", 2) == 0
    assert cluster.commit_error(5, "a", 3) == ErrorCode.STALE_MEMBER_EPOCH
    assert cluster.commit_error(5, "x", 2) == ErrorCode.UNKNOWN_MEMBER_ID
    assert cluster.commit_error(5, "", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert cluster.commit_error(5, "a", 2, version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert cluster.committed() == {("t", 0): 5}


def test_commit_of_an_older_epoch_holds_for_what_the_member_kept_since(cluster: ConsumerCluster) -> None:
    cluster.enter("a", "t")
    cluster.world.advance(ASSIGNMENT_INTERVAL_MS)
    cluster.beat("a", 2, topics=["t", "u"])
    member = cluster.group().members["a"]
    assert member.member_epoch == 3

    def had(name: str, epoch: int) -> bool:
        return cluster.group().accepts_older_commit("a", epoch, [(name.encode().rjust(16, b"\x01"), 0)])

    assert had("t", 2)
    assert not had("t", 1)
    assert not had("u", 2)
    assert had("u", 3)
    assert not had("t", 4)


def test_transactional_commits_go_by_the_same_epochs_under_classic_names(cluster: ConsumerCluster) -> None:
    cluster.enter("a", "t")
    cluster.world.advance(ASSIGNMENT_INTERVAL_MS)
    cluster.beat("a", 2, topics=["t", "u"])
    assert error_inside(cluster, 5, "a", 3) == 0
    assert error_inside(cluster, 5, "a", 2) == 0
    assert error_inside(cluster, 5, "a", 1) == ErrorCode.ILLEGAL_GENERATION
    assert error_inside(cluster, 5, "a", 4) == ErrorCode.ILLEGAL_GENERATION
    assert error_inside(cluster, 5, "x", 3) == ErrorCode.UNKNOWN_MEMBER_ID
    assert error_inside(cluster, 5) == 0
    assert error_inside(cluster, 5, "a", 2, version=6) == 0
    assert error_inside(cluster, 5, "a", 1, version=6) == ErrorCode.STALE_MEMBER_EPOCH
    assert error_inside(cluster, 5, "a", 4, version=6) == ErrorCode.STALE_MEMBER_EPOCH


def test_another_assignor_of_the_group_begins_a_new_epoch(cluster: ConsumerCluster) -> None:
    cluster.enter("a", "t")
    epoch = cluster.group().group_epoch
    cluster.beat("a", 2, assignor="uniform")  # the default, by its name
    assert cluster.group().group_epoch == epoch
    cluster.beat("a", 2, assignor="range")
    assert cluster.group().group_epoch == epoch + 1
    cluster.beat("a", 3, assignor="range")
    assert cluster.group().group_epoch == epoch + 1


def test_last_member_leaves_nothing_to_assign_and_the_next_one_waits_for_nothing(cluster: ConsumerCluster) -> None:
    cluster.enter("a", "t")
    cluster.enter("b", "t")
    cluster.beat("b", -1)
    group = cluster.group()
    assert group.assignment_epoch < group.group_epoch
    cluster.beat("a", -1)
    group = cluster.group()
    assert group.assignment_epoch == group.group_epoch
    assert cluster.enter("c", "t").response.member_epoch == group.group_epoch


def test_fetch_in_a_members_name_needs_its_epoch(cluster: ConsumerCluster) -> None:
    cluster.enter("a", "t")
    group = cluster.group()
    assert group.check_offset_fetch(None, -1) == 0
    assert group.check_offset_fetch("a", 2) == 0
    assert group.check_offset_fetch("a", 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert group.check_offset_fetch("b", 2) == ErrorCode.UNKNOWN_MEMBER_ID


def test_group_is_listed_and_described_by_its_kind(cluster: ConsumerCluster) -> None:
    from pybroker_protocol.messages.list_groups import ListGroupsRequest

    cluster.enter("a", "t")
    reply = Reply()
    cluster.groups.list_groups(ListGroupsRequest(states_filter=["stable"], types_filter=["Consumer"]), reply.done)
    (listed,) = reply.response.groups
    assert (listed.group_id, listed.group_state, listed.group_type, listed.protocol_type) == (
        "g",
        "Stable",
        "consumer",
        "consumer",
    )
    classic = cluster.describe(version=6)
    assert (classic.error_code, classic.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group g is not a classic group.",
    )
    assert cluster.describe(version=5).group_state == "Dead"
    assert cluster.describe_consumer("none").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert cluster.describe_consumer("").error_code == ErrorCode.INVALID_GROUP_ID


def test_group_is_deleted_when_nobody_is_in_it(cluster: ConsumerCluster) -> None:
    cluster.enter("a", "t")
    cluster.commit(5, "a", 2)

    def delete() -> int:
        reply = Reply()
        cluster.groups.delete_groups(["g"], reply.done)
        return int(reply.response[0].error_code)

    assert delete() == ErrorCode.NON_EMPTY_GROUP
    cluster.beat("a", LEAVE)
    assert delete() == 0
    assert cluster.committed() == {}
    assert cluster.describe_consumer().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert replayed(cluster).groups == {}


def test_empty_group_expires_with_its_last_offset() -> None:
    cluster = ConsumerCluster(offsets_retention_minutes=1, offsets_retention_check_interval_ms=10_000)
    cluster.set_topics(t=1)
    cluster.enter("a", "t")
    cluster.commit(5, "a", 2)
    for _ in range(8):
        cluster.world.advance(20_000)
        cluster.beat("a", 2)
    assert cluster.committed() == {("t", 0): 5}
    cluster.beat("a", LEAVE)
    cluster.world.advance(80_000)
    assert cluster.describe_consumer().error_code == ErrorCode.GROUP_ID_NOT_FOUND


# --- loading and failing ---------------------------------------------------------------------------------------------


def test_reload_brings_everything_back_and_gives_everybody_a_new_session(cluster: ConsumerCluster) -> None:
    members = [Member(cluster, name, "t", regex="u") for name in "abc"]
    settle(cluster, *members)
    again = ConsumerCluster(cluster.world)
    again.metadata.image = cluster.metadata.image
    before, after = cluster.group(), again.group()
    assert (before.members, before.target, before.resolved) == (after.members, after.target, after.resolved)
    assert (before.group_epoch, before.assignment_epoch) == (after.group_epoch, after.assignment_epoch)
    cluster.world.advance(SESSION_MS - 1)
    assert len(again.group().members) == 3
    cluster.world.advance(1)
    assert not again.group().members


def test_failed_append_changes_nothing_and_the_member_tries_again(cluster: ConsumerCluster) -> None:
    cluster.enter("a", "t")
    cluster.world.partitions.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert cluster.enter("b", "t").error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert cluster.beat("a", LEAVE).error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert set(cluster.group().members) == {"a"}
    cluster.world.partitions.append_error = 0
    settle(cluster, Member(cluster, "b", "t"))


def test_response_waits_for_the_commit(cluster: ConsumerCluster) -> None:
    cluster.world.partitions.hold_commits = True
    reply = cluster.enter("a", "t")
    assert reply.parked
    cluster.world.partitions.commit(0)
    assert reply.error == 0
