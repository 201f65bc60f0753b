"""JoinGroup to a classic group."""

from __future__ import annotations

from typing import Any

import pytest

from pybroker_protocol.errors import ErrorCode
from tests.coordinators.support import Cluster, Reply, subscription

RANGE = ("range", subscription("t"))
ROUND_ROBIN = ("roundrobin", subscription("t"))
STICKY = ("sticky", subscription("t"))


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


# --- refusals --------------------------------------------------------------------------------------------------------


def test_join_without_a_group_id_is_invalid(cluster: Cluster) -> None:
    assert cluster.join(group="").error == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001, -1])
def test_session_timeout_outside_of_the_bounds_is_invalid(cluster: Cluster, session_ms: int) -> None:
    assert cluster.join(session_ms=session_ms).error == ErrorCode.INVALID_SESSION_TIMEOUT


@pytest.mark.parametrize("session_ms", [6_000, 1_800_000])
def test_session_timeout_at_the_bounds_is_valid(cluster: Cluster, session_ms: int) -> None:
    assert cluster.join(session_ms=session_ms).error == ErrorCode.MEMBER_ID_REQUIRED


def test_member_id_that_no_group_knows_is_unknown(cluster: Cluster) -> None:
    reply = cluster.join("nobody")
    assert reply.error == ErrorCode.UNKNOWN_MEMBER_ID
    assert reply.response.member_id == "nobody"
    assert cluster.describe().error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_member_id_that_the_group_does_not_know_is_unknown(cluster: Cluster) -> None:
    cluster.stable_group()
    assert cluster.join("nobody").error == ErrorCode.UNKNOWN_MEMBER_ID


def test_join_of_an_unknown_instance_with_a_member_id_is_unknown(cluster: Cluster) -> None:
    cluster.stable_group()
    assert cluster.join("nobody", instance="i").error == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(("protocol_type", "protocols"), [("", (RANGE,)), ("consumer", ())])
def test_join_without_protocol_type_or_protocols_is_inconsistent(
    cluster: Cluster, protocol_type: str, protocols: tuple[tuple[str, bytes], ...]
) -> None:
    reply = cluster.join(protocol_type=protocol_type, protocols=protocols)
    assert reply.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    # Nobody founded the group, unlike in Kafka.
    assert cluster.describe().error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_join_with_another_protocol_type_is_inconsistent(cluster: Cluster) -> None:
    cluster.stable_group()
    assert cluster.join(protocol_type="connect").error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_join_without_a_protocol_that_all_members_have_is_inconsistent(cluster: Cluster) -> None:
    cluster.stable_group(protocols=(RANGE,))
    assert cluster.join(protocols=(ROUND_ROBIN,)).error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_protocol_that_a_member_names_twice_is_of_one_member(cluster: Cluster) -> None:
    first, _ = cluster.stable_group(protocols=(RANGE, RANGE, ROUND_ROBIN))
    cluster.new_member(protocols=(ROUND_ROBIN,))
    assert cluster.join(protocols=(RANGE,)).error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    rejoined = cluster.join(first[0], protocols=(RANGE, RANGE, ROUND_ROBIN))
    assert (rejoined.error, rejoined.response.protocol_name) == (0, "roundrobin")


def test_full_group_takes_no_new_member_and_keeps_the_old_ones() -> None:
    cluster = Cluster(group_max_size=2)
    (leader, follower), _ = cluster.stable_group(2)
    assert cluster.join().error == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert cluster.join(follower).error == 0
    assert cluster.join(leader).parked


def test_full_join_phase_sheds_who_joins_last() -> None:
    cluster = Cluster(group_max_size=1)
    first = cluster.join(version=3)
    assert first.parked
    assert cluster.join(version=3).error == ErrorCode.GROUP_MAX_SIZE_REACHED


# --- the first members -----------------------------------------------------------------------------------------------


def test_member_without_an_id_gets_one_and_has_to_come_back(cluster: Cluster) -> None:
    reply = cluster.join(version=4)
    assert reply.error == ErrorCode.MEMBER_ID_REQUIRED
    assert reply.response.member_id.startswith("client-")
    assert cluster.describe().members == []
    assert cluster.join(reply.response.member_id, version=4).parked


def test_id_that_was_given_out_belongs_to_a_dynamic_member(cluster: Cluster) -> None:
    given_out = cluster.join().response.member_id
    assert cluster.join(given_out, instance="i").error == ErrorCode.UNKNOWN_MEMBER_ID


def test_before_version_4_a_member_joins_at_once(cluster: Cluster) -> None:
    assert cluster.join(version=3).parked


def test_member_id_that_was_not_used_in_time_is_forgotten(cluster: Cluster) -> None:
    member_id = cluster.join(session_ms=10_000).response.member_id
    cluster.world.advance(10_000)
    assert cluster.join(member_id).error == ErrorCode.UNKNOWN_MEMBER_ID


def test_first_member_leads_and_sees_everybody(cluster: Cluster) -> None:
    leader_id, leader = cluster.new_member()
    follower_id, follower = cluster.new_member()
    cluster.world.advance()
    assert (leader.response.generation_id, leader.response.leader) == (1, leader_id)
    assert {member.member_id for member in leader.response.members} == {leader_id, follower_id}
    assert leader.response.members[0].metadata == subscription("t")
    assert (follower.response.generation_id, follower.response.leader) == (1, leader_id)
    assert follower.response.members == []
    assert (follower.response.protocol_type, follower.response.protocol_name) == ("consumer", "range")


def test_empty_group_waits_for_more_members_before_its_first_generation() -> None:
    cluster = Cluster(group_initial_rebalance_delay_ms=3_000)
    _, first = cluster.new_member()
    cluster.world.advance(2_999)
    assert first.parked
    cluster.world.advance(1)
    assert first.error == 0


def test_each_newcomer_extends_the_first_wait_up_to_the_rebalance_timeout() -> None:
    cluster = Cluster(group_initial_rebalance_delay_ms=3_000)
    replies = [cluster.new_member(rebalance_ms=7_000)[1]]
    for _ in range(2):
        cluster.world.advance(2_500)
        replies.append(cluster.new_member(rebalance_ms=7_000)[1])
    assert all(reply.parked for reply in replies)
    cluster.world.advance(1_999)
    assert all(reply.parked for reply in replies)
    cluster.world.advance(1)
    assert [reply.error for reply in replies] == [0, 0, 0]


def test_first_wait_ends_when_whom_it_waits_for_does_not_come() -> None:
    cluster = Cluster(group_initial_rebalance_delay_ms=60_000)
    asked = cluster.join(session_ms=10_000)
    _, joined = cluster.new_member(session_ms=30_000)
    assert asked.error == ErrorCode.MEMBER_ID_REQUIRED
    cluster.world.advance(9_999)
    assert joined.parked
    cluster.world.advance(1)
    assert joined.error == 0


def test_first_wait_goes_on_when_a_member_leaves() -> None:
    cluster = Cluster(group_initial_rebalance_delay_ms=3_000)
    leaver, _ = cluster.new_member()
    _, stayer = cluster.new_member()
    cluster.leave((leaver, None))
    assert stayer.parked
    cluster.world.advance(6_000)
    assert stayer.error == 0


def test_protocol_with_most_votes_among_the_common_ones_is_selected(cluster: Cluster) -> None:
    joins = [(STICKY, RANGE, ROUND_ROBIN), (ROUND_ROBIN, RANGE), (ROUND_ROBIN, RANGE, STICKY)]
    replies = [cluster.new_member(protocols=protocols)[1] for protocols in joins]
    cluster.world.advance()
    assert {reply.response.protocol_name for reply in replies} == {"roundrobin"}


# --- joining again ---------------------------------------------------------------------------------------------------


def test_members_move_to_another_protocol_one_by_one(cluster: Cluster) -> None:
    old, both, new = (RANGE,), (ROUND_ROBIN, RANGE), (ROUND_ROBIN,)
    members, _ = cluster.stable_group(2, protocols=old)
    spoken: dict[str, tuple[tuple[str, bytes], ...]] = dict.fromkeys(members, old)
    selected = []
    for following in (both, new):
        for member in members:
            spoken[member] = following
            changed = cluster.join(member, protocols=following)
            (other,) = set(members) - {member}
            cluster.join(other, protocols=spoken[other])
            selected.append(changed.response.protocol_name)
            generation = changed.response.generation_id
            assert cluster.sync(members[0], generation, protocol_name=selected[-1]).error == 0
    assert selected == ["range", "roundrobin", "roundrobin", "roundrobin"]
    assert cluster.join(version=3, protocols=old).error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_follower_that_joins_again_unchanged_keeps_its_generation(cluster: Cluster) -> None:
    (_, follower), generation = cluster.stable_group(2)
    reply = cluster.join(follower)
    assert (reply.error, reply.response.generation_id) == (0, generation)
    assert cluster.state() == "Stable"


def test_leader_that_joins_again_rebalances_the_group(cluster: Cluster) -> None:
    (leader, follower), generation = cluster.stable_group(2)
    rejoined = cluster.join(leader)
    assert rejoined.parked
    assert cluster.heartbeat(follower, generation).error == ErrorCode.REBALANCE_IN_PROGRESS
    cluster.join(follower)
    assert rejoined.response.generation_id == generation + 1


def test_member_with_changed_metadata_rebalances_the_group(cluster: Cluster) -> None:
    (_, follower), _ = cluster.stable_group(2)
    assert cluster.join(follower, protocols=(("range", subscription("other")),)).parked
    assert cluster.state() == "PreparingRebalance"


def test_member_that_lost_the_reply_gets_it_again_while_the_leader_assigns(cluster: Cluster) -> None:
    leader_id, leader = cluster.new_member()
    cluster.world.advance()
    again = cluster.join(leader_id)
    assert again.response == leader.response


def test_join_phase_ends_without_members_that_do_not_come(cluster: Cluster) -> None:
    (leader, follower), generation = cluster.stable_group(2, rebalance_ms=20_000, session_ms=60_000)
    rejoined = cluster.join(leader, rebalance_ms=20_000, session_ms=60_000)
    cluster.world.advance(20_000)
    assert rejoined.response.generation_id == generation + 1
    assert [member.member_id for member in rejoined.response.members] == [leader]
    assert cluster.heartbeat(follower, generation).error == ErrorCode.UNKNOWN_MEMBER_ID


def test_another_member_leads_when_the_leader_does_not_come(cluster: Cluster) -> None:
    (_, follower), _ = cluster.stable_group(2, session_ms=120_000)
    rejoined = cluster.join(follower, protocols=(("range", b"new"),), session_ms=120_000)
    cluster.world.advance(60_000)
    assert rejoined.response.leader == follower


def test_request_that_a_client_gave_up_is_answered_when_it_sends_another(cluster: Cluster) -> None:
    (leader, _), _ = cluster.stable_group(2)
    first, second = cluster.join(leader), cluster.join(leader)
    assert first.error == ErrorCode.REBALANCE_IN_PROGRESS
    assert second.parked


def test_version_0_waits_for_others_as_long_as_its_session(cluster: Cluster) -> None:
    first = cluster.join(version=0, rebalance_ms=-1, session_ms=8_000)
    cluster.world.advance()
    member_id = first.response.member_id
    assert cluster.sync(member_id, 1, {}).error == 0
    second = cluster.join(version=0, rebalance_ms=-1, session_ms=8_000)
    cluster.world.advance(7_999)
    assert second.parked
    cluster.world.advance(1)
    assert second.response.leader == second.response.member_id


def test_new_member_that_never_hears_of_its_id_is_given_up_after_five_minutes() -> None:
    cluster = Cluster(group_initial_rebalance_delay_ms=600_000, group_max_session_timeout_ms=900_000)
    joined = cluster.join(version=3, rebalance_ms=900_000, session_ms=6_000)
    cluster.world.advance(299_999)
    assert joined.parked
    cluster.world.advance(1)
    assert joined.error == ErrorCode.UNKNOWN_MEMBER_ID


# --- static members --------------------------------------------------------------------------------------------------


def static_group(cluster: Cluster, *instances: str) -> tuple[list[str], int]:
    joined: list[tuple[str, Reply]] = [("", cluster.join(instance=instance)) for instance in instances]
    cluster.world.advance()
    return cluster.settle([(reply.response.member_id, reply) for _, reply in joined])


def test_static_member_needs_no_second_request(cluster: Cluster) -> None:
    reply = cluster.join(instance="i")
    assert reply.parked
    cluster.world.advance()
    assert reply.response.member_id.startswith("i-")


def test_static_member_that_comes_back_gets_a_new_id_and_disturbs_nobody(cluster: Cluster) -> None:
    (_, follower), generation = static_group(cluster, "a", "b")
    back = cluster.join(instance="b")
    assert (back.error, back.response.generation_id) == (0, generation)
    assert back.response.member_id != follower
    assert cluster.state() == "Stable"
    synced = cluster.sync(back.response.member_id, generation, instance="b")
    assert synced.response.assignment == follower.encode()


def test_static_leader_that_comes_back_is_told_to_skip_the_assignment(cluster: Cluster) -> None:
    static_group(cluster, "a", "b")
    back = cluster.join(instance="a", version=9)
    assert back.response.skip_assignment
    assert back.response.leader == back.response.member_id
    assert len(back.response.members) == 2


def test_static_leader_that_cannot_skip_the_assignment_is_not_told_that_it_leads(cluster: Cluster) -> None:
    (leader, _), _ = static_group(cluster, "a", "b")
    back = cluster.join(instance="a", version=8)
    assert back.response.leader == leader
    assert not back.response.skip_assignment
    assert back.response.members == []


def test_static_member_with_another_protocol_rebalances_the_group(cluster: Cluster) -> None:
    joined = [cluster.join(instance=instance, protocols=(RANGE, ROUND_ROBIN)) for instance in "ab"]
    cluster.world.advance()
    cluster.settle([(reply.response.member_id, reply) for reply in joined])
    assert cluster.join(instance="b", protocols=(ROUND_ROBIN,)).parked
    assert cluster.state() == "PreparingRebalance"


def test_old_id_of_a_replaced_static_member_is_fenced(cluster: Cluster) -> None:
    (_, follower), generation = static_group(cluster, "a", "b")
    cluster.join(instance="b")
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert cluster.join(follower, instance="b").error == fenced
    assert cluster.heartbeat(follower, generation, instance="b").error == fenced
    assert cluster.sync(follower, generation, instance="b").error == fenced
    assert cluster.commit_error(5, follower, generation, instance="b") == fenced
    assert cluster.leave((follower, "b")).response.members[0].error_code == fenced


def test_parked_join_of_a_replaced_static_member_is_fenced(cluster: Cluster) -> None:
    first = cluster.join(instance="a")
    second = cluster.join(instance="a")
    assert first.error == ErrorCode.FENCED_INSTANCE_ID
    cluster.world.advance()
    assert second.error == 0


def test_parked_join_keeps_a_static_member_alive_that_came_back_before_the_group_formed() -> None:
    cluster = Cluster(group_initial_rebalance_delay_ms=60_000)
    cluster.join(instance="a", session_ms=10_000)
    back = cluster.join(instance="a", session_ms=10_000)
    cluster.world.advance(30_000)
    assert back.parked
    cluster.world.advance(30_000)
    assert back.error == 0


def test_static_member_that_comes_back_before_it_synced_syncs_under_its_new_id(cluster: Cluster) -> None:
    how: dict[str, Any] = {"session_ms": 60_000, "rebalance_ms": 20_000}
    leader, follower = [cluster.join(instance=instance, **how) for instance in "ab"]
    cluster.world.advance()
    cluster.sync(leader.response.member_id, 1, {follower.response.member_id: b"share"}, instance="a")
    back = cluster.join(instance="b", **how)
    synced = cluster.sync(back.response.member_id, 1, instance="b")
    assert synced.response.assignment == b"share"
    cluster.world.advance(20_000)
    assert cluster.state() == "Stable"


def test_static_member_that_comes_back_and_never_syncs_is_removed(cluster: Cluster) -> None:
    how: dict[str, Any] = {"session_ms": 60_000, "rebalance_ms": 20_000}
    leader = cluster.join(instance="a", **how)
    cluster.join(instance="b", **how)
    cluster.world.advance()
    cluster.sync(leader.response.member_id, 1, instance="a")
    back = cluster.join(instance="b", **how)
    cluster.world.advance(20_000)
    assert cluster.state() == "PreparingRebalance"
    assert cluster.heartbeat(back.response.member_id, 1, instance="b").error == ErrorCode.UNKNOWN_MEMBER_ID


def test_static_member_that_comes_back_while_the_leader_assigns_rebalances(cluster: Cluster) -> None:
    first = cluster.join(instance="a")
    cluster.world.advance()
    waiting = cluster.join(instance="b")
    assert waiting.parked
    rejoined = cluster.join(first.response.member_id, instance="a")
    follower = waiting.response.member_id
    parked_sync = cluster.sync(follower, rejoined.response.generation_id, instance="b")
    back = cluster.join(instance="b")
    assert parked_sync.error == ErrorCode.FENCED_INSTANCE_ID
    assert back.parked


def test_static_members_are_waited_for_until_their_session_ends(cluster: Cluster) -> None:
    how: dict[str, Any] = {"session_ms": 100_000, "rebalance_ms": 20_000}
    joined = [cluster.join(instance=instance, **how) for instance in "ab"]
    cluster.world.advance()
    (leader, follower), _ = cluster.settle([(reply.response.member_id, reply) for reply in joined])
    rejoined = cluster.join(leader, instance="a", **how)
    cluster.world.advance(20_000)
    assert {member.member_id for member in rejoined.response.members} == {leader, follower}


@pytest.mark.parametrize("rebalance_ms", [0, -2])
def test_static_members_without_a_rebalance_timeout_are_waited_for_without_haste(
    cluster: Cluster, rebalance_ms: int
) -> None:
    how: dict[str, Any] = {"session_ms": 100_000, "rebalance_ms": rebalance_ms}
    joined = [cluster.join(instance=instance, **how) for instance in "ab"]
    cluster.world.turn()  # no further: who has not asked for its assignment in the next one is out
    leader, follower = [reply.response.member_id for reply in joined]
    assert cluster.sync(follower, 1, instance="b").parked
    assert cluster.sync(leader, 1, {leader: b"", follower: b""}, instance="a").error == 0
    cluster.leave((follower, "b"))
    cluster.world.turn()
    assert cluster.state() == "PreparingRebalance"
    assert not cluster.world.timers.is_due
    cluster.world.advance(50_000)
    rejoined = cluster.join(leader, instance="a", **how)
    assert [member.member_id for member in rejoined.response.members] == [leader]
