"""One segment of a log: its batches, in a data file, and its indexes.  Kafka's LogSegment.

Owns when an index entry is due, what an append has a place in, and the search from offset to file position.  Does not
own the file itself (``segment_file``), nor offsets' assignment, rolling or retention: the log does.

Invariant: ``tail`` names every batch of the recent past, without a gap, so that reads near the end need no scan.

A sealed segment keeps no time index in memory.  A clean start does not look at sealed segments.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pybroker.storage.files import os_file
from pybroker.storage.files.batch_walk import WALK, walk_from, walk_to_limit, walk_to_offset
from pybroker.storage.files.file_names import (
    INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
)
from pybroker.storage.files.offset_index import OffsetIndex, offset_max_of
from pybroker.storage.files.segment_file import SegmentFile
from pybroker.storage.files.segment_scan import rebuild_indexes
from pybroker.storage.files.stored_headers import stored_headers
from pybroker.storage.files.time_index import TimeIndex
from pybroker.storage.files.transaction_index import TransactionIndex
from pybroker_protocol.records import (
    BASE_OFFSET,
    HEADER,
    HEADER_BYTES,
    LAST_OFFSET_DELTA,
    MAX_TIMESTAMP,
    HeaderFields,
)

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from pybroker.storage.files.segment_cache import SegmentCache

# Batches of the recent past that a segment knows by name: 64 KB per active segment at most; beyond that the sparse
# index and a scan answer.
TAIL_ENTRIES_MAX = 8192

# Remembered ends of earlier reads in a segment, where sequential readers of old data go on.
CURSORS_MAX = 64

# A sealed segment of more bytes whose offset index has no entry gets one: else each read walks from its beginning.
UNINDEXED_BYTES_MAX = 1 << 20

_LOW = 0xFFFFFFFF
_NEVER = -2  # no batch's timestamp is that low: it may be -1

# A batch's place in a segment: (position, length, base offset, last offset, max timestamp).
Placed = tuple[int, int, int, int, int]


def _position(entry: int) -> int:
    return entry & _LOW


class Segment(SegmentFile):
    """The batches from ``base_offset`` up to the next segment's."""

    __slots__ = (
        "_offset_index",
        "_time_index",
        "bytes_since_index",
        "created_ms",
        "cursors",
        "first_timestamp",
        "index_entries_max",
        "index_interval_bytes",
        "max_timestamp",
        "offset_end",
        "offset_of_max_timestamp",
        "roll_after_ms",
        "tail",
        "time_end",
        "txn_index",
    )

    def __init__(self, directory: Path, base_offset: int, size: int, created_ms: int, cache: SegmentCache) -> None:
        super().__init__(directory, base_offset, size, cache)
        self.created_ms = created_ms
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self.txn_index = TransactionIndex(self.path(TXN_INDEX_SUFFIX))
        self.max_timestamp = -1
        self.offset_of_max_timestamp = base_offset
        self.first_timestamp = -1
        self.offset_end = offset_max_of(base_offset)  # offsets past it have no place here
        self.time_end = _NEVER  # timestamps up to it have one, whatever the clock says
        self.bytes_since_index = 0
        self.index_interval_bytes = 4096
        self.index_entries_max = 0
        self.roll_after_ms = 0
        self.tail: array[int] = array("Q")
        self.cursors: dict[int, int] = {}

    # Files ------------------------------------------------------------------------------------------------------------

    def create(self, capacity: int) -> None:
        """Make the files of a new, empty segment; OSError leaves the caller to remove them."""
        self.sealed = False
        self.capacity = capacity
        self._offset_index = OffsetIndex(self.path(INDEX_SUFFIX), self.base_offset)
        self._time_index = TimeIndex(self.path(TIME_INDEX_SUFFIX), self.base_offset)
        self.open()
        self._offset_index.persist()
        self._time_index.persist()

    def close(self) -> None:
        """Let go of the descriptor and the map, and of what a sealed segment's indexes tell again."""
        super().close()
        if self.sealed or self.retired:
            self._offset_index = None
            self._time_index = None
            self.txn_index.forget_entries()
            self.tail = array("Q")

    def seal(self) -> None:
        """Nothing will be appended any more: end the time index with the maximum, and write the indexes."""
        self.time_index.maybe_append(self.max_timestamp, self.offset_of_max_timestamp)
        self.persist_indexes()
        self.sealed = True
        self._time_index = None
        self.tail = array("Q")
        self.warm_from = self.size

    def unseal(self) -> None:
        """It is appended to, again."""
        self.sealed = False

    def arm(self, size_max: int, age_max_ms: int, index_interval_bytes: int, index_entries_max: int) -> None:
        """Set the bounds past which an append has no place here, and how often an index gets an entry."""
        self.limit(size_max)
        self.roll_after_ms = age_max_ms
        self._begin_at(self.first_timestamp)
        self.index_interval_bytes = index_interval_bytes
        self.index_entries_max = index_entries_max

    def persist_indexes(self) -> None:
        """Write the indexes' new entries to their files."""
        if self._offset_index is not None:
            self._offset_index.persist()
        if self._time_index is not None:
            self._time_index.persist()
        self.txn_index.persist()

    def move_to(self, directory: Path, fd: int) -> None:
        """See ``SegmentFile.move_to``; the indexes' files are the same, too."""
        super().move_to(directory, fd)
        self.renamed_to(directory)
        self.txn_index.note_synced()

    def renamed_to(self, directory: Path) -> None:
        """The directory has another name, or another one takes its place."""
        self.directory = directory
        if self._offset_index is not None:
            self._offset_index.path = self.path(INDEX_SUFFIX)
        if self._time_index is not None:
            self._time_index.path = self.path(TIME_INDEX_SUFFIX)
        self.txn_index.path = self.path(TXN_INDEX_SUFFIX)

    # Indexes ----------------------------------------------------------------------------------------------------------

    @property
    def offset_index(self) -> OffsetIndex:
        """The offset index, loaded at first use; a missing or damaged one is made anew.  Raises OSError."""
        index = self._offset_index
        if index is None:
            index = OffsetIndex.load(self.path(INDEX_SUFFIX), self.base_offset, self.size)
            if index is None or (not index.entries and self.size > UNINDEXED_BYTES_MAX):
                index = self._make_indexes_anew()[0]
            self._offset_index = index
        return index

    @property
    def time_index(self) -> TimeIndex:
        """The time index; that of a sealed segment, which few ask for, is read each time and not kept.

        One that is missing, or that the data does not bear out, is made anew.  Raises OSError.
        """
        index = self._time_index
        if index is None:
            index = TimeIndex.load(self.path(TIME_INDEX_SUFFIX), self.base_offset)
            if index is None or not self.bears_out(index.last()):
                self._offset_index, index = self._make_indexes_anew()  # both files are written
            if not self.sealed:
                self._time_index = index
        return index

    def bears_out(self, last: tuple[int, int]) -> bool:
        """Whether a time index may end with ``last``, given the first batch; that of a whole segment, if it has none.

        An entry has the largest timestamp up to its offset: none is older than the first batch, and one in the first
        batch has just its timestamp. An entry of which the power failed to write the end has zeros there. It is older,
        or lies at the segment's base offset with a timestamp that is not the first batch's.
        """
        header = None if self.retired else self._first_header()
        if header is None:
            return True
        timestamp, offset = last
        first_timestamp = header[MAX_TIMESTAMP]
        self._begin_at(first_timestamp)
        if offset > header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]:
            return timestamp >= first_timestamp
        return timestamp == max(first_timestamp, -1)

    def _make_indexes_anew(self) -> tuple[OffsetIndex, TimeIndex]:
        """Indexes that are missing or damaged, from the data; one that is out of the log gets empty ones."""
        if self.retired or not self.size:
            offset_index = OffsetIndex(self.path(INDEX_SUFFIX), self.base_offset)
            return offset_index, TimeIndex(self.path(TIME_INDEX_SUFFIX), self.base_offset)
        self.open()
        return rebuild_indexes(self.directory, self.base_offset, self.fd, self.size)

    def set_indexes(self, offset_index: OffsetIndex, time_index: TimeIndex) -> None:
        """Replace the indexes with rebuilt ones."""
        self._offset_index = offset_index
        self._time_index = time_index

    def load_max_timestamp(self) -> None:
        """Take the segment's maximum timestamp from the end of its time index.  Raises OSError."""
        index = self._time_index
        last = TimeIndex.read_last(self.path(TIME_INDEX_SUFFIX), self.base_offset) if index is None else index.last()
        if index is None and (last[0] < 0 or not self.bears_out(last)):
            last = self.time_index.last()
        self.max_timestamp, self.offset_of_max_timestamp = last

    def note_stored(self, position: int, last_offset: int, max_timestamp: int, since_index: int) -> None:
        """A batch behind the last index entry was found in the file, ``since_index`` bytes behind that entry."""
        self.bytes_since_index = since_index
        if position == 0:
            self._begin_at(max_timestamp)
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.offset_of_max_timestamp = last_offset

    def load_first_timestamp(self) -> int:
        """The largest timestamp of the first batch, -1 without one; read once.  Raises OSError."""
        if self.first_timestamp < 0:
            header = self._first_header()
            if header is not None:
                self._begin_at(header[MAX_TIMESTAMP])
        return self.first_timestamp

    def _first_header(self) -> HeaderFields | None:
        """The first batch's header, ``None`` without one.  Leaves the file as closed as it is.  Raises OSError."""
        if self.size < HEADER_BYTES:
            return None
        fd = self.fd if self.fd >= 0 else os_file.open_to_read(self.path())
        try:
            data = os_file.pread(fd, HEADER_BYTES, 0)
        finally:
            if fd != self.fd:
                os_file.close(fd)
        return HEADER.unpack(data) if len(data) == HEADER_BYTES else None

    def _begin_at(self, max_timestamp: int) -> None:
        """The first batch's largest timestamp is known: -1 if it has none, or there is no batch."""
        self.first_timestamp = max_timestamp
        self.time_end = max_timestamp + self.roll_after_ms if max_timestamp >= 0 else _NEVER

    # Appending --------------------------------------------------------------------------------------------------------

    def must_roll(self, length: int, last_offset: int, max_timestamp: int, position: int = -1) -> bool:
        """Whether an append of ``length`` bytes at ``position`` (by default the end) has no place here.

        One that is within ``size_end``, ``offset_end`` and ``time_end`` has a place.
        """
        if position < 0:
            position = self.size
        if position + length > self.size_end or last_offset > self.offset_end:
            return True
        if self.first_timestamp >= 0:
            return max_timestamp > self.time_end
        return position > 0 and self.cache.now_ms() - self.created_ms > self.roll_after_ms

    def has_index_capacity(self, appends: int) -> bool:
        """Whether so many appends cannot fill the indexes, whatever their sizes, nor have to load them."""
        index = self._offset_index
        if index is None or self._time_index is None:
            return False
        return len(index.entries) + appends <= self.index_entries_max

    def append(self, data: ReadableBuffer | None, placed: Sequence[Placed]) -> None:
        """Write batches, one behind the other, at the end, and make them part of the segment: they become readable.

        Without ``data`` a thread has written them.  OSError may leave a torn tail, and nothing is part of the segment.
        """
        if data is not None:
            start, end = self.size, placed[-1][0] + placed[-1][1]
            if self.fd < 0 or end > self.capacity:
                self.reserve(end)
            if os_file.pwrite(self.fd, data, start) != end - start:
                os_file.write_fully(self.fd, data, start)
        tail, segment_offset = self.tail, self.base_offset
        for position, length, base_offset, last_offset, max_timestamp in placed:
            if max_timestamp > self.max_timestamp:
                self.max_timestamp = max_timestamp
                self.offset_of_max_timestamp = last_offset
            if position == 0:
                self._begin_at(max_timestamp)
            if self.bytes_since_index > self.index_interval_bytes:
                self._index(position, last_offset)
            self.bytes_since_index += length
            tail.append((base_offset - segment_offset) << 32 | position)
            self.size = position + length
        if len(tail) > TAIL_ENTRIES_MAX:
            del tail[: TAIL_ENTRIES_MAX // 2]

    def _index(self, position: int, last_offset: int) -> None:
        """Make the index entries of the batch at ``position``."""
        self.offset_index.append(last_offset, position)
        self.time_index.maybe_append(self.max_timestamp, self.offset_of_max_timestamp)
        self.bytes_since_index = 0
        if len(self.offset_index.entries) >= self.index_entries_max:
            self.size_end = 0

    def forget_tail(self) -> None:
        """Offsets are missing before the next batch: what is known of the tail has to begin after the gap."""
        self.tail = array("Q")

    def truncate(self, position: int, offset: int) -> None:
        """Drop everything from file ``position``, which is where ``offset`` begins."""
        self.cut(position)
        self.offset_index.truncate(position)
        self._time_index = self.time_index  # kept from now on: it is appended to
        self._time_index.truncate(offset)
        self.txn_index.truncate(offset)
        self.bytes_since_index = 0
        self.tail = array("Q")
        self.cursors.clear()
        self.load_max_timestamp()
        indexed = self.offset_index.last()[0]
        for at, header in stored_headers(self, indexed):
            self.note_stored(at, header.last_offset, header.max_timestamp, at - indexed)
        if position == 0:
            self._begin_at(-1)

    # Finding ----------------------------------------------------------------------------------------------------------

    def header_at(self, position: int) -> tuple[int, int, int]:
        """(base offset, length, last offset delta) of the batch at ``position``, through the map."""
        fields = walk_from(self.readable(), position)
        return fields[0], fields[1], fields[2]

    def cold_header_at(self, position: int) -> tuple[int, int, int]:
        """The same by a read of the file, for a thread that may wait for the disk."""
        fields = WALK.unpack(os_file.pread(self.fd, WALK.size, position))
        return fields[0], fields[1], fields[2]

    def known_position(self, offset: int) -> int:
        """The position of the batch that holds ``offset`` if it is known without looking into the file, else -1."""
        i = bisect_right(self.tail, (offset - self.base_offset) << 32 | _LOW)
        if i:
            return self.tail[i - 1] & _LOW
        return self.cursors.get(offset, -1)

    def recent(self, offset: int, max_bytes: int) -> memoryview | None:
        """All that lies from the batch that holds ``offset`` on, if it was written a moment ago and is mapped."""
        start, size, view = self.known_position(offset), self.size, self.view
        if start < 0 or size - start > max_bytes or view is None or len(view) < size or not self.is_recent(start):
            return None
        self.referenced = True
        self.exposed_end = size
        return view[start:size]

    def find(self, offset: int) -> int:
        """The position of the first batch that reaches ``offset``; ``size`` if none, -1 if corrupt."""
        position = self.known_position(offset)
        if position >= 0:
            return position
        return walk_to_offset(self.header_at, self.offset_index.floor(offset), self.size, offset)

    def boundary(self, start: int, limit: int) -> int:
        """The last batch boundary in [start, limit], ``start`` being one; -1 if corrupt."""
        tail = self.tail
        if tail and tail[0] & _LOW <= start:
            return tail[bisect_right(tail, limit, key=_position) - 1] & _LOW
        floor = self.offset_index.floor_position(limit)
        return walk_to_limit(self.header_at, max(start, floor), self.size, limit)

    def remember(self, position: int) -> None:
        """Note that a reader will ask for the batch at ``position`` next."""
        if position + WALK.size <= min(self.size, len(self.view or ())):
            cursors = self.cursors
            if len(cursors) >= CURSORS_MAX:
                cursors.clear()
            cursors[self.header_at(position)[0]] = position
