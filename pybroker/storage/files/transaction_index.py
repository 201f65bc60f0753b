"""The transaction index of one segment: the transactions that were aborted in it.  Kafka's TransactionIndex.

Owns the ``.txnindex`` file, which exists only where something was aborted.  An entry is 34 bytes, big-endian: int16
version 0, int64 producer id, int64 first offset, int64 last offset (the marker's), int64 last stable offset.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import islice
from operator import attrgetter
from struct import Struct
from typing import TYPE_CHECKING

from pybroker.storage.files import os_file
from pybroker.storage.results import AbortedTransaction

if TYPE_CHECKING:
    from pathlib import Path

_ENTRY = Struct(">hqqqq")
ENTRY_BYTES = _ENTRY.size
_last_offset = attrgetter("last_offset")


class TransactionIndex:
    """The aborted transactions whose markers lie in one segment, in the order of their markers."""

    __slots__ = ("_entries", "_persisted", "path", "unsynced")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._entries: list[AbortedTransaction] | None = None
        self._persisted = 0
        self.unsynced = False  # written since the last flush planned to sync it

    def note_synced(self) -> None:
        """A flush syncs what is written."""
        self.unsynced = False

    def note_unsynced(self) -> None:
        """It was not synced after all."""
        self.unsynced = True

    @property
    def entries(self) -> list[AbortedTransaction]:
        """All entries, read from the file at first use; a torn last entry is left out."""
        if self._entries is None:
            try:
                data = os_file.read_bytes(self.path)
            except FileNotFoundError:
                data = b""
            whole = len(data) - len(data) % ENTRY_BYTES
            self._entries = [AbortedTransaction(*fields[1:]) for fields in _ENTRY.iter_unpack(data[:whole])]
            self._persisted = len(self._entries)
        return self._entries

    def is_sound(self, base_offset: int) -> bool:
        """Whether the file, if there is one, can be what was written for a segment that begins at ``base_offset``.

        Raises OSError.  Where it is not, aborted records would be shown.  Emptiness tells nothing: a truncation may
        leave it.
        """
        try:
            data = os_file.read_bytes(self.path)
        except FileNotFoundError:
            return True
        if len(data) % ENTRY_BYTES:
            return False
        former = base_offset - 1
        for version, producer_id, first_offset, last_offset, last_stable_offset in _ENTRY.iter_unpack(data):
            if version != 0 or producer_id < 0 or not 0 <= first_offset < last_offset or last_offset <= former:
                return False
            if not 0 <= last_stable_offset <= last_offset + 1:
                return False
            former = last_offset
        return True

    def forget_entries(self) -> None:
        """Let go of the entries if the file has them all; the next use reads them."""
        if self._entries is not None and self._persisted == len(self._entries):
            self._entries = None

    def append(self, aborted: AbortedTransaction) -> None:
        """Add an entry; ``persist`` writes it."""
        self.entries.append(aborted)

    def rewrite(self, entries: list[AbortedTransaction]) -> None:
        """Make the file hold exactly these entries; without any there is no file.  Raises OSError."""
        data = _encode(entries)
        if not data:
            os_file.unlink_if_exists(self.path)
        elif not os_file.holds(self.path, data):
            os_file.replace_file(self.path, data, sync=False)

    def persist(self) -> None:
        """Write what the file does not hold yet, without syncing it.  OSError leaves it to be written again."""
        if self._entries is None or self._persisted == len(self._entries):
            return
        new = _encode(self._entries[self._persisted :])
        fd = os_file.open_for_append(self.path)
        try:
            os_file.write_fully(fd, new, self._persisted * ENTRY_BYTES)
        finally:
            os_file.close(fd)
        self._persisted = len(self._entries)
        self.unsynced = True

    def contents(self) -> bytes:
        """What the file holds once it has all entries."""
        return _encode(self.entries)

    def overlapping(self, fetch_offset: int, upper_bound_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """Those that touch [fetch_offset, upper_bound_offset), and whether later segments need not be asked."""
        found: list[AbortedTransaction] = []
        entries = self.entries
        first = bisect_left(entries, fetch_offset, key=_last_offset)
        for entry in islice(entries, first, None):
            if entry.first_offset < upper_bound_offset:
                found.append(entry)
            if entry.last_stable_offset >= upper_bound_offset:
                return found, True
        return found, False

    def reaches(self, offset: int) -> bool:
        """Whether a transaction was aborted at or past ``offset``."""
        entries = self.entries
        return bool(entries) and entries[-1].last_offset >= offset

    def truncate(self, offset: int) -> None:
        """Drop the entries whose marker lies at or past ``offset``."""
        entries = self.entries
        count = len(entries)
        while count and entries[count - 1].last_offset >= offset:
            count -= 1
        if count < len(entries):
            del entries[count:]
            if count < self._persisted:
                self._persisted = count
                os_file.truncate(self.path, count * ENTRY_BYTES)


def _encode(entries: list[AbortedTransaction]) -> bytes:
    return b"".join(_ENTRY.pack(0, *aborted) for aborted in entries)
