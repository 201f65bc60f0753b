"""ListOffsets by timestamp: from the time index to the batch to the record.

Owns the search; the records of one batch are decoded, because only they know which of them is the first: in a thread
where that takes long (``TimestampLookup``).  What the disk does not say is KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from pybroker.limits import INLINE_DECODE_BYTES_MAX
from pybroker.storage.record_validator import looks_quick_to_decode
from pybroker.storage.results import KAFKA_STORAGE_ERROR, TimestampLookup, TimestampOffset
from pybroker.storage.retention import newest_timestamp
from pybroker_protocol.compression import DECOMPRESSED_BYTES_MAX
from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.record_codec import decode_records
from pybroker_protocol.records import HEADER, HEADER_BYTES, LOG_OVERHEAD

if TYPE_CHECKING:
    from pybroker.storage.log import Log
    from pybroker.storage.segment import Segment


def offset_for_timestamp(log: Log, timestamp: int, from_offset: int = 0) -> TimestampOffset | TimestampLookup | None:
    """The first record at or past ``from_offset`` and the log start whose timestamp is at least ``timestamp``."""
    start_offset = max(from_offset, log.log_start_offset)
    go_on = partial(offset_for_timestamp, log, timestamp)
    try:
        for i in range(log.segments.floor(start_offset), len(log.segments)):
            segment = log.segments[i]
            if segment.size and newest_timestamp(segment) >= timestamp:
                found = _search(log, segment, timestamp, start_offset, go_on)
                if found is not None:
                    return found
    except OSError as error:
        return _failed(log, error)
    return None


def offset_of_max_timestamp(log: Log, from_offset: int = 0) -> TimestampOffset | TimestampLookup | None:
    """The first record at or past ``from_offset`` that has the largest timestamp of the log."""
    filled = [segment for segment in log.segments if segment.size]
    if not filled:
        return None
    start_offset = max(from_offset, log.log_start_offset)
    try:
        newest = max(filled, key=newest_timestamp)
        return _search(log, newest, newest_timestamp(newest), start_offset, partial(offset_of_max_timestamp, log))
    except OSError as error:
        return _failed(log, error)


def _failed(log: Log, error: OSError) -> TimestampOffset:
    log.read_failed(error)
    return TimestampOffset(-1, -1, -1, KAFKA_STORAGE_ERROR)


def _search(
    log: Log,
    segment: Segment,
    timestamp: int,
    start_offset: int,
    go_on: Callable[[int], TimestampOffset | TimestampLookup | None],
) -> TimestampOffset | TimestampLookup | None:
    """``go_on(from_offset)`` is the whole search, from an offset on."""
    view = segment.readable()
    position = segment.find(max(segment.time_index.floor(timestamp - 1), segment.base_offset, start_offset))
    while position >= 0 and position + HEADER_BYTES <= segment.size:
        header = HEADER.unpack_from(view, position)
        end = position + LOG_OVERHEAD + header[1]
        if header[1] < HEADER_BYTES - LOG_OVERHEAD or end > segment.size:
            return None
        last_offset = header[0] + header[6]
        if header[8] >= timestamp and last_offset >= start_offset:
            batch = view[position:end]
            try:
                if not looks_quick_to_decode(batch, header):
                    raise ProtocolError("more than the loop has time for")
                found = _find_in(batch, timestamp, start_offset, INLINE_DECODE_BYTES_MAX)
            except ProtocolError:
                # Damaged, or large once it is decompressed: the thread finds out which.
                segment.exposed_end = max(segment.exposed_end, end)
                work = partial(_look_into, batch, timestamp, start_offset)
                return TimestampLookup(log, work, partial(go_on, last_offset + 1))
            if found is not None:
                return found
        position = end
    return None


def _look_into(batch: memoryview, timestamp: int, start_offset: int) -> TimestampOffset | None:
    try:
        return _find_in(batch, timestamp, start_offset, DECOMPRESSED_BYTES_MAX)
    except ProtocolError:
        # What a producer put behind a good header is not looked at when it is appended.
        header = HEADER.unpack_from(batch)
        return TimestampOffset(header[8], max(header[0], start_offset), header[2])


def _find_in(
    batch: memoryview, timestamp: int, start_offset: int, decompressed_bytes_max: int
) -> TimestampOffset | None:
    """The first record of a batch that will do.  Raises ProtocolError as ``decode_records`` does."""
    for record in decode_records(batch, decompressed_bytes_max):
        if record.timestamp_ms >= timestamp and record.offset >= start_offset:
            return TimestampOffset(record.timestamp_ms, record.offset, HEADER.unpack_from(batch)[2])
    return None
