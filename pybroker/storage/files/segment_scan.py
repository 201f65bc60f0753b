"""A segment read from its beginning to its end, each batch checked by its CRC, and what that makes anew: its indexes.

Owns the walk over a data file that may be damaged, in large pieces, and the indexes that come of one.  Does not own
what becomes of a file that ends earlier than its bytes do: recovery cuts it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

from pybroker.storage.files import os_file
from pybroker.storage.files.file_names import INDEX_SUFFIX, TIME_INDEX_SUFFIX, file_name
from pybroker.storage.files.offset_index import OffsetIndex, offset_max_of
from pybroker.storage.files.time_index import TimeIndex
from pybroker.storage.results import StorageError
from pybroker_protocol.checksum import crc32c
from pybroker_protocol.records import (
    ATTRIBUTES_AT,
    BASE_OFFSET,
    BATCH_LENGTH,
    CRC,
    HEADER,
    HEADER_BYTES,
    LAST_OFFSET_DELTA,
    LOG_OVERHEAD,
    MAGIC,
    MAX_TIMESTAMP,
    HeaderFields,
)

# One piece of a scan: large enough that system calls do not count, small enough for the processor's caches.
SCAN_BYTES = 1 << 20
_INDEX_INTERVAL_BYTES = 4096

ScannedBatch = tuple[int, HeaderFields, memoryview]

logger = logging.getLogger("pybroker.storage")


class SegmentScan:
    """Walks the good batches of a data file; ``end`` is where they end so far."""

    __slots__ = ("_base_offset", "_buffer", "_fd", "_held", "_offset_max", "_size", "_start", "end")

    def __init__(self, fd: int, size: int, base_offset: int, next_base_offset: int = 1 << 63) -> None:
        self._fd = fd
        self._base_offset = base_offset
        # The CRC does not cover the base offset, so that damage to it is seen by the order of offsets alone.
        self._offset_max = min(offset_max_of(base_offset), next_base_offset - 1)
        self._size = size
        self._buffer = memoryview(bytearray(min(SCAN_BYTES, max(size, HEADER_BYTES))))
        self._start = 0
        self._held = 0
        self.end = 0

    def __iter__(self) -> Iterator[ScannedBatch]:
        """(position, header, bytes) of each batch; the bytes are good until the next step, and cut for huge batches."""
        unpack = HEADER.unpack_from
        next_offset = self._base_offset
        while self.end + HEADER_BYTES <= self._size:
            at = self._hold(HEADER_BYTES)
            header = unpack(self._buffer, at)
            size = header[BATCH_LENGTH] + LOG_OVERHEAD
            if (
                size < HEADER_BYTES
                or self.end + size > self._size
                or header[MAGIC] != 2
                or header[BASE_OFFSET] < next_offset
            ):
                break
            if size <= len(self._buffer):
                at = self._hold(size)
                batch = self._buffer[at : at + size]
                crc = crc32c(batch[ATTRIBUTES_AT:])
            else:
                batch = self._buffer[at : at + HEADER_BYTES]
                crc = self._crc_of_huge(self.end + ATTRIBUTES_AT, size - ATTRIBUTES_AT)
            if (
                crc != header[CRC]
                or header[LAST_OFFSET_DELTA] < 0
                or header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] > self._offset_max
            ):
                break
            next_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
            position = self.end
            self.end = position + size
            yield position, header, batch
        if self.end < self._size:
            self._refuse_old_format()

    def _hold(self, count: int) -> int:
        """Have ``count`` bytes from ``end`` on in the buffer; returns where they begin in it."""
        at = self.end - self._start
        if at < 0 or at + count > self._held:
            self._start = self.end
            self._held = os_file.read_into(self._fd, self._buffer, self.end)
            at = 0
        return at

    def _crc_of_huge(self, position: int, count: int) -> int:
        crc = 0
        self._held = 0
        while count:
            piece = os_file.pread(self._fd, min(count, SCAN_BYTES), position)
            if not piece:
                return -1
            crc = crc32c(piece, crc)
            position += len(piece)
            count -= len(piece)
        return crc

    def _refuse_old_format(self) -> None:
        """Message sets of magic 0 and 1 are not read here; cutting them off as a torn tail would destroy good data."""
        head = os_file.pread(self._fd, LOG_OVERHEAD + 5, self.end)
        length = int.from_bytes(head[8:12], "big")
        if (
            len(head) == LOG_OVERHEAD + 5
            and head[16] in {0, 1}
            and 14 <= length <= self._size - self.end - LOG_OVERHEAD
        ):
            body = os_file.pread(self._fd, length, self.end + LOG_OVERHEAD)
            if crc32(body[4:]) == int.from_bytes(body[:4], "big"):
                raise StorageError("The log holds messages of format 0 or 1, which this broker does not read")


class RebuiltIndexes:
    """What a scan makes anew for one segment."""

    __slots__ = ("bytes_since_index", "end_offset", "max_timestamp", "offset_index", "offset_of_max", "time_index")

    def __init__(self, directory: Path, base_offset: int) -> None:
        self.offset_index = OffsetIndex(directory / file_name(base_offset, INDEX_SUFFIX), base_offset)
        self.time_index = TimeIndex(directory / file_name(base_offset, TIME_INDEX_SUFFIX), base_offset)
        self.end_offset = base_offset
        self.max_timestamp = -1
        self.offset_of_max = base_offset
        self.bytes_since_index = 0

    def add(self, position: int, header: HeaderFields) -> None:
        """Take the next batch into account, which lies at ``position``."""
        last_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
        self.end_offset = last_offset + 1
        if header[MAX_TIMESTAMP] > self.max_timestamp:
            self.max_timestamp = header[MAX_TIMESTAMP]
            self.offset_of_max = last_offset
        if self.bytes_since_index > _INDEX_INTERVAL_BYTES:
            self.offset_index.append(last_offset, position)
            self.time_index.maybe_append(self.max_timestamp, self.offset_of_max)
            self.bytes_since_index = 0
        self.bytes_since_index += header[BATCH_LENGTH] + LOG_OVERHEAD

    def write(self) -> None:
        """Write the indexes; without space there are none, until there is and they are made anew."""
        self.time_index.maybe_append(self.max_timestamp, self.offset_of_max)
        try:
            self.offset_index.rewrite()
            self.time_index.rewrite()
        except OSError as error:
            if not os_file.is_passing(error):
                raise
            self.offset_index.remove_file()
            self.time_index.remove_file()


def rebuild_indexes(directory: Path, base_offset: int, fd: int, size: int) -> tuple[OffsetIndex, TimeIndex]:
    """A whole segment's indexes, made anew because they are missing or damaged.  Raises OSError."""
    logger.warning("Rebuilding the indexes of %s", directory / file_name(base_offset))
    rebuilt = RebuiltIndexes(directory, base_offset)
    for position, header, _ in SegmentScan(fd, size, base_offset):
        rebuilt.add(position, header)
    rebuilt.write()
    return rebuilt.offset_index, rebuilt.time_index
