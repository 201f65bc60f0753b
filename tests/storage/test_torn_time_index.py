"""A time index of which the power took a part of the last entry: whoever goes by time goes by the data.

Such an entry ends with zeros.  The index of a segment that is whole is let alone, whatever its batches say of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.storage.cleaner.selection import examine
from pybroker.storage.files.file_names import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from pybroker.storage.files.segment import Segment
from pybroker.storage.files.time_index import ENTRY_BYTES
from pybroker.storage.log.log import Log
from pybroker.storage.log.partition_log import PartitionLog
from pybroker.storage.log.retention import expired_segments, newest_timestamp, retention_due_ms
from pybroker.storage.results import TimestampOffset
from tests.storage.cleaner.logs import BACKOFF_MS, clean, compacted, put, survivors
from tests.storage.logs import Client, Storage

MakeStorage = Callable[..., Storage]
HOUR = 3_600_000
TIME_MS = 0x018B_CFE7_4A41  # in November 2023; none of the bytes that say so is a zero
REBUILT = "Rebuilding the indexes of"
# How many bytes of the last entry are left.  The first two are zeros: with none else it is no entry.
LEFT = pytest.mark.parametrize("left", range(3, ENTRY_BYTES))
# The times of a first segment's batches, in ms behind TIME_MS.
TIMES = pytest.mark.parametrize(
    "times",
    [(0,), (0, 7), (-2 * HOUR, -1000, 0), (1000, 0), (-TIME_MS - 1, 1000)],
    ids=["one", "close", "far apart", "falling", "none first"],
)


def segment_of(storage: Storage, times: Sequence[int], size: int = 10, **attributes: Any) -> Log:
    """A sealed segment of one batch of two records for each time, and an active one of the last time."""
    log = storage.log(**attributes)
    client = Client(log)
    for time in times:
        client.send_now(values=[(b"key", bytes(size))] * 2, timestamp=TIME_MS + time)
    log.roll()
    client.send_now(values=[(b"key", b"value")] * 2, timestamp=TIME_MS + times[-1])
    log.update_high_watermark(log.log_end_offset)
    return log


def tear(segment: Segment, left: int) -> None:
    """Of the last entry that many bytes are left, and zeros."""
    path = segment.path(TIME_INDEX_SUFFIX)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) - ENTRY_BYTES + left] + bytes(ENTRY_BYTES - left))


def torn(make_storage: MakeStorage, times: Sequence[int], left: int, size: int = 10, **attributes: Any) -> PartitionLog:
    """Such a log after a start, the time index of its first segment torn."""
    storage = make_storage()
    log = segment_of(storage, times, size, **attributes)
    storage.close()
    tear(log.segments[0], left)
    return make_storage().partition_log(**attributes)


def found_at(log: Log, timestamp: int) -> int:
    """The offset of the first record at or after a time."""
    found = log.offset_for_timestamp(timestamp)
    assert isinstance(found, TimestampOffset)
    return found.offset


@LEFT
@TIMES
def test_retention_goes_by_the_newest_record(make_storage: MakeStorage, times: Sequence[int], left: int) -> None:
    log = torn(make_storage, times, left, retention_ms=HOUR).open()
    expires_ms = TIME_MS + max(times) + HOUR
    assert not expired_segments(log, expires_ms)
    assert retention_due_ms(log) == expires_ms + 1
    assert expired_segments(log, expires_ms + 1)


@LEFT
@TIMES
def test_search_by_timestamp_finds_what_is_there(make_storage: MakeStorage, times: Sequence[int], left: int) -> None:
    log = torn(make_storage, times, left, retention_ms=-1).open()
    newest = max(times)
    assert found_at(log, TIME_MS + newest) == 2 * times.index(newest)
    newest_record = log.offset_of_max_timestamp()
    assert isinstance(newest_record, TimestampOffset)
    assert (newest_record.timestamp, newest_record.offset) == (TIME_MS + newest, 2 * times.index(newest))


@LEFT
@TIMES
def test_cleaner_lets_the_young_alone(make_storage: MakeStorage, times: Sequence[int], left: int) -> None:
    compact = frozenset({"compact"})
    log = torn(make_storage, times, left, cleanup_policy=compact, min_compaction_lag_ms=HOUR)
    old_ms = TIME_MS + max(times) + HOUR
    assert examine(log, None, old_ms - 1).first_uncleanable_offset == 0
    assert examine(log, None, old_ms).first_uncleanable_offset == 2 * len(times)


@LEFT
def test_entry_behind_others_is_missed_as_much(make_storage: MakeStorage, left: int) -> None:
    log = torn(make_storage, (-2 * HOUR, -HOUR, -1000, 0), left, size=300, retention_ms=-1).open()
    assert newest_timestamp(log.segments[0]) == TIME_MS
    assert found_at(log, TIME_MS) == 6


def test_active_segment_that_is_opened_takes_its_time_from_the_data(make_storage: MakeStorage) -> None:
    storage = make_storage()
    log = storage.log(retention_ms=-1)
    Client(log).fill(20, timestamp=TIME_MS)
    assert len(log.segments) == 1
    storage.close()
    assert log.active.path(INDEX_SUFFIX).stat().st_size
    tear(log.active, 4)
    log = make_storage().log(retention_ms=-1)
    assert log.active.time_index.last()[0] == log.active.max_timestamp == TIME_MS
    assert found_at(log, TIME_MS) == 0


def test_index_is_made_anew_once(make_storage: MakeStorage, caplog: pytest.LogCaptureFixture) -> None:
    storage = make_storage()
    log = segment_of(storage, (0, 1000), retention_ms=-1)
    tear(log.segments[0], 4)
    for _ in range(2):
        storage.close()
        storage = make_storage()
        assert found_at(storage.log(retention_ms=-1), TIME_MS + 1000) == 2
        assert caplog.text.count(REBUILT) == 1


# --- whole indexes ---------------------------------------------------------------------------------------------------


def look_at_all(log: Log) -> None:
    """Ask each segment for its time, and for its time index."""
    for segment in log.segments:
        newest_timestamp(segment)
        assert segment.time_index.last() <= (segment.max_timestamp, segment.offset_of_max_timestamp)


@TIMES
@pytest.mark.parametrize("size", [10, 300])
@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_whole_index_is_taken_as_it_is(
    make_storage: MakeStorage, caplog: pytest.LogCaptureFixture, times: Sequence[int], size: int, kind: str
) -> None:
    storage = make_storage()
    segment_of(storage, times, size, retention_ms=-1, message_timestamp_type=kind)
    storage.close()
    look_at_all(make_storage().log(retention_ms=-1))
    assert REBUILT not in caplog.text


def test_index_of_records_without_a_time_is_taken_as_it_is(
    make_storage: MakeStorage, caplog: pytest.LogCaptureFixture
) -> None:
    storage = make_storage()
    segment_of(storage, (-TIME_MS - 1,), retention_ms=-1)
    storage.close()
    look_at_all(make_storage().log(retention_ms=-1))
    assert REBUILT not in caplog.text


@pytest.mark.parametrize("left", [1, 2, 3])
def test_index_of_a_segment_that_was_cut_is_taken_as_it_is(
    make_storage: MakeStorage, caplog: pytest.LogCaptureFixture, left: int
) -> None:
    storage = make_storage()
    log = segment_of(storage, (2000, 3000, 1000, 4000), 300, retention_ms=-1)
    log.truncate_to(2 * left)
    storage.close()
    log = make_storage().log(retention_ms=-1)
    look_at_all(log)
    assert newest_timestamp(log.active) == TIME_MS + (2000 if left == 1 else 3000)
    assert REBUILT not in caplog.text


def test_index_of_a_cleaned_segment_is_taken_as_it_is(
    make_storage: MakeStorage, world: VirtualWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """Its first batch, which was the newest, is gone."""
    storage = make_storage(log_cleaner_backoff_ms=BACKOFF_MS)
    log = compacted(storage, retention_ms=-1)
    put(log, (b"gone", b"1"), timestamp_ms=TIME_MS + 5000)
    put(log, (b"stays", b"2"), (b"gone", b"2"), timestamp_ms=TIME_MS + 2000)
    put(log, (b"gone", b"3"), timestamp_ms=TIME_MS + 1000)
    log.roll()
    put(log, (b"end", b"4"), timestamp_ms=TIME_MS)
    clean(world)
    assert [record.offset for record in survivors(log)] == [1, 3, 4]
    storage.close()
    look_at_all(make_storage().log(retention_ms=-1))
    assert REBUILT not in caplog.text
