"""OffsetCommit, OffsetFetch, and the end of offsets."""

from __future__ import annotations

from typing import Any

import pytest
from harness.virtual_world import START_MS

from pybroker.coordinators.group.group_records import offset_key_prefix, pack_offset, pack_partition
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.record_codec import build_batch, end_transaction_batch
from tests.coordinators.support import TOPIC_ID, Cluster, Reply, World

DAY_MS = 24 * 3_600_000
RETENTION_MS = 7 * DAY_MS
CHECK_MS = 600_000


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def fetched(
    cluster: Cluster, *, topic_id: bytes = bytes(16), require_stable: bool = False
) -> tuple[int, int, str, int]:
    """(offset, leader epoch, metadata, error) of partition 0 of topic t."""
    response = cluster.fetch("g", {"t": [0]}, topic_id=topic_id, require_stable=require_stable).response
    partition = response.topics[0].partitions[0]
    return (
        partition.committed_offset,
        partition.committed_leader_epoch,
        partition.metadata,
        partition.error_code,
    )


# --- commit and fetch ------------------------------------------------------------------------------------------------


def test_committed_offset_comes_back_with_metadata_and_leader_epoch(cluster: Cluster) -> None:
    assert cluster.commit_error(7, metadata="where I am", leader_epoch=3) == 0
    assert fetched(cluster) == (7, 3, "where I am", 0)


def test_nothing_committed_is_minus_one(cluster: Cluster) -> None:
    assert fetched(cluster) == (-1, -1, "", 0)
    cluster.commit(5, partition=1)
    assert fetched(cluster) == (-1, -1, "", 0)


def test_null_metadata_is_empty(cluster: Cluster) -> None:
    cluster.commit(7, metadata=None)
    assert fetched(cluster) == (7, -1, "", 0)


def test_metadata_up_to_the_bound_is_kept_and_above_it_refused(cluster: Cluster) -> None:
    assert cluster.commit_error(1, metadata="m" * 4_096) == 0
    assert cluster.commit_error(2, metadata="m" * 4_097) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert fetched(cluster) == (1, -1, "m" * 4_096, 0)


def test_all_offsets_of_a_group_are_those_of_no_other(cluster: Cluster) -> None:
    cluster.commit(1, topic="t", partition=0)
    cluster.commit(2, topic="t", partition=9)
    cluster.commit(3, topic="u", partition=0)
    cluster.commit(4, group="other", topic="t")
    assert cluster.committed() == {("t", 0): 1, ("t", 9): 2, ("u", 0): 3}
    assert cluster.committed("nobody") == {}


def test_offset_of_a_topic_that_was_recreated_is_not_shown_by_id(cluster: Cluster) -> None:
    cluster.commit(7)
    assert fetched(cluster, topic_id=TOPIC_ID)[0] == 7
    assert fetched(cluster, topic_id=b"other topic's id")[0] == -1


def test_offsets_survive_a_restart(cluster: Cluster) -> None:
    for partition in range(5):
        cluster.commit(partition * 10, partition=partition, metadata="kept")
    cluster.commit(99, partition=3)
    again = cluster.restart()
    assert again.committed() == {("t", 0): 0, ("t", 1): 10, ("t", 2): 20, ("t", 3): 99, ("t", 4): 40}


# --- deletion --------------------------------------------------------------------------------------------------------


def test_deleted_group_takes_its_offsets_along(cluster: Cluster) -> None:
    cluster.commit(1)
    reply = Reply()
    cluster.groups.delete_groups(["g", "nobody"], reply.done)
    assert [result.error_code for result in reply.response] == [0, ErrorCode.GROUP_ID_NOT_FOUND]
    assert cluster.committed() == {}
    assert cluster.restart().committed() == {}


def test_offsets_of_a_deleted_topic_are_removed(cluster: Cluster) -> None:
    cluster.commit(1, topic="t")
    cluster.commit(2, topic="u")
    cluster.delete_topics("t")
    assert cluster.committed() == {("u", 0): 2}
    assert cluster.restart().committed() == {("u", 0): 2}


def test_many_offsets_of_a_deleted_topic_are_removed_a_batch_at_a_time(cluster: Cluster) -> None:
    for number in range(5_001):
        cluster.commit(1, group=f"g{number}")
    before = cluster.world.partitions.appends
    cluster.delete_topics("t")
    cluster.world.advance()
    assert cluster.world.partitions.appends - before == 3
    assert cluster.committed("g5000") == {}


# --- expiry ----------------------------------------------------------------------------------------------------------


def test_offset_of_a_simple_group_expires_after_the_retention_and_the_group_with_it(cluster: Cluster) -> None:
    cluster.commit(1)
    cluster.world.advance(RETENTION_MS - 1)
    assert cluster.committed() == {("t", 0): 1}
    cluster.world.advance(CHECK_MS)
    assert cluster.committed() == {}
    assert cluster.describe().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert cluster.restart().committed() == {}


def test_offsets_of_a_group_with_members_do_not_expire(cluster: Cluster) -> None:
    (member,), generation = cluster.stable_group(session_ms=1_000_000)
    cluster.commit(1, member, generation)
    for _ in range(RETENTION_MS // 900_000 + 2):
        cluster.world.advance(900_000)
        cluster.heartbeat(member, generation)
    assert cluster.committed() == {("t", 0): 1}


def test_offsets_of_topics_that_a_stable_group_reads_no_longer_expire(cluster: Cluster) -> None:
    cluster.commit(1, topic="u")
    (member,), generation = cluster.stable_group(session_ms=1_000_000)
    for _ in range(RETENTION_MS // 900_000 + 2):
        cluster.world.advance(900_000)
        cluster.heartbeat(member, generation)
    assert cluster.committed() == {}
    assert cluster.state() == "Stable"


def test_no_offset_expires_during_a_rebalance(cluster: Cluster) -> None:
    how: dict[str, Any] = {"session_ms": 1_000_000, "rebalance_ms": 2 * RETENTION_MS}
    cluster.commit(1, topic="u")
    (leader, follower), generation = cluster.stable_group(2, **how)
    cluster.join(leader, **how)
    for _ in range(RETENTION_MS // 900_000 + 2):
        cluster.world.advance(900_000)
        cluster.heartbeat(follower, generation)
    assert cluster.state() == "PreparingRebalance"
    assert cluster.committed() == {("u", 0): 1}


def test_offsets_do_not_expire_while_a_subscription_cannot_be_read(cluster: Cluster) -> None:
    cluster.commit(1, topic="u")
    (member,), generation = cluster.stable_group(session_ms=1_000_000, protocols=(("range", b"?"),))
    for _ in range(RETENTION_MS // 900_000 + 2):
        cluster.world.advance(900_000)
        cluster.heartbeat(member, generation)
    assert cluster.committed() == {("u", 0): 1}


def test_retention_and_how_often_it_is_looked_at_are_settings() -> None:
    cluster = Cluster(offsets_retention_minutes=1, offsets_retention_check_interval_ms=7_000)
    cluster.commit(1)
    cluster.world.advance(62_999)
    assert cluster.committed() == {("t", 0): 1}
    cluster.world.advance(1)
    assert cluster.committed() == {}


def test_retention_of_a_group_that_had_members_begins_when_it_became_empty(cluster: Cluster) -> None:
    (member,), generation = cluster.stable_group(session_ms=1_000_000)
    cluster.commit(1, member, generation)
    cluster.world.advance(900_000)
    cluster.leave((member, None))
    cluster.world.advance(RETENTION_MS - CHECK_MS)
    assert cluster.committed() == {("t", 0): 1}
    cluster.world.advance(2 * CHECK_MS)
    assert cluster.committed() == {}


def test_retention_that_the_client_asked_for_is_obeyed(cluster: Cluster) -> None:
    cluster.commit(1, retention_ms=1_000, version=4)
    cluster.commit(2, partition=1)
    cluster.world.advance(CHECK_MS)
    assert cluster.committed() == {("t", 1): 2}


def test_retention_without_end_ends_with_time_itself(cluster: Cluster) -> None:
    cluster.commit(1, retention_ms=2**63 - 1, version=4)
    cluster.world.advance(2 * RETENTION_MS)
    assert cluster.committed() == {("t", 0): 1}


def test_many_groups_expire_in_turns_of_the_loop(cluster: Cluster) -> None:
    for number in range(600):
        cluster.commit(1, group=f"g{number}")
    cluster.world.advance(RETENTION_MS - CHECK_MS)
    cluster.commit(1, group="g0")
    before = cluster.world.partitions.appends
    cluster.world.advance(2 * CHECK_MS)
    assert cluster.world.partitions.appends - before == 3
    reply = Reply()
    cluster.groups.describe_groups([f"g{number}" for number in range(600)], 5, reply.done)
    assert [group.group_state for group in reply.response] == ["Empty", *["Dead"] * 599]


def test_group_of_a_kind_that_is_not_served_keeps_its_offsets() -> None:
    world = World()
    share_group_metadata_key = b"\x00\x0b\x00\x01g"
    prefix = offset_key_prefix("g", "t")
    offset = pack_offset(5, -1, "", START_MS, TOPIC_ID)
    records = [(share_group_metadata_key, b"\x00\x00\x00\x00\x00\x01"), (prefix + pack_partition(0), offset)]
    world.partitions.write(0, build_batch(records, timestamp_ms=START_MS))
    cluster = Cluster(world)
    cluster.world.advance(2 * RETENTION_MS)
    assert cluster.committed() == {("t", 0): 5}


# --- offsets inside transactions, as another broker wrote them -------------------------------------------------------


def log_with_transaction(ends: str | None) -> World:
    """Offset 1, then 2 inside of a transaction that ends as told, or does not."""
    world = World()
    key = offset_key_prefix("g", "t") + pack_partition(0)
    world.partitions.write(0, build_batch([(key, pack_offset(1, -1, "", START_MS, TOPIC_ID))], timestamp_ms=START_MS))
    world.partitions.write(
        0,
        build_batch(
            [(key, pack_offset(2, -1, "", START_MS, TOPIC_ID))],
            timestamp_ms=START_MS,
            producer_id=42,
            producer_epoch=0,
            is_transactional=True,
        ),
    )
    if ends is not None:
        world.partitions.write(
            0,
            end_transaction_batch(
                commit=ends == "commit",
                coordinator_epoch=0,
                producer_id=42,
                producer_epoch=0,
                timestamp_ms=START_MS,
            ),
        )
    return world


@pytest.mark.parametrize(("ends", "offset"), [("commit", 2), ("abort", 1), (None, 1)])
def test_offset_of_a_transaction_counts_once_it_is_committed(ends: str | None, offset: int) -> None:
    assert fetched(Cluster(log_with_transaction(ends)))[0] == offset


def test_offset_that_an_open_transaction_may_change_is_unstable() -> None:
    cluster = Cluster(log_with_transaction(None))
    assert fetched(cluster, require_stable=True) == (-1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert fetched(cluster, require_stable=False)[0] == 1


def test_transaction_does_not_take_back_a_later_commit() -> None:
    world = log_with_transaction(None)
    Cluster(world).commit(3)
    world.partitions.write(
        0,
        end_transaction_batch(commit=True, coordinator_epoch=0, producer_id=42, producer_epoch=0, timestamp_ms=0),
    )
    assert fetched(Cluster(world))[0] == 3
