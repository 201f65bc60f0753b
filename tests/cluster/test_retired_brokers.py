"""Brokers that are gone for good: they are forgotten; what becomes of what they held, and of those that come back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pybroker.cluster.image.cluster_image import NO_LEADER, PartitionImage
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.unregister_broker import UnregisterBrokerRequest

from .members import Members


@pytest.fixture
def members() -> Iterator[Members]:
    cluster = Members()
    yield cluster
    cluster.close()


def unregister(members: Members, broker_id: int) -> int:
    response = members.ask_controller(UnregisterBrokerRequest(broker_id=broker_id), 0)
    assert (response.error_message == "") == (response.error_code == 0), "where all is well the message is empty"
    code: int = response.error_code
    return code


def partition(members: Members, seen_by: int = 1) -> PartitionImage:
    found = members.image(seen_by).partition("t", 0)
    assert found is not None
    return found


def test_a_broker_that_was_stopped_is_forgotten_by_all(members: Members) -> None:
    members.start(1, 2, 3)
    members.kill(3)
    assert set(members.image(1).brokers) == {1, 2, 3}
    assert unregister(members, 3) == 0
    for broker_id in (1, 2):
        assert set(members.image(broker_id).brokers) == {1, 2}
    assert unregister(members, 3) == ErrorCode.BROKER_ID_NOT_REGISTERED


def test_a_broker_that_is_alive_is_not_forgotten(members: Members) -> None:
    members.start(1, 2)
    for broker_id in (1, 2):
        assert unregister(members, broker_id) == ErrorCode.INVALID_REQUEST
    assert set(members.image(1).brokers) == {1, 2}


def test_partitions_keep_a_forgotten_replica_and_the_last_one_in_sync_stays_the_one_that_may_lead(
    members: Members,
) -> None:
    members.start(1, 2, 3)
    members.create_topic("t", (3, 2))
    members.kill(2)
    members.kill(3)
    unregister(members, 3)
    gone = partition(members)
    assert (gone.replicas, {*gone.isr, *gone.elr}, gone.leader) == ((3, 2), {3}, NO_LEADER)
    members.start(2)
    assert partition(members).leader == NO_LEADER, "2 lacks what was written without it"
    members.start(3)
    assert partition(members).leader == 3


def test_a_broker_that_crashed_and_was_forgotten_may_not_lead_by_what_it_held_before() -> None:
    members = Members({"min.insync.replicas": "2"})
    members.start(1, 2, 3)
    members.create_topic("t", (2, 3))
    members.kill(3)
    assert (partition(members).isr, partition(members).elr) == ((2,), (3,))
    unregister(members, 3)
    members.start(3)
    assert (partition(members).isr, partition(members).elr) == ((2,), ()), "the end of its log may be lost"
    members.kill(2)
    assert partition(members).leader == NO_LEADER
    members.close()


def test_a_broker_that_comes_back_has_an_epoch_that_it_never_had_before(members: Members) -> None:
    members.start(1, 2)
    for _ in range(3):
        members.kill(2)
        members.start(2)
    before = members.image(1).brokers[2].epoch
    members.kill(2)
    assert unregister(members, 2) == 0
    members.start(2)
    assert members.image(1).brokers[2].epoch > before
    assert members.by_id[2].broker_epoch == members.image(2).brokers[2].epoch


def test_a_living_broker_that_was_forgotten_while_it_was_taken_for_dead_registers_anew(members: Members) -> None:
    members.start(1, 2)
    (active,) = members.active()
    other = 3 - active
    members.stores[other].expire()
    members.cut_off.add(other)
    members.settle()
    assert members.image(active).brokers[other].fenced
    assert unregister(members, other) == 0
    assert other not in members.image(active).brokers
    members.cut_off.clear()
    members.settle()
    assert not members.image(active).brokers[other].fenced
    assert not members.image(other).brokers[other].fenced
