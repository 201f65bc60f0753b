"""Every rule of retention, rolling, expiry and recovery that compares, at its boundary and on both sides of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.storage.files.offset_index import RELATIVE_OFFSET_MAX
from pybroker.storage.files.segment_scan import SegmentScan
from pybroker.storage.log import recovery
from pybroker.storage.log.log import Log
from pybroker.storage.log.retention import expired_segments, retention_due_ms
from tests.storage.batches import batch
from tests.storage.logs import Client, Storage, small_config

HOUR = 3_600_000
TIME_MS = 1_700_000_000_000


def segments_of_two(storage: Storage, **attributes: Any) -> Log:
    """Three segments of two records each, the last one active."""
    log = storage.log(**attributes)
    client = Client(log)
    for i in range(6):
        if i and not i % 2:
            log.roll()
        client.send_now(values=[(b"key", b"value")], timestamp=TIME_MS + 1000 * i)
    log.update_high_watermark(6)
    return log


# --- retention -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("segments", [1, 2])
@pytest.mark.parametrize(("spare_bytes", "goes"), [(-1, True), (0, True), (1, False)])
def test_segment_goes_while_the_rest_is_not_smaller_than_retention_bytes(
    storage: Storage, segments: int, spare_bytes: int, goes: bool
) -> None:
    log = segments_of_two(storage, retention_ms=-1)
    rest = log.size_bytes - sum(segment.size for segment in list(log.segments)[:segments])
    log.update_config(small_config(retention_ms=-1, retention_bytes=rest + spare_bytes))
    assert len(expired_segments(log, TIME_MS)) == segments - (not goes)


@pytest.mark.parametrize(("late_ms", "goes"), [(-1, False), (0, False), (1, True)])
@pytest.mark.parametrize("retention_ms", [0, 1, HOUR])
def test_segment_goes_once_its_newest_record_is_older_than_retention_ms(
    storage: Storage, retention_ms: int, late_ms: int, goes: bool
) -> None:
    log = segments_of_two(storage, retention_ms=retention_ms)
    newest_ms = TIME_MS + 1000
    assert len(expired_segments(log, newest_ms + retention_ms + late_ms)) == goes


@pytest.mark.parametrize("retention_ms", [0, HOUR])
def test_retention_of_an_unused_log_is_due_at_the_very_millisecond_at_which_something_goes(
    storage: Storage, world: VirtualWorld, retention_ms: int
) -> None:
    log = segments_of_two(storage, retention_ms=retention_ms)
    world.clock.wall_ahead_ms = TIME_MS - world.clock.now_ms()
    due_ms = retention_due_ms(log)
    assert due_ms == TIME_MS + 1000 + retention_ms + 1
    assert [len(expired_segments(log, due_ms + late_ms)) for late_ms in (-1, 0)] == [0, 1]


@pytest.mark.parametrize(("high_watermark", "gone"), [(1, 0), (2, 1), (3, 1), (4, 2), (5, 2), (6, 3)])
def test_segments_go_that_lie_wholly_below_the_high_watermark(storage: Storage, high_watermark: int, gone: int) -> None:
    log = segments_of_two(storage, retention_ms=0)
    log.high_watermark = high_watermark
    assert len(expired_segments(log, TIME_MS + HOUR)) == gone


@pytest.mark.parametrize("policy", ["delete", "compact"])
@pytest.mark.parametrize(("log_start", "gone"), [(1, 0), (2, 1), (3, 1), (4, 2), (6, 2)])
def test_segments_go_that_lie_wholly_below_the_log_start_but_never_the_active_one(
    storage: Storage, policy: str, log_start: int, gone: int
) -> None:
    log = segments_of_two(storage, retention_ms=-1, cleanup_policy=frozenset({policy}))
    log.increment_log_start_offset(log_start)
    assert len(expired_segments(log, TIME_MS)) == gone


# --- rolling ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("spare_bytes", "in_first"), [(-1, 2), (0, 3), (1, 3)])
def test_segment_is_filled_to_the_last_byte(storage: Storage, spare_bytes: int, in_first: int) -> None:
    log = storage.log(internal_segment_bytes=3 * len(batch()) + spare_bytes)
    client = Client(log)
    for _ in range(4):
        assert client.send_now().error_code == 0
    assert log.segments[1].base_offset == in_first


@pytest.mark.parametrize(("late_ms", "rolls"), [(-1, False), (0, False), (1, True)])
def test_segment_rolls_for_a_record_that_is_later_than_segment_ms(storage: Storage, late_ms: int, rolls: bool) -> None:
    client = Client(storage.log(segment_ms=1000))
    client.send_now(timestamp=TIME_MS)
    client.send_now(timestamp=TIME_MS + 1000 + late_ms)
    assert len(client.log.segments) == 1 + rolls


# --- producers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("late_ms", "remembered"), [(-1, True), (0, False), (1, False)])
def test_producer_is_forgotten_once_it_is_idle_for_its_expiration(
    storage: Storage, world: VirtualWorld, late_ms: int, remembered: bool
) -> None:
    client = Client(storage.log())
    written_ms = world.clock.now_ms()
    client.send_now(producer_id=1, producer_epoch=0, sequence=0, timestamp=written_ms)
    producers = client.log.producers
    producers.remove_expired(written_ms)
    producers.remove_expired(written_ms + producers.expiration_ms + late_ms)
    assert (1 in producers.producers) == remembered


@pytest.mark.parametrize(("late_ms", "remembered"), [(-1, True), (0, False), (1, False)])
def test_verification_is_forgotten_once_it_is_as_old_as_an_idle_producer(
    storage: Storage, late_ms: int, remembered: bool
) -> None:
    producers = storage.log().producers
    producers.verifications.begin(1, 0, 0, supports_epoch_bump=True, now_ms=TIME_MS)
    producers.remove_expired(TIME_MS + producers.expiration_ms + late_ms)
    assert (producers.verifications.of(1) is not None) == remembered


# --- recovery --------------------------------------------------------------------------------------------------------


def good_batches(path: Path, data: bytearray, base_offset: int, next_base_offset: int) -> int:
    path.write_bytes(data)
    fd = os.open(path, os.O_RDONLY)
    try:
        return len(list(SegmentScan(fd, len(data), base_offset, next_base_offset)))
    finally:
        os.close(fd)


@pytest.mark.parametrize(("last_offset", "good"), [(8, 2), (9, 2), (10, 1), (11, 1)])
def test_batch_that_reaches_into_the_next_segment_is_no_good_one(tmp_path: Path, last_offset: int, good: int) -> None:
    data = batch() + batch(base_offset=5, last_offset_delta=last_offset - 5)
    assert good_batches(tmp_path / "log", data, 0, 10) == good


@pytest.mark.parametrize(("over", "good"), [(-1, 2), (0, 2), (1, 1)])
def test_batch_whose_last_offset_no_index_of_its_segment_can_hold_is_no_good_one(
    tmp_path: Path, over: int, good: int
) -> None:
    base_offset = 1 << 40
    second = batch(base_offset=base_offset + 10, last_offset_delta=RELATIVE_OFFSET_MAX - 10 + over)
    assert good_batches(tmp_path / "log", batch(base_offset=base_offset) + second, base_offset, 1 << 63) == good


@pytest.mark.parametrize(("base_offset", "good"), [(0, 0), (1, 1), (2, 1)])
def test_batch_that_begins_before_the_last_one_ends_is_no_good_one(tmp_path: Path, base_offset: int, good: int) -> None:
    assert good_batches(tmp_path / "log", batch() + batch(base_offset=base_offset), 0, 10) == 1 + good


@pytest.mark.parametrize(("last_offset", "end_offset"), [(3, 6), (4, 2)])
def test_start_after_a_crash_refuses_a_batch_that_reaches_into_the_next_segment(
    make_storage: Callable[..., Storage], last_offset: int, end_offset: int
) -> None:
    storage = make_storage()
    log = segments_of_two(storage)
    path = log.segments[1].path()
    storage.kill()
    # The second segment has the offsets 2 and 3.
    path.write_bytes(batch(base_offset=2, last_offset_delta=last_offset - 2, timestamp=TIME_MS))
    assert recovery.recover_partition(log.path, 0, 0, 1 << 40).end_offset == end_offset
