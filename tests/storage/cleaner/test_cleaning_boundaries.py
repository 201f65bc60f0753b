"""Every rule of cleaning that compares times, sizes or offsets, at its boundary and on both sides of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.storage.cleaner.round import Round
from pybroker.storage.cleaner.selection import examine
from pybroker.storage.log.log import Log
from pybroker_protocol.record_codec import NewRecord, build_batch, end_transaction_batch
from pybroker_protocol.records import BatchHeader, batches
from tests.storage.cleaner.logs import BACKOFF_MS, TIME_MS, append, compacted, job_over, put
from tests.storage.logs import Storage, small_config

MakeStorage = Callable[..., Storage]
HOUR = 3_600_000
END = build_batch([(b"end", b"")], timestamp_ms=TIME_MS)


@pytest.fixture
def storage(make_storage: MakeStorage) -> Storage:
    return make_storage(log_cleaner_backoff_ms=BACKOFF_MS)


# --- delete.retention.ms ---------------------------------------------------------------------------------------------


def cleaned(
    directory: Path, data: list[bytes], now_ms: int, delete_retention_ms: int
) -> list[tuple[BatchHeader, bytes]]:
    """(header, bytes) of what a round at that time leaves."""
    directory.mkdir()
    job = job_over(directory, data, now_ms=now_ms, delete_retention_ms=delete_retention_ms)
    list(Round(job).steps())
    left = (directory / f"{0:020d}.log.cleaned").read_bytes()
    return [(header, left[at : at + header.size_bytes]) for at, header in batches(left)]


TOMBSTONE = build_batch([(b"gone", None)], timestamp_ms=TIME_MS)
MARKER = end_transaction_batch(commit=True, coordinator_epoch=0, producer_id=7, producer_epoch=0, timestamp_ms=TIME_MS)


@pytest.mark.parametrize("batch", [TOMBSTONE, MARKER], ids=["tombstone", "marker"])
@pytest.mark.parametrize(("early_ms", "stays"), [(1, True), (0, False), (-1, False)])
def test_tombstone_or_marker_goes_at_the_very_millisecond_of_its_horizon(
    tmp_path: Path, batch: bytes, early_ms: int, stays: bool
) -> None:
    now_ms = TIME_MS + 5
    first = cleaned(tmp_path / "first", [batch, END], now_ms, HOUR)
    assert [header.delete_horizon_ms for header, _ in first] == [now_ms + HOUR, None]
    second = cleaned(tmp_path / "second", [data for _, data in first], now_ms + HOUR - early_ms, HOUR)
    assert [header.records_count for header, _ in second] == ([1, 1] if stays else [1])
    assert second[-1][1] == first[-1][1]


def test_horizon_is_never_moved_by_a_later_round(tmp_path: Path) -> None:
    first = cleaned(tmp_path / "first", [TOMBSTONE, END], TIME_MS, HOUR)
    second = cleaned(tmp_path / "second", [data for _, data in first], TIME_MS + HOUR - 1, 10 * HOUR)
    assert second == first


def test_retention_without_end_keeps_tombstones_to_the_end_of_time(tmp_path: Path) -> None:
    first = cleaned(tmp_path / "first", [TOMBSTONE, END], TIME_MS, 2**63 - 1)
    assert first[0][0].delete_horizon_ms == 2**63 - 1
    assert len(cleaned(tmp_path / "second", [data for _, data in first], 2**63 - 2, 1)) == 2


# --- what may be cleaned ---------------------------------------------------------------------------------------------


def three_segments(storage: Storage, **attributes: Any) -> Log:
    """Two sealed segments, at TIME_MS and a minute later, and the active one."""
    log = compacted(storage, **attributes)
    for i in range(3):
        append(log, build_batch([NewRecord(b"k", b"v")] * 2, timestamp_ms=TIME_MS + 60_000 * i))
        if i < 2:
            log.roll()
    return log


@pytest.mark.parametrize(("early_ms", "cleanable"), [(1, 0), (0, 2), (-1, 2)])
def test_segment_is_cleanable_once_its_newest_record_is_min_compaction_lag_old(
    storage: Storage, early_ms: int, cleanable: int
) -> None:
    three_segments(storage, min_compaction_lag_ms=HOUR)
    assert examine(storage.partition_log(), None, TIME_MS + HOUR - early_ms).first_uncleanable_offset == cleanable


@pytest.mark.parametrize(("late_ms", "overdue"), [(-1, False), (0, False), (1, True)])
def test_log_is_overdue_once_its_first_dirty_record_is_older_than_max_compaction_lag(
    storage: Storage, late_ms: int, overdue: bool
) -> None:
    three_segments(storage, max_compaction_lag_ms=HOUR, min_cleanable_dirty_ratio=1.0)
    found = examine(storage.partition_log(), 2, TIME_MS + 60_000 + HOUR + late_ms)
    assert (found.overdue, found.due) == (overdue, overdue)


def test_log_is_due_above_the_dirty_ratio_and_not_at_it(storage: Storage) -> None:
    three_segments(storage)
    log = storage.partition_log()
    ratio = examine(log, 2, TIME_MS).dirty_ratio
    assert 0 < ratio < 1
    for least, due in ((math.nextafter(ratio, 0), True), (ratio, False), (math.nextafter(ratio, 1), False)):
        log.update_config(small_config(cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=least))
        assert examine(log, 2, TIME_MS).due == due


@pytest.mark.parametrize(("high_watermark", "cleanable"), [(1, 0), (2, 2), (3, 2), (4, 4), (5, 4), (6, 4)])
def test_segments_wholly_below_the_high_watermark_are_cleanable_but_never_the_active_one(
    storage: Storage, high_watermark: int, cleanable: int
) -> None:
    log = three_segments(storage)
    log.high_watermark = high_watermark
    assert examine(storage.partition_log(), None, TIME_MS).first_uncleanable_offset == cleanable


@pytest.mark.parametrize(("checkpoint", "first_dirty"), [(None, 1), (0, 1), (1, 1), (2, 2), (5, 5), (6, 6), (7, 1)])
def test_checkpoint_counts_from_the_log_start_to_the_log_end(
    storage: Storage, checkpoint: int | None, first_dirty: int
) -> None:
    log = three_segments(storage)
    log.increment_log_start_offset(1)
    assert examine(storage.partition_log(), checkpoint, TIME_MS).first_dirty_offset == first_dirty


@pytest.mark.parametrize(("first_dirty", "left"), [(0, [2]), (1, [2]), (2, [2]), (3, [0, 1, 2])])
def test_record_goes_where_a_dirty_one_of_its_key_is_newer(tmp_path: Path, first_dirty: int, left: list[int]) -> None:
    data = [build_batch([(b"k", b"%d" % i)], timestamp_ms=TIME_MS) for i in range(3)]
    job = job_over(tmp_path, data, first_dirty_offset=first_dirty)
    list(Round(job).steps())
    path = tmp_path / f"{0:020d}.log.cleaned"
    assert [header.base_offset for _, header in batches(path.read_bytes())] == left


@pytest.mark.parametrize(("early_ms", "cleaned_up"), [(1, False), (0, True)])
def test_cleaner_waits_for_min_compaction_lag_by_the_clock(
    storage: Storage, world: VirtualWorld, early_ms: int, cleaned_up: bool
) -> None:
    log = compacted(storage, min_compaction_lag_ms=HOUR)
    for _ in range(2):
        put(log, (b"k", b"v"), (b"k", b"w"))
        log.roll()
    put(log, (b"end", b""))
    world.advance(HOUR - early_ms)
    assert (examine(storage.partition_log(), None, world.clock.now_ms()).cleanable_bytes > 0) == cleaned_up
