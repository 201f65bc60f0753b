"""The time index of one segment: sparse entries from timestamp to offset.  Kafka's TimeIndex.

Owns the entries in memory, in the ``.timeindex`` file's own format (big-endian int64 timestamp, int32 relative offset),
and that file. An entry (t, o) is about the records above offset o, up to the next entry. None of them has a timestamp
of t or less that is not also in a batch at or below o.

Invariants: timestamps rise, offsets do not fall; the file holds a prefix of the entries.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from pybroker.storage.files import os_file

if TYPE_CHECKING:
    from pathlib import Path

_ENTRY = Struct(">qi")
ENTRY_BYTES = _ENTRY.size


class TimeIndex:
    """The entries of one segment, as the bytes of its file."""

    __slots__ = ("_data", "_file_is_right", "_persisted_bytes", "base_offset", "last_timestamp", "path")

    def __init__(self, path: Path, base_offset: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self.last_timestamp = -1
        self._data = bytearray()
        self._persisted_bytes = 0
        self._file_is_right = False  # it is there, and ends where its entries end

    @classmethod
    def load(cls, path: Path, base_offset: int) -> TimeIndex | None:
        """Read an index file; ``None`` when it is missing or corrupt."""
        index = cls(path, base_offset)
        try:
            data = bytearray(os_file.read_bytes(path))
        except FileNotFoundError:
            return None
        if len(data) % ENTRY_BYTES:
            return None
        used = len(data)
        # A killed Kafka leaves its active index preallocated: zeros follow the last entry.
        while used and not any(data[used - ENTRY_BYTES : used]):
            used -= ENTRY_BYTES
        del data[used:]
        index._data = data
        index._file_is_right = used == os_file.stat(path).st_size
        index._persisted_bytes = used if index._file_is_right else 0
        if used:
            first, last = index[0], index[len(index) - 1]
            if last[0] < first[0] or last[1] < base_offset:
                return None
            index.last_timestamp = last[0]
        return index

    @classmethod
    def read_last(cls, path: Path, base_offset: int) -> tuple[int, int]:
        """What ``last`` says of an index file, mostly by a look at its ends; a missing or corrupt one has no entry."""
        try:
            fd = os_file.open_to_read(path)
        except FileNotFoundError:
            return -1, base_offset
        try:
            size = os_file.fstat(fd).st_size
            first, last = (os_file.pread(fd, ENTRY_BYTES, at) for at in (0, max(size - ENTRY_BYTES, 0)))
        finally:
            os_file.close(fd)
        if not size:
            return -1, base_offset
        if size % ENTRY_BYTES == 0 and any(last):
            first_timestamp = _ENTRY.unpack(first)[0]
            timestamp, relative = _ENTRY.unpack(last)
            if timestamp >= first_timestamp and relative >= 0:
                return timestamp, base_offset + relative
            return -1, base_offset
        return (cls.load(path, base_offset) or cls(path, base_offset)).last()

    def __len__(self) -> int:
        return len(self._data) // ENTRY_BYTES

    def __getitem__(self, i: int) -> tuple[int, int]:
        """Entry ``i`` as (timestamp in ms, absolute offset)."""
        timestamp, relative = _ENTRY.unpack_from(self._data, i * ENTRY_BYTES)
        return timestamp, self.base_offset + relative

    def last(self) -> tuple[int, int]:
        """The last entry, (-1, base offset) when there is none."""
        return self[len(self) - 1] if self._data else (-1, self.base_offset)

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry if its timestamp is larger than the last one's (a sealed segment ends with its maximum)."""
        if timestamp > self.last_timestamp:
            self._data += _ENTRY.pack(timestamp, offset - self.base_offset)
            self.last_timestamp = timestamp

    def floor(self, timestamp: int) -> int:
        """The offset of the last entry whose timestamp is at most ``timestamp``; the base offset when there is none."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self[middle][0] <= timestamp:
                low = middle + 1
            else:
                high = middle
        return self[low - 1][1] if low else self.base_offset

    def truncate(self, offset: int) -> None:
        """Drop the entries at or past ``offset``."""
        count = len(self)
        while count and self[count - 1][1] >= offset:
            count -= 1
        if count == len(self):
            return
        del self._data[count * ENTRY_BYTES :]
        self.last_timestamp = self.last()[0]
        if len(self._data) < self._persisted_bytes:
            self._persisted_bytes = len(self._data)
            os_file.truncate(self.path, self._persisted_bytes)

    def rewrite(self) -> None:
        """Make the file hold these entries, whatever it held before."""
        if os_file.holds(self.path, self._data):
            self._persisted_bytes, self._file_is_right = len(self._data), True
        else:
            self._persisted_bytes, self._file_is_right = 0, False
            self.persist()

    def remove_file(self) -> None:
        """Take a file away that does not hold these entries; ``persist`` makes it anew."""
        os_file.unlink_if_exists(self.path)
        self._persisted_bytes, self._file_is_right = 0, False

    def persist(self) -> None:
        """Write what the file does not hold yet, without syncing it.  OSError leaves it to be written again."""
        new = bytes(self._data[self._persisted_bytes :])
        if not new and self._file_is_right:
            return
        fd = os_file.open_for_append(self.path)
        try:
            os_file.ftruncate(fd, self._persisted_bytes)
            os_file.write_fully(fd, new, self._persisted_bytes)
        finally:
            os_file.close(fd)
        self._persisted_bytes += len(new)
        self._file_is_right = True
