"""ListOffsets by timestamp: from the time index to the batch to the record.

Owns the search in one segment; the records of one batch are looked at, because only they know which of them is the
first. That work goes by the records, not by the bytes, and so does the walk to the batch. The search is done in
portions: the first of them on the loop, which is all that ordinary batches need, and the others in a thread
(``TimestampLookup``). What the disk does not say is KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import TYPE_CHECKING

from pybroker.storage.log.retention import largest_timestamp, newest_timestamp
from pybroker.storage.log.timestamp_lookup import TimestampLookup
from pybroker.storage.results import KAFKA_STORAGE_ERROR, TimestampOffset
from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.record_search import FoundRecord, first_record_since
from pybroker_protocol.records import (
    BASE_OFFSET,
    BATCH_LENGTH,
    HEADER,
    HEADER_BYTES,
    LAST_OFFSET_DELTA,
    LOG_OVERHEAD,
    MAX_TIMESTAMP,
    PARTITION_LEADER_EPOCH,
    RECORDS_COUNT,
)

if TYPE_CHECKING:
    from pybroker.storage.files.segment import Segment
    from pybroker.storage.log.log_state import LogState
    from pybroker.storage.log.timestamp_lookup import Found, Search

# Batches with more records than producers send are no ordinary ones to a search by timestamp.
ORDINARY_BATCH_RECORDS_MAX = 50_000

# A search by timestamp stops after so many batches, records of a batch or bytes of them once they are decompressed, to
# see whether others have their turn: that is after half a millisecond.  The loop does no more of a search than that.
BATCHES_WALKED_PER_STEP = 1_000
RECORDS_SEARCHED_PER_STEP = 1_000
BYTES_SEARCHED_PER_STEP = 64 << 10

# Segments whose index a search by timestamp looks into for the first time in one turn of the loop.
SEGMENTS_LOOKED_AT_ONCE = 100


def offset_for_timestamp(log: LogState, timestamp: int, from_offset: int = 0) -> Found:
    """The first record at or past ``from_offset`` and the log start whose timestamp is at least ``timestamp``."""
    start_offset = max(from_offset, log.log_start_offset)
    go_on = partial(offset_for_timestamp, log, timestamp)
    looks = _Looks()
    try:
        for segment in _segments_from(log, start_offset):
            if looks.are_over(segment):
                return TimestampLookup(log, _nothing(segment.base_offset), False, go_on)
            if segment.size and newest_timestamp(segment) >= timestamp:
                found = _begin(log, segment, timestamp, start_offset, go_on)
                if found is not None:
                    return found
    except OSError as error:
        return _failed(log, error)
    return None


def offset_of_max_timestamp(log: LogState, from_offset: int = 0) -> Found:
    """The first record at or past ``from_offset`` that has the largest timestamp of the log."""
    return _newest(log, from_offset, -1, -1, 0)


def _newest(log: LogState, from_offset: int, newest: int, newest_base_offset: int, next_offset: int) -> Found:
    """The same, where the segments below ``next_offset`` are known: the newest is ``newest`` (ms), in that segment."""
    looks = _Looks()
    try:
        for segment in _segments_from(log, next_offset):
            if looks.are_over(segment):
                go_on = partial(_newest, log, from_offset, newest, newest_base_offset)
                return TimestampLookup(log, _nothing(segment.base_offset), False, go_on)
            if segment.size and (largest := largest_timestamp(segment)) > newest:
                newest, newest_base_offset = largest, segment.base_offset
        if newest_base_offset < 0:
            return None
        segment = log.segments[log.segments.floor(newest_base_offset)]
        start_offset = max(from_offset, log.log_start_offset)
        return _begin(log, segment, newest, start_offset, partial(offset_of_max_timestamp, log))
    except OSError as error:
        return _failed(log, error)


class _Looks:
    """Counts the segments whose newest timestamp had to be read from a file during one turn of the loop."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def are_over(self, segment: Segment) -> bool:
        """Whether one more look would be more than the loop has time for."""
        self._count += segment.max_timestamp < 0
        return self._count > SEGMENTS_LOOKED_AT_ONCE


def _segments_from(log: LogState, offset: int) -> Iterator[Segment]:
    """The segments from the one that holds the offset on; none if there are none."""
    for i in range(max(log.segments.floor(offset), 0), len(log.segments)):
        yield log.segments[i]


def _nothing(offset: int) -> Search:
    """A search that has come to an offset: it goes on in another turn of the loop."""
    yield 0
    return None, offset


def _failed(log: LogState, error: OSError) -> TimestampOffset:
    log.read_failed(error)
    return TimestampOffset(-1, -1, -1, KAFKA_STORAGE_ERROR)


def _begin(log: LogState, segment: Segment, timestamp: int, start_offset: int, go_on: Callable[[int], Found]) -> Found:
    """Search a segment, as far as the loop may.  ``go_on(from_offset)`` is the whole search, from an offset on."""
    view = segment.readable()
    position = segment.find(max(segment.time_index.floor(timestamp - 1), segment.base_offset, start_offset))
    search = _search(view, position, segment.size, timestamp, start_offset)
    try:
        records = next(search)
    except StopIteration as end:
        found: TimestampOffset | None = end.value[0]
        return found
    segment.expose(segment.size)
    return TimestampLookup(log, search, records > ORDINARY_BATCH_RECORDS_MAX, go_on)


def _search(view: memoryview, position: int, end: int, timestamp: int, start_offset: int) -> Search:
    """What the batches from ``position`` on have, and the offset that a search behind them begins with.

    Yields where others may have their turn, how many records are left of the batch that it is at.  Between two yields
    there is no more to do than the loop has time for, but for a large block of snappy's, which a yield comes before.
    """
    walked, offset, has_paused = 0, start_offset, False
    while position >= 0 and position + HEADER_BYTES <= end:
        header = HEADER.unpack_from(view, position)
        next_position = position + LOG_OVERHEAD + header[BATCH_LENGTH]
        if header[BATCH_LENGTH] < HEADER_BYTES - LOG_OVERHEAD or next_position > end:
            break
        next_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
        if header[MAX_TIMESTAMP] >= timestamp and next_offset > start_offset:
            if has_paused and header[RECORDS_COUNT] > ORDINARY_BATCH_RECORDS_MAX:
                break  # whose turn it is depends on that: the search begins anew
            found = yield from _find_in(view[position:next_position], timestamp, start_offset)
            if found is not None:
                return TimestampOffset(found.timestamp_ms, found.offset, header[PARTITION_LEADER_EPOCH]), next_offset
            yield 0
            has_paused = True
        position, offset = next_position, max(next_offset, start_offset)
        walked += 1
        if not walked % BATCHES_WALKED_PER_STEP:
            yield 0
            has_paused = True
    return None, offset


def _find_in(batch: memoryview, timestamp: int, start_offset: int) -> Generator[int, None, FoundRecord | None]:
    search = first_record_since(batch, timestamp, start_offset, RECORDS_SEARCHED_PER_STEP, BYTES_SEARCHED_PER_STEP)
    try:
        return (yield from search)
    except ProtocolError:
        # What a producer put behind a good header is not looked at when it is appended.
        header = HEADER.unpack_from(batch)
        return FoundRecord(max(header[BASE_OFFSET], start_offset), header[MAX_TIMESTAMP])
