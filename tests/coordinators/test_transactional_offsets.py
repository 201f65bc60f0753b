"""TxnOffsetCommit and the ends of transactions, in a coordinator with a log in memory."""

from __future__ import annotations

from typing import Any

import pytest

from pybroker.storage.results import TransactionMarker
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from pybroker_protocol.records import batches
from tests.coordinators.support import Cluster, Reply, World

PRODUCER, EPOCH = 42, 3


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def commit_inside(
    cluster: Cluster,
    offset: int,
    member_id: str = "",
    generation: int = -1,
    *,
    group: str = "g",
    instance: str | None = None,
    partition: int = 0,
    metadata: str | None = "",
    producer_id: int = PRODUCER,
    version: int = 5,
) -> Reply:
    reply = Reply()
    offsets = TxnOffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=metadata
    )
    request = TxnOffsetCommitRequest(
        transactional_id="tx",
        group_id=group,
        producer_id=producer_id,
        producer_epoch=EPOCH,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance,
        topics=[TxnOffsetCommitRequestTopic(name="t", topic_id=cluster.topic_id("t"), partitions=[offsets])],
    )
    cluster.groups.commit_transactional_offsets(request, version, reply.done)
    return reply


def error_inside(*args: Any, **how: Any) -> int:
    """The error of the only partition of a transactional commit."""
    return int(commit_inside(*args, **how).response.topics[0].partitions[0].error_code)


def end(cluster: Cluster, commit: bool, producer_id: int = PRODUCER, partition: int = 0) -> int:
    reply = Reply()
    cluster.groups.end_transaction(partition, TransactionMarker(producer_id, EPOCH, 1, commit, 2), reply.done)
    return int(reply.response)


def unstable(cluster: Cluster) -> bool:
    (topic,) = cluster.fetch(topics={"t": [0]}, require_stable=True).response.topics
    return bool(topic.partitions[0].error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT)


@pytest.mark.parametrize(("commit", "expected"), [(True, {("t", 0): 7}), (False, {})])
def test_offset_of_a_transaction_counts_when_it_is_committed_and_never_otherwise(
    cluster: Cluster, commit: bool, expected: dict[tuple[str, int], int]
) -> None:
    assert error_inside(cluster, 7) == 0
    assert unstable(cluster)
    assert cluster.committed() == {}
    assert end(cluster, commit) == 0
    assert not unstable(cluster)
    assert cluster.committed() == expected
    assert cluster.restart().committed() == expected


def test_open_transaction_survives_a_restart(cluster: Cluster) -> None:
    commit_inside(cluster, 7)
    again = cluster.restart()
    assert unstable(again)
    assert end(again, True) == 0
    assert again.committed() == {("t", 0): 7}


def test_records_lie_in_a_transactional_batch_of_the_producer(cluster: Cluster) -> None:
    commit_inside(cluster, 7)
    ((_, header),) = batches(cluster.world.partitions.logs[0])
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (PRODUCER, EPOCH, -1)
    assert header.is_transactional
    assert not header.is_control
    end(cluster, True)
    _, (_, marker) = batches(cluster.world.partitions.logs[0])
    assert (marker.producer_id, marker.producer_epoch, marker.is_control) == (PRODUCER, EPOCH, True)


def test_transaction_is_verified_before_anything_is_written(cluster: Cluster) -> None:
    commit_inside(cluster, 7)
    assert cluster.world.partitions.verifications == [(0, ("tx", PRODUCER, EPOCH), 5)]
    cluster.world.partitions.verification_error = ErrorCode.TRANSACTION_ABORTABLE
    before = cluster.world.partitions.appends
    assert error_inside(cluster, 8) == ErrorCode.TRANSACTION_ABORTABLE
    assert cluster.world.partitions.appends == before


@pytest.mark.parametrize(
    ("verification_error", "answer"),
    [
        (ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_error_of_the_verification_is_one_that_the_client_knows(
    cluster: Cluster, verification_error: ErrorCode, answer: ErrorCode
) -> None:
    cluster.world.partitions.verification_error = verification_error
    assert error_inside(cluster, 7) == answer


def test_group_without_an_id_is_refused(cluster: Cluster) -> None:
    assert error_inside(cluster, 7, group="") == ErrorCode.INVALID_GROUP_ID


def test_generation_of_an_unknown_group_is_refused(cluster: Cluster) -> None:
    assert error_inside(cluster, 7, "member", 0) == ErrorCode.ILLEGAL_GENERATION
    assert error_inside(cluster, 7, "member", 0, version=6) == ErrorCode.GROUP_ID_NOT_FOUND


def test_generation_and_member_are_checked_if_the_producer_names_them(cluster: Cluster) -> None:
    member_id, joined = cluster.new_member()
    cluster.world.advance()
    generation = joined.response.generation_id
    cluster.sync(member_id, generation, {member_id: b""})
    assert error_inside(cluster, 1, member_id, generation) == 0
    assert error_inside(cluster, 1) == 0
    assert error_inside(cluster, 1, member_id, generation - 1) == ErrorCode.ILLEGAL_GENERATION
    assert error_inside(cluster, 1, "stranger", generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert error_inside(cluster, 1, "", -1, instance="i") == ErrorCode.UNKNOWN_MEMBER_ID


def test_member_may_commit_inside_a_transaction_while_its_group_waits_for_the_assignment(cluster: Cluster) -> None:
    member_id, joined = cluster.new_member()
    cluster.world.advance()
    generation = joined.response.generation_id
    assert cluster.commit_error(1, member_id, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    assert error_inside(cluster, 1, member_id, generation) == 0


def test_metadata_that_is_too_long_is_refused_for_its_partition(cluster: Cluster) -> None:
    assert error_inside(cluster, 7, metadata="x" * 5_000) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert not unstable(cluster)


def test_later_plain_commit_is_not_taken_back_by_the_end_of_the_transaction(cluster: Cluster) -> None:
    commit_inside(cluster, 7)
    cluster.commit(9)
    end(cluster, True)
    assert cluster.committed() == cluster.restart().committed() == {("t", 0): 9}


def test_two_transactions_over_one_offset_end_each_for_itself(cluster: Cluster) -> None:
    commit_inside(cluster, 7, producer_id=1)
    commit_inside(cluster, 8, producer_id=2)
    end(cluster, True, producer_id=1)
    assert unstable(cluster)
    assert cluster.committed() == {("t", 0): 7}
    end(cluster, False, producer_id=2)
    assert not unstable(cluster)
    assert cluster.committed() == cluster.restart().committed() == {("t", 0): 7}


def test_later_record_wins_whichever_transaction_ends_first(cluster: Cluster) -> None:
    commit_inside(cluster, 7, producer_id=1)
    commit_inside(cluster, 8, producer_id=2)
    end(cluster, True, producer_id=2)
    end(cluster, True, producer_id=1)
    assert cluster.committed() == cluster.restart().committed() == {("t", 0): 8}


def test_deleted_group_is_not_brought_back_by_the_end_of_a_transaction(cluster: Cluster) -> None:
    cluster.commit(1)
    commit_inside(cluster, 7)
    deleted = Reply()
    cluster.groups.delete_groups(["g"], deleted.done)
    assert deleted.response[0].error_code == 0
    end(cluster, True)
    assert cluster.committed() == cluster.restart().committed() == {}


@pytest.mark.parametrize("batch", [1, 2_000])
def test_offsets_of_a_deleted_topic_are_not_brought_back_by_the_end_of_a_transaction(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    monkeypatch.setattr("pybroker.coordinators.group.group_coordinator_shard.TOMBSTONES_PER_BATCH", batch)
    cluster.commit(5)
    for partition in range(3):
        commit_inside(cluster, 7, partition=partition)
    cluster.delete_topics("t")
    cluster.world.advance()
    assert not unstable(cluster)
    end(cluster, True)
    assert cluster.committed() == cluster.restart().committed() == {}


def test_many_offsets_of_a_deleted_topic_go_a_batch_in_each_turn(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pybroker.coordinators.group.group_coordinator_shard.TOMBSTONES_PER_BATCH", 1)
    for number in range(4):
        cluster.commit(5, group=f"g{number}")
    cluster.delete_topics("t")
    fetch = cluster.fetch("g3")
    before = cluster.world.partitions.appends
    for appends in range(1, 5):
        assert fetch.parked, "nobody sees some gone and others not"
        cluster.world.turn()
        assert cluster.world.partitions.appends == before + appends
    assert fetch.response.topics == []
    assert not cluster.world.timers.is_due


def test_offsets_of_a_deleted_topic_take_no_more_turns_when_the_partition_is_lost(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pybroker.coordinators.group.group_coordinator_shard.TOMBSTONES_PER_BATCH", 1)
    cluster.commit(5)
    cluster.delete_topics("t")
    fetch = cluster.fetch()
    before = cluster.world.partitions.appends
    cluster.groups.on_leadership(set(), {0})
    assert fetch.error == ErrorCode.NOT_COORDINATOR
    cluster.world.advance()
    assert cluster.world.partitions.appends == before


def test_offset_with_an_open_transaction_does_not_expire(cluster: Cluster) -> None:
    cluster.commit(1)
    commit_inside(cluster, 7)
    cluster.world.advance(30 * 86_400_000)
    assert cluster.committed() == {("t", 0): 1}
    end(cluster, False)
    cluster.world.advance(30 * 86_400_000)
    assert cluster.committed() == {}


def test_refused_marker_ends_nothing(cluster: Cluster) -> None:
    commit_inside(cluster, 7)
    cluster.world.partitions.append_error = ErrorCode.INVALID_PRODUCER_EPOCH
    assert end(cluster, True) == ErrorCode.INVALID_PRODUCER_EPOCH
    cluster.world.partitions.append_error = 0
    assert unstable(cluster)


def test_marker_of_a_partition_that_is_not_coordinated_here_is_refused(cluster: Cluster) -> None:
    assert end(cluster, True, partition=9) == ErrorCode.NOT_COORDINATOR
    world = World()
    commit_inside(Cluster(world), 7)
    assert end(Cluster(world, settled=False), True) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_marker_waits_its_turn_behind_offsets_that_are_being_written(cluster: Cluster) -> None:
    cluster.world.partitions.hold_appends = True
    commit_inside(cluster, 7)
    reply = Reply()
    cluster.groups.end_transaction(0, TransactionMarker(PRODUCER, EPOCH, 1, True, 2), reply.done)
    assert cluster.world.partitions.appends == 1
    cluster.world.partitions.finish_appends()
    cluster.world.partitions.finish_appends()
    assert reply.response == 0
    cluster.world.partitions.hold_appends = False
    assert cluster.committed() == {("t", 0): 7}
