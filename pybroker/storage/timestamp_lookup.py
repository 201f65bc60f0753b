"""ListOffsets by timestamp: from the time index to the batch to the record.

Owns the search in one segment; the records of one batch are looked at, because only they know which of them is the
first.  What that is in the way of work goes by the records, not by the bytes, and so does the walk to the batch: the
search is done in portions, the first of them on the loop, which ordinary batches need no more than, and the others in
a thread (``TimestampLookup``).  What the disk does not say is KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING

from pybroker import limits
from pybroker.storage.results import KAFKA_STORAGE_ERROR, TimestampOffset
from pybroker.storage.retention import newest_timestamp
from pybroker.storage.timestamp_lookups import TimestampLookup
from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.record_search import FoundRecord, first_record_since
from pybroker_protocol.records import HEADER, HEADER_BYTES, LOG_OVERHEAD

if TYPE_CHECKING:
    from pybroker.storage.log import Log
    from pybroker.storage.segment import Segment
    from pybroker.storage.timestamp_lookups import Found, Search


def offset_for_timestamp(log: Log, timestamp: int, from_offset: int = 0) -> Found:
    """The first record at or past ``from_offset`` and the log start whose timestamp is at least ``timestamp``."""
    start_offset = max(from_offset, log.log_start_offset)
    go_on = partial(offset_for_timestamp, log, timestamp)
    try:
        for i in range(log.segments.floor(start_offset), len(log.segments)):
            segment = log.segments[i]
            if segment.size and newest_timestamp(segment) >= timestamp:
                found = _begin(log, segment, timestamp, start_offset, go_on)
                if found is not None:
                    return found
    except OSError as error:
        return _failed(log, error)
    return None


def offset_of_max_timestamp(log: Log, from_offset: int = 0) -> Found:
    """The first record at or past ``from_offset`` that has the largest timestamp of the log."""
    filled = [segment for segment in log.segments if segment.size]
    if not filled:
        return None
    start_offset = max(from_offset, log.log_start_offset)
    try:
        newest = max(filled, key=newest_timestamp)
        return _begin(log, newest, newest_timestamp(newest), start_offset, partial(offset_of_max_timestamp, log))
    except OSError as error:
        return _failed(log, error)


def _failed(log: Log, error: OSError) -> TimestampOffset:
    log.read_failed(error)
    return TimestampOffset(-1, -1, -1, KAFKA_STORAGE_ERROR)


def _begin(log: Log, segment: Segment, timestamp: int, start_offset: int, go_on: Callable[[int], Found]) -> Found:
    """Search a segment, as far as the loop may.  ``go_on(from_offset)`` is the whole search, from an offset on."""
    view = segment.readable()
    position = segment.find(max(segment.time_index.floor(timestamp - 1), segment.base_offset, start_offset))
    search = _search(view, position, segment.size, timestamp, start_offset)
    try:
        records = next(search)
    except StopIteration as end:
        found: TimestampOffset | None = end.value[0]
        return found
    segment.exposed_end = max(segment.exposed_end, segment.size)
    return TimestampLookup(log, search, records > limits.ORDINARY_BATCH_RECORDS_MAX, go_on)


def _search(view: memoryview, position: int, end: int, timestamp: int, start_offset: int) -> Search:
    """What the batches from ``position`` on have, and the offset that a search behind them begins with.

    Yields where others may have their turn, how many records are left of the batch that it is at.  Between two yields
    there is no more to do than the loop has time for, but for codecs that cannot stop, which a yield comes before.
    """
    walked, offset, has_paused = 0, start_offset, False
    while position >= 0 and position + HEADER_BYTES <= end:
        header = HEADER.unpack_from(view, position)
        next_position = position + LOG_OVERHEAD + header[1]
        if header[1] < HEADER_BYTES - LOG_OVERHEAD or next_position > end:
            break
        next_offset = header[0] + header[6] + 1
        if header[8] >= timestamp and next_offset > start_offset:
            if has_paused and header[12] > limits.ORDINARY_BATCH_RECORDS_MAX:
                break  # whose turn it is depends on that: the search begins anew
            found = yield from _find_in(view[position:next_position], timestamp, start_offset)
            if found is not None:
                return TimestampOffset(found.timestamp_ms, found.offset, header[2]), next_offset
            yield 0
            has_paused = True
        position, offset = next_position, max(next_offset, start_offset)
        walked += 1
        if not walked % limits.BATCHES_WALKED_PER_STEP:
            yield 0
            has_paused = True
    return None, offset


def _find_in(batch: memoryview, timestamp: int, start_offset: int) -> Generator[int, None, FoundRecord | None]:
    search = first_record_since(
        batch, timestamp, start_offset, limits.RECORDS_SEARCHED_PER_STEP, limits.BYTES_SEARCHED_PER_STEP
    )
    try:
        return (yield from search)
    except ProtocolError:
        # What a producer put behind a good header is not looked at when it is appended.
        header = HEADER.unpack_from(batch)
        return FoundRecord(max(header[0], start_offset), header[8])
