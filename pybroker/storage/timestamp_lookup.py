"""ListOffsets by timestamp: from the time index to the batch to the record.

Owns the search; the records of one batch are decoded, because only they know which of them is the first.  What the disk
does not say is KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker.storage.results import KAFKA_STORAGE_ERROR, TimestampOffset
from pybroker.storage.retention import newest_timestamp
from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.records import HEADER, HEADER_BYTES, LOG_OVERHEAD

if TYPE_CHECKING:
    from pybroker.storage.log import Log
    from pybroker.storage.segment import Segment


def offset_for_timestamp(log: Log, timestamp: int) -> TimestampOffset | None:
    """The first record at or past the log start whose timestamp is at least ``timestamp``."""
    try:
        for i in range(log.segments.floor(log.log_start_offset), len(log.segments)):
            segment = log.segments[i]
            if segment.size and newest_timestamp(segment) >= timestamp:
                found = _search(log, segment, timestamp)
                if found is not None:
                    return found
    except OSError as error:
        return _failed(log, error)
    return None


def offset_of_max_timestamp(log: Log) -> TimestampOffset | None:
    """The first record that has the largest timestamp of the log."""
    filled = [segment for segment in log.segments if segment.size]
    if not filled:
        return None
    try:
        newest = max(filled, key=newest_timestamp)
        return _search(log, newest, newest_timestamp(newest))
    except OSError as error:
        return _failed(log, error)


def _failed(log: Log, error: OSError) -> TimestampOffset:
    log.read_failed(error)
    return TimestampOffset(-1, -1, -1, KAFKA_STORAGE_ERROR)


def _search(log: Log, segment: Segment, timestamp: int) -> TimestampOffset | None:
    from pybroker.storage.record_validator import record_timestamps

    view = segment.readable()
    position = segment.find(max(segment.time_index.floor(timestamp - 1), segment.base_offset))
    while position >= 0 and position + HEADER_BYTES <= segment.size:
        header = HEADER.unpack_from(view, position)
        end = position + LOG_OVERHEAD + header[1]
        if header[1] < HEADER_BYTES - LOG_OVERHEAD or end > segment.size:
            return None
        if header[8] >= timestamp and header[0] + header[6] >= log.log_start_offset:
            try:
                for offset, record_timestamp in record_timestamps(view[position:end]):
                    if record_timestamp >= timestamp and offset >= log.log_start_offset:
                        return TimestampOffset(record_timestamp, offset, header[2])
            except ProtocolError:
                # What a producer put behind a good header is not looked at when it is appended.
                return TimestampOffset(header[8], max(header[0], log.log_start_offset), header[2])
        position = end
    return None
