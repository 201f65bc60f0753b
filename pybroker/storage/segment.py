"""One segment of a log: a data file, its indexes and its map.  Kafka's LogSegment.

Owns the ``.log`` file's descriptor and read-only map, which are opened at first use and may be evicted; the
decision when an index entry is due; the search from offset to file position.  Does not own offsets' assignment,
rolling or retention: the log does.

Invariants:
- ``size`` is what may be read; bytes past it are an append in flight or a torn one.
- The map is never closed while a view of it is out: dropping the reference lets the last view unmap it.
- ``tail`` names every batch of the recent past, without a gap, so that reads near the end need no scan.
"""

from __future__ import annotations

import errno
import os
from array import array
from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import ref

from pybroker.limits import CURSORS_MAX, TAIL_ENTRIES_MAX, UNINDEXED_BYTES_MAX, WARM_TAIL_BYTES, WRITE_BACK_BYTES
from pybroker.storage import os_file
from pybroker.storage.batch_walk import WALK, walk_from, walk_to_limit, walk_to_offset
from pybroker.storage.file_names import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SUFFIXES,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    file_name,
)
from pybroker.storage.offset_index import OffsetIndex
from pybroker.storage.time_index import TimeIndex
from pybroker.storage.transaction_index import TransactionIndex
from pybroker_protocol.records import HEADER, HEADER_BYTES

if TYPE_CHECKING:
    from mmap import mmap

    from _typeshed import ReadableBuffer

    from pybroker.storage.segment_cache import SegmentCache

RELATIVE_OFFSET_MAX = (1 << 31) - 1
_LOW = 0xFFFFFFFF


def _position(entry: int) -> int:
    return entry & _LOW


class Segment:
    """The batches from ``base_offset`` up to the next segment's."""

    __slots__ = (
        "_map",
        "_map_address",
        "_offset_index",
        "_pinned_maps",
        "_replaced_fds",
        "_time_index",
        "base_offset",
        "bytes_since_index",
        "cache",
        "capacity",
        "created_ms",
        "cursors",
        "directory",
        "exposed_end",
        "fd",
        "first_timestamp",
        "index_entries_max",
        "index_interval_bytes",
        "max_timestamp",
        "offset_of_max_timestamp",
        "pins",
        "referenced",
        "retired",
        "roll_after_ms",
        "room_end",
        "sealed",
        "size",
        "synced_bytes",
        "tail",
        "txn_index",
        "view",
        "warm_from",
        "write_back_at",
        "writes_in_flight",
    )

    def __init__(self, directory: Path, base_offset: int, size: int, created_ms: int, cache: SegmentCache) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.size = size
        self.capacity = size
        self.created_ms = created_ms
        self.cache = cache
        self.fd = -1
        self._map: mmap | None = None
        self._map_address = -1  # looked up at first need
        self._pinned_maps: list[ref[mmap]] = []  # former maps, of which views are out
        self.view: memoryview | None = None
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self.txn_index = TransactionIndex(self.path(TXN_INDEX_SUFFIX))
        self.max_timestamp = -1
        self.offset_of_max_timestamp = base_offset
        self.first_timestamp = -1
        self.bytes_since_index = 0
        self.index_interval_bytes = 4096
        self.index_entries_max = 0
        self.room_end = 0  # an append may not end past it; 0 also while the files do not exist
        self.roll_after_ms = 0
        self.tail: array[int] = array("Q")
        self.cursors: dict[int, int] = {}
        self.exposed_end = 0
        self.warm_from = size
        self.synced_bytes = size
        self.write_back_at = size + WRITE_BACK_BYTES
        self.pins = 0
        self.writes_in_flight = 0
        self._replaced_fds: list[int] = []
        self.referenced = True
        self.retired = False
        self.sealed = True

    def path(self, suffix: str = LOG_SUFFIX) -> Path:
        """The path of the segment's file with ``suffix``."""
        return self.directory / file_name(self.base_offset, suffix)

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

    def open(self) -> None:
        """Open the data file, if it is not; the map is made at the first read."""
        if self.fd < 0:
            self.fd = os_file.open_for_append(self.path(), not self.size)
            self.cache.admit(self)

    def check_place(self) -> None:
        """Raise OSError if the data file is not at its path any more; what is written to it then, no start finds."""
        os_file.check_place(self.path(), self.fd, self.size)

    def readable(self) -> memoryview:
        """The map of the data, made at first use.  Only ``size`` bytes of it may be touched."""
        self.referenced = True
        view = self.view
        if view is None or self.size > len(view):
            if self.writes_in_flight:
                raise BlockingIOError(errno.EAGAIN, "a thread writes to the file, it cannot be mapped now")
            self.open()
            self.drop_map()
            # A sealed file is never grown for its map: a death in that moment would leave a tail in the middle of the
            # log, and recovery cuts the log there.
            capacity = self.size if self.sealed else max(self.capacity, self.size)
            self._map = os_file.map_for_reading(self.fd, self.size, capacity)
            self.view = view = memoryview(self._map)
        return view

    def limit(self, size_max: int) -> None:
        """Let the segment grow to ``size_max``: appends past it roll, and the map reaches as far."""
        if size_max > self.capacity and self.writes_in_flight:
            size_max = self.capacity  # The map cannot be made anew now; the next segment has the full size.
        elif size_max > self.capacity:
            self.drop_map()
            self.capacity = size_max
        self.room_end = size_max

    def prepare_for_thread(self) -> None:
        """Before a thread writes: the map cannot be made while it does.  Without one, reads go through the file."""
        self.open()
        try:
            self.readable()
        except OSError as error:
            if not os_file.is_passing(error):
                raise

    def reserve(self, end: int) -> None:
        """Make sure that the file is open and that its map, if there is one, reaches ``end``."""
        self.referenced = True
        if self.fd < 0:
            self.open()
        if end > self.capacity:
            self.capacity = end
            self.drop_map()

    def drop_map(self) -> bool:
        """Forget the map; whether nobody holds a view of the file.  Views that are out keep their map alive."""
        self.view = None
        self._map_address = -1
        held, self._map = self._map, None
        if held is not None:
            try:
                held.close()
            except BufferError:
                self._pinned_maps.append(ref(held))
        del held
        if self._pinned_maps:
            self._pinned_maps = [pinned for pinned in self._pinned_maps if pinned() is not None]
        if self._pinned_maps:
            return False
        self.exposed_end = 0
        return True

    def close(self) -> None:
        """Let go of the descriptor and the map; the segment opens itself again when it is used."""
        self.drop_map()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
            self.cache.forget(self)
        self.warm_from = self.size  # nobody has asked for a while: the pages may be gone
        if self.sealed or self.retired:
            self._offset_index = None
            self._time_index = None
            self.txn_index.forget_entries()
            self.tail = array("Q")

    def retire(self) -> None:
        """The segment is out of the log; what reads from it still goes on, and the last to leave closes it."""
        self.retired = True
        if not self.pins:
            self.close()

    def note_synced(self, size: int) -> None:
        """So many bytes have been synced."""
        self.synced_bytes = max(self.synced_bytes, size)
        self.write_back_at = max(self.write_back_at, size + WRITE_BACK_BYTES)

    def begin_write_back(self) -> Callable[[], None]:
        """What has the kernel begin to write what it was not asked to yet; for a thread, with the segment pinned."""
        start = self.write_back_at - WRITE_BACK_BYTES
        self.write_back_at = self.size + WRITE_BACK_BYTES
        return partial(os_file.begin_write_back, self.fd, start, self.size - start)

    def unpin(self) -> None:
        """An operation that used the descriptor in a thread has ended."""
        self.pins -= 1
        if not self.pins:
            self._close_replaced()
            if self.retired:
                self.close()

    def _close_replaced(self) -> None:
        """Close the descriptors of replaced files, unless a thread may be using one."""
        while self._replaced_fds and not self.pins:
            os.close(self._replaced_fds.pop())

    def delete_files(self) -> None:
        """Remove the segment's files."""
        for kind in SUFFIXES:
            self.path(kind).unlink(missing_ok=True)

    def seal(self) -> None:
        """Nothing will be appended any more: end the time index with the maximum, and write the indexes."""
        self.time_index.maybe_append(self.max_timestamp, self.offset_of_max_timestamp)
        self.persist_indexes()
        self.sealed = True
        self._time_index = None
        self.tail = array("Q")
        self.warm_from = self.size

    def persist_indexes(self) -> None:
        """Write the indexes' new entries to their files."""
        if self._offset_index is not None:
            self._offset_index.persist()
        if self._time_index is not None:
            self._time_index.persist()
        self.txn_index.persist()

    def rename_files(self, suffix: str) -> list[Path]:
        """Append ``suffix`` to the names of all files; returns the new paths.  Open descriptors and maps stay good."""
        renamed = []
        for kind in SUFFIXES:
            path = self.path(kind)
            target = path.with_name(path.name + suffix)
            try:
                os_file.rename(path, target)
            except FileNotFoundError:
                continue
            renamed.append(target)
        return renamed

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
        """The time index; that of a sealed segment, which few ask for, is read each time and not kept."""
        index = self._time_index
        if index is None:
            index = TimeIndex.load(self.path(TIME_INDEX_SUFFIX), self.base_offset)
            if index is None or (not len(index) and self.begins_with_a_time()):
                index = self._make_indexes_anew()[1]
            if not self.sealed:
                self._time_index = index
        return index

    def begins_with_a_time(self) -> bool:
        """Whether a first batch says when it was written: then a time index that is complete has an entry."""
        if self.size < HEADER_BYTES or self.retired:
            return False
        self.open()
        return bool(HEADER.unpack(os_file.pread(self.fd, HEADER_BYTES, 0))[8] >= 0)

    def _make_indexes_anew(self) -> tuple[OffsetIndex, TimeIndex]:
        """Indexes that are missing or damaged, from the data; one that is out of the log gets empty ones."""
        if self.retired or not self.size:
            offset_index = OffsetIndex(self.path(INDEX_SUFFIX), self.base_offset)
            return offset_index, TimeIndex(self.path(TIME_INDEX_SUFFIX), self.base_offset)
        from pybroker.storage.recovery import rebuild_indexes

        return rebuild_indexes(self)

    def set_indexes(self, offset_index: OffsetIndex, time_index: TimeIndex) -> None:
        """Replace the indexes with rebuilt ones."""
        self._offset_index = offset_index
        self._time_index = time_index

    def load_max_timestamp(self) -> None:
        """Take the segment's maximum timestamp from the end of its time index."""
        index = self._time_index
        last = TimeIndex.read_last(self.path(TIME_INDEX_SUFFIX), self.base_offset) if index is None else index.last()
        if last[0] < 0 and index is None:
            last = self.time_index.last()
        self.max_timestamp, self.offset_of_max_timestamp = last

    # Appending --------------------------------------------------------------------------------------------------------

    def must_roll(self, length: int, last_offset: int, max_timestamp: int, position: int = -1) -> bool:
        """Whether an append of ``length`` bytes at ``position`` (by default the end) has no place here."""
        if position < 0:
            position = self.size
        if position + length > self.room_end or last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
            return True
        if self.first_timestamp >= 0:
            return max_timestamp - self.first_timestamp > self.roll_after_ms
        return position > 0 and self.cache.now_ms() - self.created_ms > self.roll_after_ms

    def has_index_room(self, appends: int) -> bool:
        """Whether so many appends cannot fill the indexes, whatever their sizes."""
        index = self._offset_index
        return index is not None and len(index.entries) + appends <= self.index_entries_max

    def append(self, data: ReadableBuffer, length: int, base_offset: int, last_offset: int, max_timestamp: int) -> None:
        """Write one batch at the end; OSError may leave a torn tail (``cut_torn_tail``), and nothing is accounted."""
        position = self.size
        if self.fd < 0 or position + length > self.capacity:
            self.reserve(position + length)
        if os_file.pwrite(self.fd, data, position) != length:
            os_file.write_fully(self.fd, data, position)
        self.account(position, length, base_offset, last_offset, max_timestamp)

    def account(self, position: int, length: int, base_offset: int, last_offset: int, max_timestamp: int) -> None:
        """Make a written batch part of the segment: it becomes readable, and its index entries are made when due."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.offset_of_max_timestamp = last_offset
        if position == 0:
            self.first_timestamp = max_timestamp
        if self.bytes_since_index > self.index_interval_bytes:
            self.offset_index.append(last_offset, position)
            self.time_index.maybe_append(self.max_timestamp, self.offset_of_max_timestamp)
            self.bytes_since_index = 0
            if len(self.offset_index.entries) >= self.index_entries_max:
                self.room_end = 0
        self.bytes_since_index += length
        tail = self.tail
        tail.append((base_offset - self.base_offset) << 32 | position)
        if len(tail) > TAIL_ENTRIES_MAX:
            del tail[: TAIL_ENTRIES_MAX // 2]
        self.size = position + length

    def forget_tail(self) -> None:
        """Offsets are missing before the next batch: what is known of the tail has to begin after the gap."""
        self.tail = array("Q")

    def cut_torn_tail(self) -> None:
        """After a failed write: end the file where its data ends."""
        if self.fd >= 0:
            os_file.ftruncate(self.fd, self.size)

    def truncate(self, position: int, offset: int) -> None:
        """Drop everything from file ``position``, which is where ``offset`` begins.

        Where a reader still holds views of what goes, the file is replaced by a copy of what stays: cutting a file
        under a map kills the process that touches the map.
        """
        self.open()
        if self.drop_map() or position >= self.exposed_end:
            os_file.ftruncate(self.fd, position)
        else:
            self._replace_by_prefix(position)
        self.size = position
        self.synced_bytes = min(self.synced_bytes, position)
        self.write_back_at = min(self.write_back_at, position + WRITE_BACK_BYTES)
        self.warm_from = min(self.warm_from, position)
        self.offset_index.truncate(position)
        self._time_index = self.time_index  # kept from now on: it is appended to
        self._time_index.truncate(offset)
        self.txn_index.truncate(offset)
        self.bytes_since_index = 0
        self.tail = array("Q")
        self.cursors.clear()
        self.load_max_timestamp()
        if position == 0:
            self.first_timestamp = -1

    def _replace_by_prefix(self, length: int) -> None:
        """Put a copy of the first ``length`` bytes in the file's place; the views that are out keep the former file."""
        # A start removes what such a name has; the cleaner's names are its own.
        replacement = self.path(LOG_SUFFIX + ".cut" + DELETED_SUFFIX)
        fd = os_file.copy_prefix(self.fd, replacement, length)
        os_file.rename(replacement, self.path())
        self._replaced_fds.append(self.fd)
        self.fd = fd
        self._close_replaced()
        self._pinned_maps.clear()
        self.exposed_end = 0

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

    def is_recent(self, start: int) -> bool:
        """Whether everything from ``start`` on was written so recently that it is in the page cache without asking."""
        return start >= self.warm_from and self.size - start <= WARM_TAIL_BYTES

    def is_warm(self, start: int, end: int) -> bool:
        """Whether [start, end) can be touched without waiting for the disk.  Raises OSError if there is no map."""
        if self.is_recent(start):
            return True
        self.readable()
        if self._map_address < 0:
            assert self._map is not None
            self._map_address = os_file.map_address(self._map)
        return self._map_address > 0 and os_file.is_resident(self._map_address, start, min(end, self.size))
