"""The offset index of one segment: sparse entries from offset to file position.  Kafka's OffsetIndex.

Owns the entries in memory and the ``.index`` file that they are written to (big-endian int32 relative offset, int32
position).  Does not own the decision when to add an entry: the segment does, every ``index.interval.bytes``.

Invariants: offsets and positions rise strictly; the file holds a prefix of the entries, the rest follows with
``persist``. An entry in memory is one unsigned 64-bit number, relative offset above position. That is the file's format
read as a big-endian number, and lets ``bisect`` search without a Python call per probe.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING

from pybroker.storage.files import os_file
from pybroker_protocol.records import OFFSET_MAX

if TYPE_CHECKING:
    from pathlib import Path

ENTRY_BYTES = 8
_LOW = 0xFFFFFFFF
_SWAP = sys.byteorder == "little"


def _position(entry: int) -> int:
    return entry & _LOW


# An entry has four bytes, signed, for an offset, counted from the base offset.
RELATIVE_OFFSET_MAX = (1 << 31) - 1


def offset_max_of(base_offset: int) -> int:
    """The last offset that a segment of this base offset may hold."""
    return min(base_offset + RELATIVE_OFFSET_MAX, OFFSET_MAX)


class OffsetIndex:
    """The entries of one segment; ``entries[i]`` is ``relative_offset << 32 | position``."""

    __slots__ = ("_file_is_right", "_persisted", "base_offset", "entries", "path")

    def __init__(self, path: Path, base_offset: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self.entries: array[int] = array("Q")
        self._persisted = 0
        self._file_is_right = False  # it is there, and ends where its entries end

    @classmethod
    def load(cls, path: Path, base_offset: int, data_bytes: int) -> OffsetIndex | None:
        """Read an index file; ``None`` when it is missing or cannot be right for ``data_bytes`` of data."""
        index = cls(path, base_offset)
        try:
            data = os_file.read_bytes(path)
        except FileNotFoundError:
            return None
        if len(data) % ENTRY_BYTES:
            return None
        entries = index.entries
        entries.frombytes(data)
        if _SWAP:
            entries.byteswap()
        # A killed Kafka leaves its active index preallocated: zeros follow the last entry.
        count = len(entries)
        while count and entries[count - 1] == 0:
            count -= 1
        del entries[count:]
        index._file_is_right = count * ENTRY_BYTES == len(data)
        index._persisted = count if index._file_is_right else 0
        if count and (_position(entries[-1]) >= max(data_bytes, 1) or any(a >= b for a, b in pairwise(entries))):
            return None
        return index

    def append(self, offset: int, position: int) -> None:
        """Add an entry for the batch at ``position`` whose last offset is ``offset``."""
        self.entries.append((offset - self.base_offset) << 32 | position)

    def last(self) -> tuple[int, int]:
        """(position, offset) of the last entry; (0, -1) when there is none."""
        entries = self.entries
        return (entries[-1] & _LOW, self.base_offset + (entries[-1] >> 32)) if entries else (0, -1)

    def floor(self, offset: int) -> int:
        """The position of the last entry at or below ``offset``; 0 when there is none."""
        i = bisect_right(self.entries, (offset - self.base_offset) << 32 | _LOW)
        return self.entries[i - 1] & _LOW if i else 0

    def floor_position(self, position: int) -> int:
        """The largest indexed position that is not above ``position``; 0 when there is none."""
        i = bisect_right(self.entries, position, key=_position)
        return self.entries[i - 1] & _LOW if i else 0

    def offset_near(self, position: int) -> int:
        """The offset of the last indexed batch that begins at or before ``position``; without one the first offset."""
        i = bisect_right(self.entries, position, key=_position)
        return self.base_offset + (self.entries[i - 1] >> 32) if i else self.base_offset

    def truncate(self, position: int) -> None:
        """Drop the entries at or past file ``position``."""
        i = bisect_right(self.entries, position - 1, key=_position) if position > 0 else 0
        if i < len(self.entries):
            del self.entries[i:]
            if i < self._persisted:
                self._persisted = i
                os_file.truncate(self.path, i * ENTRY_BYTES)

    def rewrite(self) -> None:
        """Make the file hold these entries, whatever it held before."""
        entries = self.entries[:]
        if _SWAP:
            entries.byteswap()
        if os_file.holds(self.path, entries.tobytes()):
            self._persisted, self._file_is_right = len(entries), True
        else:
            self._persisted, self._file_is_right = 0, False
            self.persist()

    def remove_file(self) -> None:
        """Take a file away that does not hold these entries; ``persist`` makes it anew."""
        os_file.unlink_if_exists(self.path)
        self._persisted, self._file_is_right = 0, False

    def persist(self) -> None:
        """Write what the file does not hold yet, without syncing it.  OSError leaves it to be written again."""
        new = self.entries[self._persisted :]
        if not new and self._file_is_right:
            return
        if _SWAP:
            new.byteswap()
        fd = os_file.open_for_append(self.path)
        try:
            os_file.ftruncate(fd, self._persisted * ENTRY_BYTES)
            os_file.write_fully(fd, new.tobytes(), self._persisted * ENTRY_BYTES)
        finally:
            os_file.close(fd)
        self._persisted += len(new)
        self._file_is_right = True
