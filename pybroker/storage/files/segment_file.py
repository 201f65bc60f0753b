"""The data file of one segment: its descriptor, its read-only map, and what the kernel was asked to do with it.

Owns when the file is opened, mapped, cut and closed, who uses its descriptor in a thread meanwhile (``pins``), and how
much of it is synced or was handed out.  Does not own what lies in it: ``segment.Segment`` does.

Invariants:
- ``size`` is what may be read; bytes past it are an append in flight or a torn one.
- The map is never closed while a view of it is out: dropping the reference lets the last view unmap it.
- A descriptor that a thread may be using is not closed: another file could get its number.

Files are written with ``pwrite`` and read through the map. To cut a file under a map kills the process that touches the
map. Where readers still hold views of what goes, the file is replaced by a copy of what stays. So what a thread looks
at through a view lies below ``exposed_end``, or truncation would cut the file under it.

Kafka: FileRecords.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import ref

from pybroker.storage.files import os_file
from pybroker.storage.files.file_map import FileMap
from pybroker.storage.files.file_names import DELETED_SUFFIX, LOG_SUFFIX, SUFFIXES, file_name

if TYPE_CHECKING:
    from pybroker.storage.files.segment_cache import SegmentCache

# So much of a segment the kernel may hold before it is asked to begin to write it: a burst goes to memory, and what is
# sustained does not pile up until the kernel throttles its writers, nor for the sync at the segment's end.
# ``sync_file_range`` asks for it, which commits no journal.  To sync each 64 MB instead cost bursts of large batches a
# third of their rate and small requests beside them their p99, because an append on the loop waits for a journal that
# is being committed.  Never to ask is as fast for bursts, slower by a seventh once the kernel throttles, and leaves a
# gigabyte to a roll's sync.  To ask for 32 MB at a time changed nothing.
WRITE_BACK_BYTES = 256 << 20

# What was written this recently is taken to be in the page cache without asking the kernel.
WARM_TAIL_BYTES = 4 << 20


class SegmentFile:
    """A segment's data file, opened at first use; where too many are open, those not used lately are closed."""

    __slots__ = (
        "_map",
        "_pinned_maps",
        "_replaced_fds",
        "base_offset",
        "cache",
        "capacity",
        "directory",
        "exposed_end",
        "fd",
        "pins",
        "referenced",
        "released_to",
        "retired",
        "sealed",
        "sent_end",
        "size",
        "size_end",
        "synced_bytes",
        "view",
        "warm_from",
        "write_back_at",
        "writes_in_flight",
    )

    def __init__(self, directory: Path, base_offset: int, size: int, cache: SegmentCache) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.size = size
        self.capacity = size
        self.cache = cache
        self.fd = -1
        self._map: FileMap | None = None
        self._pinned_maps: list[ref[FileMap]] = []  # former maps, of which views are out
        self.view: memoryview | None = None
        self.size_end = 0  # an append may not end past it; 0 also while the files do not exist
        self.exposed_end = 0
        self.sent_end = 0
        self.warm_from = size
        self.synced_bytes = size
        self.write_back_at = size + WRITE_BACK_BYTES
        self.pins = 0
        self.writes_in_flight = 0
        self._replaced_fds: list[int] = []
        self.referenced = True
        self.released_to = size  # up to here it was reported as written lately
        self.retired = False
        self.sealed = True

    def path(self, suffix: str = LOG_SUFFIX) -> Path:
        """The path of the segment's file with ``suffix``."""
        return self.directory / file_name(self.base_offset, suffix)

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

    def discard(self) -> None:
        """Close the segment and remove its files."""
        self.close()
        for kind in SUFFIXES:
            os_file.unlink_if_exists(self.path(kind))

    def check_place(self) -> None:
        """Raise OSError if the data file is not at its path any more; what is written to it then, no start finds."""
        os_file.check_place(self.path(), self.fd, self.size)

    # Open and mapped ----------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Open the data file, if it is not; the map is made at the first read."""
        if self.fd < 0:
            self.fd = os_file.open_for_append(self.path(), not self.size)
            self.cache.admit(self)

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
            self._map = os_file.map_for_reading(self.fd, self.size, capacity, FileMap)
            self._map.fd = self.fd
            self.view = view = memoryview(self._map)
        return view

    def limit(self, size_max: int) -> None:
        """Let the segment grow to ``size_max``: appends past it roll, and the map reaches as far."""
        if size_max > self.capacity and self.writes_in_flight:
            size_max = self.capacity  # The map cannot be made anew now; the next segment has the full size.
        elif size_max > self.capacity:
            self.drop_map()
            self.capacity = size_max
        self.size_end = size_max

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
        """Forget the map; whether there is no view of the file.  Views that are out keep their map alive."""
        self.view = None
        held, self._map = self._map, None
        if held is not None:
            held.fd = -1
            self.sent_end = max(self.sent_end, held.sent_end)
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

    def release_pages(self, start: int, end: int) -> None:
        """What was read of [start, end) is no more this process's memory; it stays in the page cache."""
        held = self._map
        end = min(end, self.size, 0 if held is None else len(held))
        if held is not None and start < end:
            os_file.release_pages(held, start, end)

    def written_lately(self) -> tuple[int, int]:
        """What was appended since the last time, but for the end, which readers are about to ask for."""
        start, end = self.released_to, self.size - WARM_TAIL_BYTES
        if end - start < WARM_TAIL_BYTES:
            return 0, 0
        self.released_to = end
        return start, end

    def unread_lately(self) -> tuple[int, int]:
        """All of it, if it was not used since the last time."""
        end = 0 if self.referenced else self.size
        self.referenced = False
        return 0, end

    def close(self) -> None:
        """Let go of the descriptor and the map; the segment opens itself again when it is used."""
        self.drop_map()
        if self.fd >= 0:
            os_file.close(self.fd)
            self.fd = -1
            self.cache.forget(self)
        self.warm_from = self.size  # nobody has asked for a while: the pages may be gone

    def retire(self) -> None:
        """The segment is out of the log; what reads from it still goes on, and the last to leave closes it."""
        self.retired = True
        if not self.pins:
            self.close()

    def pin(self) -> None:
        """An operation uses the descriptor in a thread: it stays open, and its number its own, until ``unpin``."""
        self.pins += 1

    def unpin(self) -> None:
        """An operation that used the descriptor in a thread has ended."""
        self.pins -= 1
        if not self.pins:
            self._close_replaced()
            if self.retired:
                self.close()

    def begin_thread_write(self) -> None:
        """A thread writes to the file from now on."""
        self.pin()
        self.writes_in_flight += 1

    def end_thread_write(self) -> None:
        """It does no more."""
        self.writes_in_flight -= 1
        self.unpin()

    def _close_replaced(self) -> None:
        """Close the descriptors of replaced files, unless a thread may be using one."""
        while self._replaced_fds and not self.pins:
            os_file.close(self._replaced_fds.pop())

    def opened_for_move(self, directory: Path) -> int:
        """A descriptor of the file of this name in another directory, for ``move_to``.  Raises OSError."""
        return os_file.open_for_append(directory / file_name(self.base_offset), create=False)

    def move_to(self, directory: Path, fd: int) -> None:
        """The file of this name in another directory, open as ``fd`` or not (-1), is the segment's; it is synced.

        It holds the same bytes.  Views that are out keep the former file, and threads its descriptor, which they need
        not notice as long as there is another.
        """
        assert fd >= 0 or not self.pins, "a thread uses its descriptor"
        self.directory = directory
        self.drop_map()
        self._pinned_maps.clear()
        self.exposed_end = self.sent_end = 0
        if self.fd >= 0:
            self._replaced_fds.append(self.fd)
            self.cache.forget(self)
        self.fd = fd
        if fd >= 0:
            self.cache.admit(self)
        self._close_replaced()
        self.note_synced(self.size)

    # Written ------------------------------------------------------------------------------------------------------

    def note_synced(self, size: int) -> None:
        """So many bytes have been synced."""
        self.synced_bytes = max(self.synced_bytes, size)
        self.write_back_at = max(self.write_back_at, size + WRITE_BACK_BYTES)

    def note_unsynced(self) -> None:
        """It is not known how much of it, and of its indexes, is on the disk: the next sync covers all."""
        self.synced_bytes = 0

    def begin_write_back(self) -> Callable[[], None]:
        """What has the kernel begin to write what it was not asked to yet; for a thread, with the segment pinned."""
        start = self.write_back_at - WRITE_BACK_BYTES
        self.write_back_at = self.size + WRITE_BACK_BYTES
        return partial(os_file.begin_write_back, self.fd, start, self.size - start)

    def cut_torn_tail(self) -> None:
        """After a failed write: end the file where its data ends."""
        if self.fd >= 0:
            os_file.ftruncate(self.fd, self.size)

    def cut(self, position: int) -> None:
        """Drop everything from file ``position`` on.

        Where a reader still holds views of what goes, the file is replaced by a copy of what stays. Cutting a file
        under a map kills the process that touches the map. So it is where sockets took pages of what goes. The cut, and
        what is appended behind it, would change a page in the hands of a peer that has not read it yet.
        """
        self.open()
        has_no_view = self.drop_map()
        if position >= self.sent_end and (has_no_view or position >= self.exposed_end):
            os_file.ftruncate(self.fd, position)
        else:
            self._replace_by_prefix(position)
        self.size = position
        self.synced_bytes = min(self.synced_bytes, position)
        self.write_back_at = min(self.write_back_at, position + WRITE_BACK_BYTES)
        self.warm_from = min(self.warm_from, position)
        self.released_to = min(self.released_to, position)

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
        self.exposed_end = self.sent_end = 0

    # Read ---------------------------------------------------------------------------------------------------------

    def expose(self, end: int) -> None:
        """Views of the map up to ``end`` are handed out."""
        self.exposed_end = max(self.exposed_end, end)

    def is_recent(self, start: int) -> bool:
        """Whether everything from ``start`` on was written so recently that it is in the page cache without asking."""
        return start >= self.warm_from and self.size - start <= WARM_TAIL_BYTES

    def is_warm(self, start: int, end: int) -> bool:
        """Whether [start, end) can be touched without waiting for the disk.  Raises OSError if there is no map."""
        if self.is_recent(start):
            return True
        self.readable()
        assert self._map is not None
        address = self._map.address
        return address > 0 and os_file.is_resident(address, start, min(end, self.size))
