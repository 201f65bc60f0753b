"""Target assignments that take long (KIP-848): worked out in slices behind the request that asked for them."""

from __future__ import annotations

from random import Random

import pytest

from pybroker.coordinators.group.assignors import ASSIGNORS, Assignor
from pybroker.coordinators.group.consumer.consumer_group import ConsumerGroup
from pybroker.coordinators.group.consumer.target_assignment_builder import ASSIGNMENT_STEPS_PER_SLICE
from pybroker_protocol.errors import ErrorCode
from tests.coordinators.assignor_specs import Topics, group, member
from tests.coordinators.consumer_support import (
    ASSIGNMENT_INTERVAL_MS,
    LEAVE,
    LEAVE_STATIC,
    ConsumerCluster,
    Member,
    assigned,
    replayed,
    settle,
)
from tests.coordinators.support import Reply


@pytest.fixture
def cluster() -> ConsumerCluster:
    made = ConsumerCluster()
    made.set_topics(t=6, u=4)
    return made


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """From here on every step of an assignor is a slice of its own."""
    monkeypatch.setattr("pybroker.coordinators.group.consumer.target_assignment_builder.ASSIGNMENT_STEPS_PER_SLICE", 1)
    return monkeypatch


def run_slices(cluster: ConsumerCluster) -> None:
    """Let all timers fire that are due now."""
    cluster.world.advance(0)


def test_a_target_comes_behind_the_heartbeat_that_asked_for_it(
    cluster: ConsumerCluster, slow: pytest.MonkeyPatch
) -> None:
    reply = cluster.enter("a", "t", "u")
    assert (reply.response.member_epoch, assigned(reply)) == (1, {})
    run_slices(cluster)
    assert cluster.group().target_assignment_builder is None
    reply = cluster.beat("a", 1)
    assert (reply.response.member_epoch, assigned(reply)) == (2, {"t": set(range(6)), "u": set(range(4))})


def test_members_go_by_the_last_target_while_one_is_coming(cluster: ConsumerCluster, slow: pytest.MonkeyPatch) -> None:
    cluster.enter("a", "t")
    run_slices(cluster)
    cluster.beat("a", 1)
    cluster.world.advance(ASSIGNMENT_INTERVAL_MS)
    assert cluster.enter("b", "t").response.member_epoch == 2
    assert cluster.beat("a", 2).response.assignment is None
    assert cluster.describe_consumer().group_state == "Assigning"
    run_slices(cluster)
    assert assigned(cluster.beat("a", 2)) == {"t": {0, 1, 2}}


@pytest.mark.parametrize("seed", range(5))
def test_slices_make_no_other_assignment_than_one_piece_does(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    owned = []
    for steps in (ASSIGNMENT_STEPS_PER_SLICE, 7):
        monkeypatch.setattr(
            "pybroker.coordinators.group.consumer.target_assignment_builder.ASSIGNMENT_STEPS_PER_SLICE", steps
        )
        random = Random(seed)
        cluster = ConsumerCluster()
        cluster.set_topics(t=random.randint(1, 9), u=random.randint(1, 9), v=2)
        members = [
            Member(
                cluster,
                f"m{i}",
                *random.sample("tuv", random.randint(1, 3)),
                assignor=random.choice(("uniform", "range")),
            )
            for i in range(random.randint(1, 6))
        ]
        for count in range(1, len(members) + 1):
            settle(cluster, *members[:count], rounds=12)
        owned.append({each.member_id: each.owned for each in members})
        assert cluster.describe_consumer().group_state == "Stable"
    assert owned[0] == owned[1]


def test_a_refused_heartbeat_keeps_no_target_from_coming(cluster: ConsumerCluster, slow: pytest.MonkeyPatch) -> None:
    a = Member(cluster, "a", "t")
    settle(cluster, a)
    cluster = a.cluster = cluster.with_unknown_state("a")
    assert a.beat(topics=["u"]).error == ErrorCode.FENCED_MEMBER_EPOCH
    assert cluster.group().target_assignment_builder is None
    a.topics = ["u"]
    settle(cluster, a)
    assert a.owned == {"u": set(range(4))}


def test_who_leaves_meanwhile_gets_no_share_and_the_rest_is_of_its_epoch(
    cluster: ConsumerCluster, slow: pytest.MonkeyPatch
) -> None:
    a, b = Member(cluster, "a", "t"), Member(cluster, "b", "t")
    settle(cluster, a)
    b.beat()
    epoch = cluster.group().group_epoch
    assert cluster.group().target_assignment_builder is not None
    assert cluster.beat("b", LEAVE).error == 0
    run_slices(cluster)
    assert (cluster.group().assignment_epoch, cluster.group().group_epoch) == (epoch, epoch + 1)
    assert cluster.group().target.keys() == {"a"}
    again = replayed(cluster).groups["g"]
    assert isinstance(again, ConsumerGroup)
    assert again.target.keys() == {"a"}
    settle(cluster, a)
    assert a.owned == {"t": set(range(6))}


def test_who_takes_a_static_members_place_meanwhile_gets_its_share(
    cluster: ConsumerCluster, slow: pytest.MonkeyPatch
) -> None:
    a, b = Member(cluster, "a", "t", instance="i"), Member(cluster, "b", "t")
    settle(cluster, a)
    b.beat()
    assert cluster.group().target_assignment_builder is not None
    assert cluster.beat("a", LEAVE_STATIC, instance="i").error == 0
    assert cluster.enter("a2", "t", instance="i").error == 0
    run_slices(cluster)
    assert {key: sorted(*share.values()) for key, share in cluster.group().target.items()} == {
        "a2": [0, 1, 2],
        "b": [3, 4, 5],
    }


def test_a_group_that_is_deleted_meanwhile_stays_deleted(cluster: ConsumerCluster, slow: pytest.MonkeyPatch) -> None:
    settle(cluster, Member(cluster, "a", "t"))
    cluster.enter("b", "t")
    for member_id in ("a", "b"):
        assert cluster.beat(member_id, LEAVE).error == 0
    deleted = Reply()
    cluster.groups.delete_groups(["g"], deleted.done)
    assert [each.error_code for each in deleted.response] == [0]
    run_slices(cluster)
    assert not replayed(cluster).groups


def test_a_topic_that_goes_meanwhile_is_in_no_assignment(cluster: ConsumerCluster, slow: pytest.MonkeyPatch) -> None:
    a, b = Member(cluster, "a", "t", "u"), Member(cluster, "b", "t", "u")
    settle(cluster, a)
    b.beat()
    cluster.set_topics(t=6)
    settle(cluster, a, b)
    assert sorted(map(len, (a.owned["t"], b.owned["t"]))) == [3, 3]
    assert "u" not in {*a.owned, *b.owned}


def test_a_target_for_a_member_that_could_not_be_written_does_not_become_that_of_another(
    cluster: ConsumerCluster, slow: pytest.MonkeyPatch
) -> None:
    a, b = Member(cluster, "a", "t"), Member(cluster, "b", "t")
    settle(cluster, a)
    cluster.world.partitions.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert cluster.enter("nobody", "t").error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    cluster.world.partitions.append_error = 0
    b.beat()
    settle(cluster, a, b)
    assert a.owned["t"] | b.owned["t"] == set(range(6))


def test_a_target_that_could_not_be_written_is_worked_out_again(
    cluster: ConsumerCluster, slow: pytest.MonkeyPatch
) -> None:
    a, b = Member(cluster, "a", "t"), Member(cluster, "b", "t")
    settle(cluster, a)
    b.beat()
    cluster.world.partitions.append_error = 56
    run_slices(cluster)
    cluster.world.partitions.append_error = 0
    assert cluster.group().target.keys() == {"a"}
    settle(cluster, a, b)
    assert sorted(map(len, (a.owned["t"], b.owned["t"]))) == [3, 3]


@pytest.mark.parametrize("assignor", ASSIGNORS, ids=lambda each: each.name)
@pytest.mark.parametrize("alike", [True, False])
def test_no_step_goes_through_more_than_one_members_or_topics_share(assignor: Assignor, alike: bool) -> None:
    topics, members = 60, 50
    wanted = [range(topics) if alike else range(i % 7, topics) for i in range(members)]
    spec = group(*(member(f"m{i:02}", each, {0: [i]} if i < 20 else None) for i, each in enumerate(wanted)))
    steps = list(assignor.steps(spec, Topics([20] * topics)))
    assert len(steps) > members
    assert max(steps) <= topics + members + 20
