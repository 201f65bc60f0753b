"""Moving partitions to other brokers (KIP-455): how a move begins and ends, is changed, taken back and refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.cluster.decisions.operations import PartitionResult, Reassignment, WantedReassignments
from pybroker.cluster.decisions.reassigned_replicas import completed, original_replicas, reassigned, reverted
from pybroker.cluster.decisions.reassignments import ReassignmentRules, alter_reassignments
from pybroker.cluster.image.cluster_image import (
    NO_LEADER,
    RECOVERING,
    BrokerRegistration,
    ClusterImage,
    ImageBuilder,
    PartitionImage,
    TopicImage,
)
from pybroker.config.resources import BROKER, TOPIC, UNCLEAN_LEADER_ELECTION
from pybroker_protocol import codec
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from pybroker_protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.steps import end_of

from .members import Members

BROKERS = range(1, 6)
RULES = ReassignmentRules(unclean_elections=False)
ELR = "eligible.leader.replicas.version"


def directory(broker: int) -> bytes:
    return bytes(15) + bytes((broker + 100,))


def partition(replicas: tuple[int, ...], isr: tuple[int, ...], leader: int, **more: Any) -> PartitionImage:
    return PartitionImage(replicas, isr, leader, 5, 7, tuple(map(directory, replicas)), **more)


class Cluster:
    """Five brokers and the topic "t" with one partition."""

    def __init__(self, state: PartitionImage, *fenced: int) -> None:
        self.builder = ImageBuilder(ClusterImage())
        for broker in BROKERS:
            registration = BrokerRegistration(
                broker, 0, bytes(16), {}, None, broker in fenced, False, (directory(broker),)
            )
            self.builder.put_broker(registration)
        self.builder.put_topic(TopicImage("t", b"t" * 16, (state,)))

    @property
    def state(self) -> PartitionImage:
        return self.builder.view().topics_by_name["t"].partitions[0]

    def move(
        self, replicas: tuple[int, ...] | None, *, topic: str = "t", index: int = 0, rules: ReassignmentRules = RULES
    ) -> PartitionResult:
        ((_, (result,)),) = self.alter([(topic, [Reassignment(index, replicas)])], rules)
        return result

    def alter(self, wanted: WantedReassignments, rules: ReassignmentRules) -> list[tuple[str, list[PartitionResult]]]:
        results = end_of(alter_reassignments(self.builder, wanted, rules))
        assert (results.error_code, results.error_message) == (0, None)
        return results.topics

    def refused(self, replicas: tuple[int, ...] | None, **options: Any) -> int:
        before = self.state
        result = self.move(replicas, **options)
        assert self.state is before
        assert (result.error_message is None) == (result.error_code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        return result.error_code


# --- how it begins ----------------------------------------------------------------------------------------------------


def test_new_replicas_are_added_before_the_old_ones_go() -> None:
    cluster = Cluster(partition((1, 2, 3), (1, 2, 3), 1))
    assert cluster.move((4, 2, 5)).error_code == 0
    state = cluster.state
    assert state.replicas == (4, 2, 5, 1, 3)
    assert (state.adding_replicas, state.removing_replicas) == ((4, 5), (1, 3))
    assert (state.isr, state.leader, state.leader_epoch, state.partition_epoch) == ((1, 2, 3), 1, 5, 8)


def test_each_replica_has_its_log_dir() -> None:
    cluster = Cluster(partition((1, 2), (1, 2), 1))
    cluster.move((3, 2))
    state = cluster.state
    assert [state.directory(replica) for replica in state.replicas] == [*map(directory, (3, 2, 1))]


def test_another_order_of_the_same_replicas_is_there_at_once() -> None:
    cluster = Cluster(partition((1, 2, 3), (1, 2, 3), 1))
    cluster.move((3, 2, 1))
    state = cluster.state
    assert (state.replicas, state.isr, state.leader, state.leader_epoch) == ((3, 2, 1), (1, 2, 3), 1, 5)
    assert not state.adding_replicas
    assert not state.removing_replicas
    assert state.directories == tuple(map(directory, (3, 2, 1)))


def test_fewer_replicas_are_there_at_once_where_those_that_stay_are_in_sync() -> None:
    cluster = Cluster(partition((1, 2, 3), (1, 2, 3), 3))
    cluster.move((1, 2))
    state = cluster.state
    assert (state.replicas, state.isr, state.leader, state.leader_epoch) == ((1, 2), (1, 2), 1, 6)


def test_fewer_replicas_wait_for_those_that_stay_to_be_in_sync() -> None:
    cluster = Cluster(partition((1, 2, 3), (3,), 3))
    cluster.move((1, 2))
    state = cluster.state
    assert (state.replicas, state.isr, state.leader, state.removing_replicas) == ((1, 2, 3), (3,), 3, (3,))


def test_a_wish_for_what_is_there_changes_nothing() -> None:
    before = partition((1, 2, 3), (1, 2), 1)
    cluster = Cluster(before)
    assert cluster.move((1, 2, 3)).error_code == 0
    assert cluster.state is before


def test_a_partition_without_a_leader_can_be_moved_and_waits_for_one() -> None:
    cluster = Cluster(partition((1, 2), (2,), NO_LEADER), 2)
    cluster.move((3, 2))
    assert (cluster.state.leader, cluster.state.isr, cluster.state.leader_epoch) == (NO_LEADER, (2,), 5)


# --- how it is changed on its way -------------------------------------------------------------------------------------


def test_another_target_replaces_the_one_before_and_what_was_there_first_is_still_known() -> None:
    cluster = Cluster(partition((1, 2), (1, 2), 1))
    cluster.move((3, 2))
    cluster.move((2, 4))
    state = cluster.state
    assert state.replicas == (2, 4, 1, 3)
    assert (state.adding_replicas, state.removing_replicas) == ((3, 4), (1, 3))
    assert original_replicas(state) == (2, 1)


def test_the_first_replicas_as_another_target_are_there_at_once() -> None:
    cluster = Cluster(partition((1, 2), (1, 2), 1))
    cluster.move((3, 2))
    cluster.move((1, 2))
    assert cluster.state.replicas == (1, 2)
    assert not cluster.state.adding_replicas
    assert not cluster.state.removing_replicas


def test_a_move_that_is_taken_back_leaves_what_was_there() -> None:
    cluster = Cluster(partition((1, 2), (1, 2), 1))
    cluster.move((3, 4))
    cluster.move(None)
    state = cluster.state
    assert (set(state.replicas), state.isr, state.leader) == ({1, 2}, (1, 2), 1)
    assert not state.adding_replicas
    assert not state.removing_replicas
    assert state.leader_epoch == 6, "what 3 and 4 still ask for is of the past"
    assert state.directories == tuple(map(directory, state.replicas))


def test_who_leads_and_does_not_stay_is_replaced_when_a_move_is_taken_back() -> None:
    moving = partition((3, 1, 2), (1, 2, 3), 3, adding_replicas=(3,), removing_replicas=(1,))
    cluster = Cluster(moving)
    cluster.move(None)
    assert (cluster.state.replicas, cluster.state.isr, cluster.state.leader) == ((1, 2), (1, 2), 1)


UNCLEANLY_BACK = partition((3, 1, 2), (3,), 3, adding_replicas=(3,), removing_replicas=(1,))


def test_a_move_is_not_taken_back_to_replicas_of_which_none_is_in_sync() -> None:
    assert Cluster(UNCLEANLY_BACK).refused(None) == ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize(
    ("overrides", "static_permission", "is_allowed"),
    [
        ({}, True, True),
        ({(BROKER, ""): "true"}, False, True),
        ({(TOPIC, "t"): "true", (BROKER, ""): "false"}, False, True),
        ({(TOPIC, "t"): "false", (BROKER, ""): "true"}, True, False),
    ],
)
def test_it_is_where_unclean_elections_are_allowed(
    overrides: dict[tuple[int, str], str], static_permission: bool, is_allowed: bool
) -> None:
    cluster = Cluster(UNCLEANLY_BACK)
    for resource, value in overrides.items():
        cluster.builder.put_overrides(resource, {UNCLEAN_LEADER_ELECTION: value})
    result = cluster.move(None, rules=ReassignmentRules(static_permission))
    assert (result.error_code == 0) is is_allowed
    if is_allowed:
        state = cluster.state
        assert (state.replicas, state.isr, state.leader, state.leader_epoch) == ((1, 2), (1,), 1, 6)


def test_a_move_that_is_taken_back_leaves_a_leader_that_runs_where_unclean_elections_are_allowed() -> None:
    cluster = Cluster(UNCLEANLY_BACK, 1)
    cluster.move(None, rules=ReassignmentRules(unclean_elections=True))
    state = cluster.state
    assert (state.replicas, state.isr, state.leader, state.leader_recovery_state) == ((1, 2), (2,), 2, RECOVERING)
    waiting = Cluster(partition((3, 1, 2), (1, 3), 3, adding_replicas=(3,), removing_replicas=(1,)), 1)
    waiting.move(None)
    assert (waiting.state.isr, waiting.state.leader) == ((1,), NO_LEADER), (
        "and waits for one in sync where they are not"
    )


def test_who_led_last_and_goes_is_not_waited_for() -> None:
    moved = partition((1, 2, 3), (), NO_LEADER, adding_replicas=(3,), last_known_elr=(3,))
    assert reverted(moved).partition.last_known_elr == ()


def test_an_eligible_replica_that_goes_is_eligible_no_more() -> None:
    cluster = Cluster(partition((1, 2, 3), (1,), 1, elr=(2, 3)))
    cluster.builder.put_feature(ELR, 1)
    cluster.builder.put_overrides((TOPIC, "t"), {"min.insync.replicas": "3"})
    cluster.move((1,))
    assert (cluster.state.replicas, cluster.state.isr, cluster.state.elr) == ((1,), (1,), ())


# --- what is refused --------------------------------------------------------------------------------------------------


def test_a_move_is_refused() -> None:
    cluster = Cluster(partition((1, 2), (1, 2), 1))
    assert cluster.refused(()) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert cluster.refused((1, 1)) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert cluster.refused((1, 99)) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert cluster.refused((1, -1)) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert cluster.refused(None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert cluster.refused((1, 3), topic="no-such") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert cluster.refused((1, 3), index=1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert cluster.refused((1, 3), index=-1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_number_of_replicas_is_kept_where_that_is_asked_for() -> None:
    rules = ReassignmentRules(unclean_elections=False, may_change_factor=False)
    cluster = Cluster(partition((1, 2), (1, 2), 1))
    assert cluster.refused((1, 2, 3), rules=rules) == ErrorCode.INVALID_REPLICATION_FACTOR
    assert cluster.refused((1,), rules=rules) == ErrorCode.INVALID_REPLICATION_FACTOR
    assert cluster.move((3, 4), rules=rules).error_code == 0
    assert cluster.refused((1, 2, 3, 4), rules=rules) == ErrorCode.INVALID_REPLICATION_FACTOR
    assert cluster.move((5, 4), rules=rules).error_code == 0


def test_one_refusal_does_not_keep_other_partitions_from_being_moved() -> None:
    cluster = Cluster(partition((1, 2), (1, 2), 1))
    wanted = [("t", [Reassignment(7, (1,)), Reassignment(0, (2, 1)), Reassignment(0, (2, 3))]), ("u", [])]
    results = cluster.alter(wanted, RULES)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    codes = [(name, [(each.partition, each.error_code) for each in of_topic]) for name, of_topic in results]
    assert codes == [("t", [(7, unknown), (0, 0), (0, 0)]), ("u", [])]
    assert cluster.state.replicas == (2, 3, 1)


# --- how replicas come and go, whatever is asked for ------------------------------------------------------------------

targets = st.lists(st.sampled_from(BROKERS), min_size=1, max_size=5, unique=True)


@given(st.data(), targets, st.lists(targets, min_size=1, max_size=4))
def test_whoever_was_a_replica_stays_one_until_all_that_are_to_stay_are_in_sync(
    data: st.DataObject, first: list[int], asked: list[list[int]]
) -> None:
    state = partition(tuple(first), tuple(first), first[0])
    for target in asked:
        before = state
        state = reassigned(state, target, directory)
        assert set(state.replicas) == {*before.replicas, *target}
        assert state.replicas[: len(target)] == tuple(target)
        assert set(original_replicas(state)) == set(first)
        assert state.directories == tuple(map(directory, state.replicas))
        in_sync = data.draw(st.sets(st.sampled_from(state.replicas), min_size=1))
        state = state._replace(isr=tuple(replica for replica in state.replicas if replica in in_sync))
        over = completed(state)
        if state.adding_replicas or state.removing_replicas:
            assert (over is not state) == (set(target) <= in_sync)
            if over is not state:
                assert over.replicas == over.isr == tuple(target)
        back, is_unclean = reverted(state)
        assert set(back.replicas) == set(first)
        assert is_unclean == (not set(first) & in_sync)
        assert set(back.isr) <= set(first)


# --- over several brokers ---------------------------------------------------------------------------------------------


@pytest.fixture
def members() -> Iterator[Members]:
    cluster = Members()
    yield cluster
    cluster.close()


def over_the_wire(response: Any, version: int) -> Any:
    return codec.decode(type(response), version, codec.encode(response, version))


def move(members: Members, replicas: list[int] | None, *, version: int = 1, **more: Any) -> int:
    asked = ReassignableTopic(name="t", partitions=[ReassignablePartition(partition_index=0, replicas=replicas)])
    request = AlterPartitionReassignmentsRequest(timeout_ms=10_000, topics=[asked], **more)
    response = over_the_wire(members.ask_controller(request, version), version)
    assert response.error_code == 0
    (topic,) = response.responses
    assert topic.name == "t"
    (result,) = topic.partitions
    assert result.partition_index == 0
    assert (result.error_message is None) == (result.error_code in (0, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS))
    code: int = result.error_code
    return code


def listed(members: Members, *indexes: int) -> list[tuple[Any, ...]]:
    """Topic, partition, replicas, those that are added, those that go; without indexes of all topics."""
    named = [ListPartitionReassignmentsTopics(name=name, partition_indexes=[*indexes]) for name in ("t", "no-such")]
    request = ListPartitionReassignmentsRequest(timeout_ms=10_000, topics=named if indexes else None)
    response = over_the_wire(members.ask_controller(request, 0), 0)
    assert (response.error_code, response.error_message) == (0, None)
    return [
        (topic.name, each.partition_index, each.replicas, each.adding_replicas, each.removing_replicas)
        for topic in response.topics
        for each in topic.partitions
    ]


def the_partition(members: Members, seen_by: int) -> PartitionImage:
    found = members.image(seen_by).partition("t", 0)
    assert found is not None
    return found


@pytest.mark.parametrize("version", [0, 1])
def test_a_move_is_over_when_its_leader_says_that_the_new_replicas_are_in_sync(members: Members, version: int) -> None:
    members.start(1, 2, 3, 4)
    members.create_topic("t", (1, 2))
    assert listed(members) == []
    assert move(members, [3, 2], version=version) == 0
    assert listed(members) == [("t", 0, [3, 2, 1], [3], [1])]
    assert listed(members, 0, 1, -1) == [("t", 0, [3, 2, 1], [3], [1])]
    assert listed(members, 1) == []
    assert the_partition(members, 4).leader == 1
    result = members.alter_in_sync("t", 1, 2, 3)
    assert result.error_code == ErrorCode.NEW_LEADER_ELECTED, "the one that asked does not stay"
    for broker_id in members.by_id:
        state = the_partition(members, broker_id)
        assert (state.replicas, state.isr, state.leader, state.leader_epoch) == ((3, 2), (3, 2), 3, 1)
        assert len(state.directories) == 2
    assert listed(members) == []


def test_a_leader_that_stays_learns_its_new_epoch_with_the_end_of_a_move(members: Members) -> None:
    members.start(1, 2, 3)
    members.create_topic("t", (1, 2))
    assert move(members, [1, 3]) == 0
    result = members.alter_in_sync("t", 1, 2, 3)
    assert result.error_code == 0
    assert result.state is not None
    assert (result.state.leader, result.state.isr, result.state.leader_epoch) == (1, (1, 3), 1)
    assert the_partition(members, 2).replicas == (1, 3)


def test_a_move_goes_on_under_another_controller(members: Members) -> None:
    members.start(1, 2, 3, 4)
    (first,) = members.active()
    leader, follower, coming = (broker_id for broker_id in members.by_id if broker_id != first)
    members.create_topic("t", (leader, follower))
    assert move(members, [coming, leader]) == 0
    members.kill(first)
    assert listed(members) == [("t", 0, [coming, leader, follower], [coming], [follower])]
    members.alter_in_sync("t", leader, follower, coming)
    assert the_partition(members, leader).replicas == (coming, leader)


def test_a_move_to_a_broker_that_is_away_waits_for_it(members: Members) -> None:
    members.start(1, 2, 3)
    members.create_topic("t", (1, 2))
    members.kill(3)
    assert move(members, [3, 2]) == 0
    state = the_partition(members, 1)
    assert (state.leader, state.isr) == (1, (1, 2))
    members.start(3)
    members.alter_in_sync("t", 1, 2, 3)
    assert the_partition(members, 1).replicas == (3, 2)


def test_a_move_is_taken_back_over_the_wire_and_the_number_of_replicas_is_kept_where_asked_for(
    members: Members,
) -> None:
    members.start(1, 2, 3)
    members.create_topic("t", (1, 2))
    assert move(members, [1], allow_replication_factor_change=False) == ErrorCode.INVALID_REPLICATION_FACTOR
    assert move(members, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert move(members, [3, 2]) == 0
    assert move(members, None) == 0
    assert listed(members) == []
    assert set(the_partition(members, 3).replicas) == {1, 2}


def test_who_is_added_leads_when_all_others_die(members: Members) -> None:
    members.start(1, 2, 3)
    members.create_topic("t", (1, 2))
    assert move(members, [3]) == 0
    members.kill(2)
    members.alter_in_sync("t", 1, 3)
    state = the_partition(members, 3)
    assert (state.replicas, state.leader, state.isr) == ((3,), 3, (3,))
