"""Reading sealed segments and writing cleaned ones, by descriptors and positions.

Owns the buffer that batches are read through, and the four ``.cleaned`` files of the segment being written.  Knows no
rule of compaction.

Invariants:
- Every batch handed out is whole and has the checksum it says, or only its header is handed out.
- What is written is synced in small portions, so that the kernel never holds up other writers of the disk for it. It is
  synced as a whole before it is called ready.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from pybroker.storage.cleaner.cleaner_jobs import CleaningFailed, SourceSegment
from pybroker.storage.files import os_file
from pybroker.storage.files.file_names import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SUFFIXES,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    file_name,
)
from pybroker.storage.files.offset_index import OffsetIndex
from pybroker.storage.files.time_index import TimeIndex
from pybroker.storage.files.transaction_index import TransactionIndex
from pybroker.storage.results import AbortedTransaction
from pybroker_protocol.records import CURRENT_MAGIC, HEADER, HEADER_BYTES, LOG_OVERHEAD, BatchHeader, compute_crc

# The cleaner syncs what it writes in portions of this size: more dirty pages, and the kernel throttles all writers.
# To write portions back without a sync gave a producer beside it nothing.
CLEANER_SYNC_BYTES = 8 << 20

# Positions in Kafka's offset index are int32.
_POSITION_MAX = (1 << 31) - 1

Chunk = list[tuple[BatchHeader, memoryview]]
Skip = Callable[[BatchHeader], bool]

_NOT_READ = memoryview(b"")


def skip_nothing(_: BatchHeader) -> bool:
    """Every batch is read whole and checked."""
    return False


def read_chunks(
    directory: Path, segment: SourceSegment, position: int, buffer_bytes: int, skip: Skip = skip_nothing
) -> Iterator[tuple[int, Chunk]]:
    """(bytes read, batches) of one piece after another from ``position`` on; batches are good until the next piece.

    Of a batch that ``skip`` calls unneeded comes the header alone, and nothing is read behind it that is not near.
    Raises CleaningFailed where something else than batches lies in the file.
    """
    path = directory / file_name(segment.base_offset)
    fd = os_file.open_to_read(path)
    try:
        buffer = bytearray(buffer_bytes)
        header_only = False
        while position < segment.size:
            left = segment.size - position
            wanted = HEADER_BYTES if header_only else len(buffer)
            held = os_file.read_into(fd, memoryview(buffer)[: min(wanted, left)], position)
            chunk, used = _batches_in(memoryview(buffer)[:held], path, position, left, skip)
            if used:
                yield min(used, held), chunk
                position += used
                # The next one is likely to be as large and as little needed.
                header_only = used - held > buffer_bytes
                continue
            missing = _size_of_first(buffer, held)
            if held < HEADER_BYTES or not held < missing <= left:
                raise CleaningFailed(f"{path} holds no whole batch at {position}")
            header_only = False
            if missing > len(buffer):
                buffer = bytearray(missing)
    finally:
        os_file.close(fd)


def _size_of_first(buffer: bytearray, held: int) -> int:
    return LOG_OVERHEAD + int.from_bytes(buffer[8:12], "big", signed=True) if held >= LOG_OVERHEAD else 0


def _batches_in(view: memoryview, path: Path, position: int, left: int, skip: Skip) -> tuple[Chunk, int]:
    """The batches that begin in ``view`` and are to be skipped or lie in it whole; where the next one begins."""
    chunk: Chunk = []
    at = 0
    while at + HEADER_BYTES <= len(view):
        header = BatchHeader._make(HEADER.unpack_from(view, at))
        size = header.size_bytes
        if size < HEADER_BYTES or header.magic != CURRENT_MAGIC:
            raise CleaningFailed(f"{path} holds no batch of format 2 at {position + at}")
        if at + size <= left and skip(header):
            chunk.append((header, _NOT_READ))
            at += size
            continue
        if at + size > len(view):
            break
        if compute_crc(view, at) != header.crc:
            raise CleaningFailed(
                f"the batch at offset {header.base_offset} in {path} (position {position + at}) has a wrong checksum"
            )
        chunk.append((header, view[at : at + size]))
        at += size
    return chunk, at


def cleaned_path(directory: Path, base_offset: int, suffix: str) -> Path:
    """A file of a cleaned segment that does not stand in its place yet."""
    return directory / (file_name(base_offset, suffix) + CLEANED_SUFFIX)


def remove_cleaned(directory: Path, base_offset: int) -> None:
    """Remove what there is of a cleaned segment."""
    for suffix in SUFFIXES:
        os_file.unlink_if_exists(cleaned_path(directory, base_offset, suffix))


class CleanedSegment:
    """The ``.cleaned`` segment at ``base_offset``; ``finish`` makes it ready, ``discard`` removes it."""

    def __init__(self, directory: Path, base_offset: int, index_interval_bytes: int, sync: bool) -> None:
        self.base_offset = base_offset
        self._sync = sync
        self.size = 0
        self._directory = directory
        self._index_interval_bytes = index_interval_bytes
        self._offset_index = OffsetIndex(cleaned_path(directory, base_offset, INDEX_SUFFIX), base_offset)
        self._time_index = TimeIndex(cleaned_path(directory, base_offset, TIME_INDEX_SUFFIX), base_offset)
        remove_cleaned(directory, base_offset)  # of an earlier try
        self._transactions = TransactionIndex(cleaned_path(directory, base_offset, TXN_INDEX_SUFFIX))
        self._max_timestamp = -1
        self._offset_of_max = base_offset
        self._bytes_since_index = 0
        self._synced = 0
        self._fd = os_file.open_for_append(cleaned_path(directory, base_offset, LOG_SUFFIX))

    def append(self, batches: list[bytes | memoryview]) -> None:
        """Write batches behind what there is."""
        data = b"".join(batches)
        if self.size + len(data) > _POSITION_MAX:
            raise CleaningFailed(f"the cleaned segment {self.base_offset} in {self._directory} gets too large")
        os_file.write_fully(self._fd, data, self.size)
        position = self.size
        for batch in batches:
            self._index(BatchHeader._make(HEADER.unpack_from(batch)), position)
            position += len(batch)
        self.size = position
        if self._sync and self.size - self._synced >= CLEANER_SYNC_BYTES:
            os_file.fdatasync(self._fd)
            self._synced = self.size

    def _index(self, header: BatchHeader, position: int) -> None:
        last_offset = header.last_offset
        if header.max_timestamp > self._max_timestamp:
            self._max_timestamp, self._offset_of_max = header.max_timestamp, last_offset
        if self._bytes_since_index > self._index_interval_bytes:
            self._offset_index.append(last_offset, position)
            self._time_index.maybe_append(self._max_timestamp, self._offset_of_max)
            self._bytes_since_index = 0
        self._bytes_since_index += header.size_bytes

    def note_aborted(self, transaction: AbortedTransaction) -> None:
        """Name an aborted transaction whose marker lies in this segment."""
        self._transactions.append(transaction)

    def finish(self, modified_like: Path) -> None:
        """Write the indexes, sync everything, and give the data the modification time of ``modified_like``."""
        self._time_index.maybe_append(self._max_timestamp, self._offset_of_max)
        self._offset_index.persist()
        self._time_index.persist()
        self._transactions.persist()
        modified = os_file.stat(modified_like)
        os_file.utime(self._fd, ns=(modified.st_atime_ns, modified.st_mtime_ns))
        if self._sync:
            os_file.fsync(self._fd)
            for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX):
                os_file.sync_path(cleaned_path(self._directory, self.base_offset, suffix))
        os_file.close(self._fd)
        self._fd = -1

    def discard(self) -> None:
        """Remove it, unless ``finish`` made it ready."""
        if self._fd >= 0:
            os_file.close(self._fd)
            self._fd = -1
            remove_cleaned(self._directory, self.base_offset)
