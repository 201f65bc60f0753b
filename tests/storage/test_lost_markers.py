"""A follower that was away for longer than its leader's cleaner keeps markers: its open transaction ends nowhere."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pybroker.cluster.image.cluster_image import PartitionImage
from pybroker.replication.followed_partition import FollowedPartition
from pybroker.storage.results import NONE
from tests.storage.batches import batch, end_marker
from tests.storage.logs import TOPIC_ID, Storage

TRANSACTIONAL, CONTROL = 0x10, 0x20
PRODUCER = 7


def at(offset: int, records: bytearray) -> bytearray:
    """A batch at an offset of its leader's log; the CRC does not cover it."""
    records[:8] = offset.to_bytes(8, "big")
    return records


def data(offset: int, epoch: int) -> bytearray:
    return batch(
        base_offset=offset,
        leader_epoch=0,
        attributes=TRANSACTIONAL,
        producer_id=PRODUCER,
        producer_epoch=epoch,
        sequence=0,
    )


def emptied_marker(offset: int, epoch: int) -> bytearray:
    """What the cleaner leaves of a producer's last marker: a batch without a record."""
    return batch(
        [],
        base_offset=offset,
        leader_epoch=0,
        attributes=TRANSACTIONAL | CONTROL,
        producer_id=PRODUCER,
        producer_epoch=epoch,
        last_offset_delta=0,
    )


@pytest.fixture
def follower(storage: Storage) -> FollowedPartition:
    """A replica of a partition that another broker leads."""
    log = storage.log()
    state = PartitionImage(replicas=(1, 2), isr=(1,), leader=1)
    return FollowedPartition("t", TOPIC_ID, 0, state, cast(Any, SimpleNamespace(opened=log)), lambda _: None)


def fetched(follower: FollowedPartition, *batches: bytearray) -> int:
    return follower.append(b"".join(batches), high_watermark=100, log_start_offset=0)


def test_it_begins_anew_where_a_marker_was_emptied_behind_its_open_transaction(follower: FollowedPartition) -> None:
    assert fetched(follower, data(0, 0)) == NONE
    assert fetched(follower, at(5, batch([b"other"], leader_epoch=0)), emptied_marker(39, 7)) == NONE
    log = follower.log
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)
    assert not log.producers.ongoing_txns
    assert follower.lags
    assert fetched(follower, emptied_marker(39, 7), data(40, 7)) == NONE, "what its leader has is all that it has"
    assert (log.log_end_offset, log.last_stable_offset) == (41, 40)


@pytest.mark.parametrize("commit", [True, False])
def test_it_keeps_what_it_has_where_it_knows_how_each_transaction_ended(
    follower: FollowedPartition, commit: bool
) -> None:
    marker = at(1, end_marker(PRODUCER, 0, commit))
    assert fetched(follower, data(0, 0), marker, emptied_marker(39, 7)) == NONE
    assert follower.log.log_end_offset == 40


def test_another_producers_open_transaction_stays(follower: FollowedPartition) -> None:
    other = batch(base_offset=0, leader_epoch=0, attributes=TRANSACTIONAL, producer_id=9, producer_epoch=0, sequence=0)
    assert fetched(follower, other, emptied_marker(39, 7)) == NONE
    assert follower.log.log_end_offset == 40
    assert follower.log.producers.ongoing_txns == {0: 9}
