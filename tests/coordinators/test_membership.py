"""SyncGroup, Heartbeat, LeaveGroup, and members that fall silent."""

from __future__ import annotations

import pytest

from pybroker_protocol.errors import ErrorCode
from tests.coordinators.support import Cluster


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


# --- SyncGroup -------------------------------------------------------------------------------------------------------


def test_followers_wait_for_the_leader_and_get_their_assignment(cluster: Cluster) -> None:
    joined = [cluster.new_member() for _ in range(3)]
    cluster.world.advance()
    leader, *followers = [member_id for member_id, _ in joined]
    parked = [cluster.sync(follower, 1) for follower in followers]
    assert all(reply.parked for reply in parked)
    assignments = {member_id: member_id.encode() for member_id in (leader, *followers)}
    own = cluster.sync(leader, 1, assignments)
    assert own.response.assignment == leader.encode()
    assert [reply.response.assignment for reply in parked] == [follower.encode() for follower in followers]
    assert (own.response.protocol_type, own.response.protocol_name) == ("consumer", "range")
    assert cluster.state() == "Stable"


def test_member_without_an_assignment_gets_an_empty_one(cluster: Cluster) -> None:
    (leader, follower) = [cluster.new_member()[0] for _ in range(2)]
    cluster.world.advance()
    parked = cluster.sync(follower, 1)
    cluster.sync(leader, 1, {leader: b"all", "nobody": b"lost"})
    assert parked.response.assignment == b""


def test_sync_without_protocol_is_not_compared(cluster: Cluster) -> None:
    (member,), generation = cluster.stable_group()
    assert cluster.sync(member, generation, protocol_type=None, protocol_name=None).error == 0


def test_second_sync_of_a_member_answers_the_first(cluster: Cluster) -> None:
    follower = [cluster.new_member()[0] for _ in range(2)][1]
    cluster.world.advance()
    first, second = cluster.sync(follower, 1), cluster.sync(follower, 1)
    assert first.error == ErrorCode.REBALANCE_IN_PROGRESS
    assert second.parked


def test_rebalance_sends_waiting_followers_back_to_join(cluster: Cluster) -> None:
    leader, follower = [cluster.new_member()[0] for _ in range(2)]
    cluster.world.advance()
    parked = cluster.sync(follower, 1)
    assert cluster.join(leader, protocols=(("range", b"changed"),)).parked
    assert parked.error == ErrorCode.REBALANCE_IN_PROGRESS


def test_members_that_never_ask_for_their_assignment_are_removed(cluster: Cluster) -> None:
    how = {"rebalance_ms": 20_000, "session_ms": 60_000}
    leader, silent = [cluster.new_member(**how)[0] for _ in range(2)]
    cluster.world.advance()
    cluster.sync(leader, 1, {})
    cluster.world.advance(19_999)
    assert cluster.state() == "Stable"
    cluster.world.advance(1)
    assert cluster.state() == "PreparingRebalance"
    assert cluster.heartbeat(silent, 1).error == ErrorCode.UNKNOWN_MEMBER_ID
    assert cluster.heartbeat(leader, 1).error == ErrorCode.REBALANCE_IN_PROGRESS


# --- sessions --------------------------------------------------------------------------------------------------------


def test_silent_member_is_removed_when_its_session_ends(cluster: Cluster) -> None:
    (leader, silent), generation = cluster.stable_group(2, session_ms=10_000)
    for _ in range(4):
        cluster.world.advance(2_499)
        assert cluster.heartbeat(leader, generation).error == 0
    cluster.world.advance(4)
    assert cluster.heartbeat(leader, generation).error == ErrorCode.REBALANCE_IN_PROGRESS
    assert cluster.heartbeat(silent, generation).error == ErrorCode.UNKNOWN_MEMBER_ID


def test_group_is_empty_when_the_last_session_ends(cluster: Cluster) -> None:
    _, generation = cluster.stable_group(2)
    cluster.world.advance(10_000)
    assert cluster.state() == "PreparingRebalance" or cluster.state() == "Empty"
    cluster.world.advance(60_000)
    assert cluster.state() == "Empty"
    assert generation == 1


def test_commit_renews_the_session(cluster: Cluster) -> None:
    (member,), generation = cluster.stable_group(session_ms=10_000)
    for offset in range(5):
        cluster.world.advance(9_999)
        assert cluster.commit_error(offset, member, generation) == 0
    assert cluster.state() == "Stable"


def test_parked_join_keeps_a_known_member_alive(cluster: Cluster) -> None:
    (leader, follower), generation = cluster.stable_group(2, session_ms=10_000, rebalance_ms=60_000)
    parked = cluster.join(leader, session_ms=10_000, rebalance_ms=60_000)
    for _ in range(5):
        cluster.world.advance(9_000)
        assert cluster.heartbeat(follower, generation).error == ErrorCode.REBALANCE_IN_PROGRESS
    assert parked.parked
    cluster.join(follower)
    assert parked.error == 0


def test_session_begins_anew_when_the_join_phase_ends(cluster: Cluster) -> None:
    (leader, follower), generation = cluster.stable_group(2, session_ms=10_000)
    cluster.join(leader)
    cluster.world.advance(9_000)
    cluster.heartbeat(follower, generation)
    cluster.world.advance(9_000)
    cluster.join(follower)
    cluster.world.advance(9_999)
    assert cluster.heartbeat(leader, generation + 1).error == 0


def test_heartbeats_set_no_timers_of_their_own(cluster: Cluster) -> None:
    (member,), generation = cluster.stable_group()
    before = len(cluster.world.timers.pending)
    for _ in range(100):
        cluster.world.advance(10)
        cluster.heartbeat(member, generation)
    assert len(cluster.world.timers.pending) == before


# --- LeaveGroup ------------------------------------------------------------------------------------------------------


def test_leaving_rebalances_the_others_at_once(cluster: Cluster) -> None:
    (leader, follower), generation = cluster.stable_group(2)
    assert cluster.leave((leader, None)).response.members[0].error_code == 0
    assert cluster.heartbeat(follower, generation).error == ErrorCode.REBALANCE_IN_PROGRESS
    rejoined = cluster.join(follower)
    assert (rejoined.response.leader, rejoined.response.generation_id) == (follower, generation + 1)


def test_group_that_everybody_left_is_empty_at_the_next_generation(cluster: Cluster) -> None:
    members, generation = cluster.stable_group(2)
    cluster.leave(*((member, None) for member in members))
    assert cluster.state() == "Empty"
    again = cluster.restart()
    _, following = again.stable_group()
    assert following == generation + 2


def test_members_leave_each_with_an_answer_of_its_own(cluster: Cluster) -> None:
    (member, other), _ = cluster.stable_group(2)
    response = cluster.leave((member, None), ("stranger", None), ("", "instance"), (other, None)).response
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert [answer.error_code for answer in response.members] == [0, unknown, unknown, 0]
    assert [answer.member_id for answer in response.members] == [member, "stranger", "", other]


def test_static_member_is_removed_by_its_instance_id_alone(cluster: Cluster) -> None:
    joined = cluster.join(instance="i")
    cluster.world.advance()
    cluster.settle([(joined.response.member_id, joined)])
    answer = cluster.leave(("", "i")).response.members[0]
    assert (answer.error_code, answer.member_id, answer.group_instance_id) == (0, "", "i")
    assert cluster.state() == "Empty"


def test_pending_member_may_leave(cluster: Cluster) -> None:
    member_id = cluster.join().response.member_id
    assert cluster.leave((member_id, None)).response.members[0].error_code == 0
    assert cluster.join(member_id).error == ErrorCode.UNKNOWN_MEMBER_ID


def test_join_phase_does_not_wait_for_a_pending_member_that_left(cluster: Cluster) -> None:
    (leader,), _ = cluster.stable_group()
    pending = cluster.join().response.member_id
    rejoined = cluster.join(leader)
    assert rejoined.parked
    cluster.leave((pending, None))
    assert rejoined.error == 0


def test_parked_requests_of_a_member_that_is_removed_are_answered(cluster: Cluster) -> None:
    (leader, follower), _ = cluster.stable_group(2)
    parked = cluster.join(leader)
    cluster.leave((leader, None))
    assert parked.error == ErrorCode.UNKNOWN_MEMBER_ID
    assert cluster.join(follower).error == 0
