"""Reads that need more than a look at the tail: earlier segments, a cut to the size asked for, cold data.

Owns the way from an offset range to a file range.  The fast path, everything up to the end of the active segment, is in
``Log.read``.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pybroker.limits import COLD_BUFFER_BYTES_MAX, COLD_READ_BYTES_MAX, READ_AHEAD_BYTES
from pybroker.storage import os_file
from pybroker.storage.batch_walk import HeaderAt, walk_to_limit, walk_to_offset
from pybroker.storage.results import (
    CORRUPT_MESSAGE,
    EMPTY,
    KAFKA_STORAGE_ERROR,
    NONE,
    ColdRead,
    ReadResult,
)
from pybroker_protocol.records import HEADER_BYTES, LOG_OVERHEAD

if TYPE_CHECKING:
    from pybroker.storage.log import Log
    from pybroker.storage.segment import Segment

_COLD = memoryview(b"")  # by identity: the range is not in memory


class ColdBuffer(bytearray):
    """A buffer of a cold read; it counts against the bound until the last view of it is gone."""

    bytes_out = 0

    def __del__(self) -> None:
        ColdBuffer.bytes_out -= len(self)


class _Range:
    """Where in a segment to look for a read, as far as the index knows without touching the file."""

    __slots__ = (
        "end_floor",
        "end_offset",
        "last_floor",
        "limit_floor",
        "max_bytes",
        "min_one_batch",
        "offset",
        "size",
        "start_floor",
    )

    def __init__(self, segment: Segment, offset: int, end_offset: int, max_bytes: int, min_one_batch: bool) -> None:
        index = segment.offset_index
        known = segment.known_position(offset)
        self.offset = offset
        self.end_offset = end_offset  # -1: to the end of the segment
        self.max_bytes = max_bytes
        self.min_one_batch = min_one_batch
        self.size = segment.size
        self.start_floor = known if known >= 0 else index.floor(offset)
        self.end_floor = index.floor(end_offset) if end_offset >= 0 else self.size
        self.limit_floor = index.floor_position(self.start_floor + max_bytes)
        # Of a segment whose end is looked at before it is sent: what was cut there, nobody noticed at the start.
        self.last_floor = index.last()[0] if segment.sealed else -1

    def whole_end(self, header_at: HeaderAt, start: int) -> int:
        """Where the last whole batch ends in a segment of which everything from ``start`` on is wanted; -1 if corrupt.

        ``start`` is a batch's position or the segment's end.  A segment that ends inside a batch is corrupt there.
        """
        if self.last_floor < 0:
            return self.size
        first = self.last_floor if start >= self.size else max(start, self.last_floor)
        end = walk_to_limit(header_at, first, self.size, self.size)
        return -1 if start >= end < self.size else end


def read_segments(
    log: Log, offset: int, max_bytes: int, upper_bound_offset: int, min_one_batch: bool
) -> ReadResult | ColdRead:
    """``Log.read`` for offsets within the log and below ``upper_bound_offset``."""
    segments = log.segments
    try:
        for i in range(segments.floor(offset), len(segments)):
            segment = segments[i]
            if segment.size == 0:
                continue
            segment_end = segments.end_offset(i, log.log_end_offset)
            end_offset = upper_bound_offset if upper_bound_offset < segment_end else -1
            asked = _Range(segment, offset, end_offset, max_bytes, min_one_batch)
            try:
                # The header behind the last batch is looked at, too.
                warm = segment.is_warm(asked.start_floor, asked.start_floor + max_bytes + HEADER_BYTES)
                found = _read_warm(segment, asked) if warm else _COLD
            except OSError as error:
                if not os_file.is_passing(error):
                    raise
                found = _COLD  # There is no map to be had now: read the file.
            if found is None:
                return ReadResult(CORRUPT_MESSAGE, EMPTY)
            if found:
                return ReadResult(NONE, found)
            # A compacted segment may have nothing at or past the offset; then the next one does.
            is_last = not min_one_batch or i == len(segments) - 1 or segment_end >= upper_bound_offset
            if found is _COLD:
                if max_bytes > COLD_READ_BYTES_MAX:
                    asked = _Range(segment, offset, end_offset, COLD_READ_BYTES_MAX, min_one_batch)
                go_on = (
                    None if is_last else partial(log.read, segment_end, max_bytes, upper_bound_offset, min_one_batch)
                )
                segment.open()
                return ColdRead(log, segment, asked.max_bytes, partial(_read_cold, segment, asked), go_on)
            if is_last:
                break
    except OSError as error:
        log.read_failed(error)
        return ReadResult(KAFKA_STORAGE_ERROR, EMPTY)
    return ReadResult(NONE, EMPTY)


def _read_warm(segment: Segment, asked: _Range) -> memoryview | None:
    """The range as a slice of the map; ``None`` if what lies there is no batch, ``_COLD`` if it is not in memory."""
    view = segment.readable()
    start = segment.find(asked.offset)
    end = asked.size if asked.end_offset < 0 else segment.find(asked.end_offset)
    if start < 0 or end < 0:
        return None
    if end == asked.size and end - start <= asked.max_bytes:
        end = asked.whole_end(segment.header_at, start)
        if end < 0:
            return None
    if end - start > asked.max_bytes:
        cut = segment.boundary(start, start + asked.max_bytes)
        if cut < 0:
            return None
        if cut == start:
            if not asked.min_one_batch:
                return EMPTY
            cut = start + LOG_OVERHEAD + segment.header_at(start)[1]
            if cut > asked.size:
                return None
            if not segment.is_warm(start, cut + HEADER_BYTES):
                return _COLD
        end = min(cut, end)
        segment.remember(end)
    segment.exposed_end = max(segment.exposed_end, end)
    return view[start:end] if end > start else EMPTY


def _read_cold(segment: Segment, asked: _Range) -> memoryview | None:
    """The range by reads of the file, on a thread that may wait for the disk."""
    header_at = segment.cold_header_at
    start = walk_to_offset(header_at, asked.start_floor, asked.size, asked.offset)
    end = asked.size
    if asked.end_offset >= 0:
        end = walk_to_offset(header_at, asked.end_floor, asked.size, asked.end_offset)
    if start < 0 or end < 0:
        return None
    if end == asked.size and end - start <= asked.max_bytes:
        end = asked.whole_end(header_at, start)
        if end < 0:
            return None
    if start >= end:
        return EMPTY
    max_bytes = asked.max_bytes if ColdBuffer.bytes_out < COLD_BUFFER_BYTES_MAX else 0
    if end - start > max_bytes:
        limit = start + max_bytes
        floor = asked.limit_floor if start <= asked.limit_floor <= limit else start
        cut = walk_to_limit(header_at, floor, asked.size, limit)
        if cut < 0:
            return None
        if cut == start:
            if not asked.min_one_batch:
                return EMPTY
            cut = start + LOG_OVERHEAD + header_at(start)[1]
            if cut > asked.size:
                return None
        end = min(cut, end)
    buffer = ColdBuffer(end - start)
    ColdBuffer.bytes_out += end - start
    count = os_file.read_into(segment.fd, buffer, start)
    os_file.advise_will_need(segment.fd, end, READ_AHEAD_BYTES)
    return memoryview(buffer)[:count] if count == end - start else None


def bytes_between(log: Log, offset: int, upper_bound_offset: int) -> int:
    """See ``Log.bytes_between``: exact within the tail, else to the precision of the index; 0 if the disk fails."""
    if offset >= upper_bound_offset or offset >= log.log_end_offset:
        return 0
    segments = log.segments
    first, last = segments.floor(offset), segments.floor(upper_bound_offset)
    try:
        start = _position_near(segments[first], offset)
        end = (
            segments[last].size
            if upper_bound_offset >= log.log_end_offset
            else _position_near(segments[last], upper_bound_offset)
        )
    except OSError as error:
        log.read_failed(error)
        return 0
    between = sum(segments[i].size for i in range(first, last))
    return max(between + end - start, 0)


def _position_near(segment: Segment, offset: int) -> int:
    known = segment.known_position(offset)
    return known if known >= 0 else segment.offset_index.floor(offset)
