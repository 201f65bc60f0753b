"""Commits that repeat an earlier one are decided, written and answered like any other, several in one batch."""

from __future__ import annotations

from typing import Any

import pytest

from pybroker.coordinators.group.offsets.repeated_commit import CommittedPositions, RepeatedCommit
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.coordinators.support import TOPIC_ID, Cluster


def repeated(member_id: str = "", generation: int = -1, version: int = 9) -> RepeatedCommit:
    """Of two partitions, the second with metadata."""
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=0, committed_metadata=metadata)
        for index, metadata in enumerate((None, "m"))
    ]
    request = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=None,
        topics=[OffsetCommitRequestTopic(name="t", topic_id=TOPIC_ID, partitions=partitions)],
    )
    return RepeatedCommit(request, version)


def commit(cluster: Cluster, again: RepeatedCommit, *requests: CommittedPositions) -> list[int]:
    """The error codes that have come."""
    answers: list[int] = []
    cluster.groups.commit_offsets_again(again, requests, answers.append)
    return answers


def test_several_are_one_batch_and_the_last_offset_is_the_committed_one() -> None:
    cluster = Cluster()
    assert commit(cluster, repeated(), [(1, 0), (2, 0)], [(9, -1), (3, 4)]) == [0]
    assert cluster.world.partitions.appends == 1
    assert cluster.world.partitions.ends[0] == 4, "every commit has its record, as if it had come alone"
    assert cluster.committed() == {("t", 0): 9, ("t", 1): 3}
    partitions: list[Any] = cluster.fetch().response.topics[0].partitions
    assert [(partition.metadata, partition.committed_leader_epoch) for partition in partitions] == [("", -1), ("m", 4)]
    assert cluster.restart().committed() == {("t", 0): 9, ("t", 1): 3}


def test_it_keeps_its_member_alive() -> None:
    cluster = Cluster()
    (member,), generation = cluster.stable_group()
    for _ in range(10):
        cluster.world.advance(6_000)
        assert commit(cluster, repeated(member, generation), [(1, -1), (1, -1)]) == [0]
    assert cluster.heartbeat(member, generation).error == 0
    cluster.world.advance(10_001)
    assert commit(cluster, repeated(member, generation), [(1, -1), (1, -1)]) == [ErrorCode.UNKNOWN_MEMBER_ID]


@pytest.mark.parametrize(
    ("generation_lag", "member", "error"),
    [
        (1, None, ErrorCode.ILLEGAL_GENERATION),
        (0, "somebody", ErrorCode.UNKNOWN_MEMBER_ID),
        (None, "", ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_it_is_refused_like_any_commit(generation_lag: int | None, member: str | None, error: ErrorCode) -> None:
    cluster = Cluster()
    (its_member,), its_generation = cluster.stable_group()
    generation = -1 if generation_lag is None else its_generation - generation_lag
    appends = cluster.world.partitions.appends
    again = repeated(its_member if member is None else member, generation)
    assert commit(cluster, again, [(1, -1), (1, -1)], [(2, -1), (2, -1)]) == [error]
    assert cluster.world.partitions.appends == appends
    assert cluster.committed() == {}


def test_group_that_nobody_knows_is_refused_by_version() -> None:
    cluster = Cluster()
    assert commit(cluster, repeated("m", 3, version=9), [(1, -1), (1, -1)]) == [ErrorCode.GROUP_ID_NOT_FOUND]
    assert commit(cluster, repeated("m", 3, version=8), [(1, -1), (1, -1)]) == [ErrorCode.ILLEGAL_GENERATION]


def test_failed_append_fails_all_and_commits_none() -> None:
    cluster = Cluster()
    assert commit(cluster, repeated(), [(1, -1), (1, -1)]) == [0]
    cluster.world.partitions.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert commit(cluster, repeated(), [(2, -1), (2, -1)], [(3, -1), (3, -1)]) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert cluster.committed() == {("t", 0): 1, ("t", 1): 1}


def test_answer_waits_for_the_append_and_for_the_commit() -> None:
    cluster = Cluster()
    cluster.world.partitions.hold_appends = cluster.world.partitions.hold_commits = True
    answers = commit(cluster, repeated(), [(1, -1), (1, -1)])
    assert answers == []
    cluster.world.partitions.finish_appends()
    assert answers == []
    cluster.world.partitions.commit(0)
    assert answers == [0]


def test_while_its_partition_loads_it_is_told_so() -> None:
    world = Cluster().world
    first = Cluster(world)
    assert commit(first, repeated(), [(1, -1), (1, -1)]) == [0]
    loading = Cluster(world, settled=False)
    assert commit(loading, repeated(), [(2, -1), (2, -1)]) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
