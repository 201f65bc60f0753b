"""Reads of a log: the tail by a look, earlier segments and a cut to the size asked for, cold data.

Owns the way from an offset range to a file range.  The fast path is that of everything up to the end of the active
segment, which was written a moment ago.

A read ends with its segment. A cleaned segment may end in a gap. A read that finds nothing there goes on in the next
segment, cold reads too, because a coordinator would take emptiness for the end of its log. A read to the end of a
sealed segment walks from its last index entry (``_Range.whole_end``), and so finds a torn batch that no start has
looked for.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pybroker.storage.files import os_file
from pybroker.storage.files.batch_walk import HeaderAt, walk_to_limit, walk_to_offset
from pybroker.storage.log.cold_read import ColdRead
from pybroker.storage.results import (
    CORRUPT_MESSAGE,
    EMPTY,
    KAFKA_STORAGE_ERROR,
    NONE,
    OFFSET_OUT_OF_RANGE,
    ReadResult,
)
from pybroker.storage_limits import COLD_BUFFER_BYTES_MAX
from pybroker_protocol.records import HEADER_BYTES, LOG_OVERHEAD, end_offset_of

if TYPE_CHECKING:
    from pybroker.storage.files.segment import Segment
    from pybroker.storage.log.log_state import LogState
    from pybroker.storage.results import AbortedTransaction

# One cold read brings no more than this: its buffer is fresh memory, which is made while every other thread waits.
COLD_READ_BYTES_MAX = 1 << 20

# How far past a cold read the kernel is asked to read on.
READ_AHEAD_BYTES = 2 << 20

_NO_RESULT = ReadResult(NONE, EMPTY)
_OUT_OF_RANGE = ReadResult(OFFSET_OUT_OF_RANGE, EMPTY)
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


def read(
    log: LogState, offset: int, max_bytes: int, upper_bound_offset: int, min_one_batch: bool
) -> ReadResult | ColdRead:
    """Whole batches from the one that holds ``offset`` on, below ``upper_bound_offset``, at most ``max_bytes``.

    The first batch is returned even if it is larger, when ``min_one_batch``.  Kafka may cut the last batch; here
    none is.  OFFSET_OUT_OF_RANGE is answered below the log's start and past its end.
    """
    log_end_offset = log.log_end_offset
    if log.refusal:
        return ReadResult(KAFKA_STORAGE_ERROR, EMPTY)
    if offset >= upper_bound_offset or offset >= log_end_offset:
        if offset > log_end_offset or offset < log.log_start_offset:
            return _OUT_OF_RANGE
        return _NO_RESULT
    if offset < log.log_start_offset:
        return _OUT_OF_RANGE
    segment = log.active
    if offset >= segment.base_offset and upper_bound_offset >= log_end_offset:
        recent = segment.recent(offset, max_bytes)
        if recent is not None:
            return ReadResult(NONE, recent)
    return _read_segments(log, offset, max_bytes, upper_bound_offset, min_one_batch)


def _read_segments(
    log: LogState, offset: int, max_bytes: int, upper_bound_offset: int, min_one_batch: bool
) -> ReadResult | ColdRead:
    """``read`` for offsets within the log and below ``upper_bound_offset``."""
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
                    None if is_last else partial(read, log, segment_end, max_bytes, upper_bound_offset, min_one_batch)
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
    segment.expose(end)
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


def bytes_between(log: LogState, offset: int, upper_bound_offset: int) -> int:
    """Bytes from the batch that holds ``offset`` up to ``upper_bound_offset``, for a fetch's minimum; cheap.

    Exact within the tail, else to the precision of the index; 0 if the disk fails.
    """
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


def aborted_transactions(log: LogState, fetch_offset: int, upper_bound_offset: int) -> list[AbortedTransaction]:
    """The aborted transactions that touch [fetch_offset, upper_bound_offset), for read_committed fetches."""
    found: list[AbortedTransaction] = []
    for i in range(log.segments.floor(fetch_offset), len(log.segments)):
        more, complete = log.segments[i].txn_index.overlapping(fetch_offset, upper_bound_offset)
        found += more
        if complete:
            break
    return found


def aborted_transactions_of(log: LogState, fetch_offset: int, records: memoryview) -> list[AbortedTransaction] | None:
    """Those that touch what a read from ``fetch_offset`` on has returned; ``None`` if the disk does not say."""
    segments = log.segments
    try:
        for i in range(segments.floor(fetch_offset), len(segments)):
            if segments[i].txn_index.reaches(fetch_offset):
                return aborted_transactions(log, fetch_offset, end_offset_of(records))
    except OSError as error:
        log.read_failed(error)
        return None
    return []
