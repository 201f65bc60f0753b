"""Making a partition's directory whole again after a crash.  Kafka: LogLoader.recoverLog and LogSegment.recover.

Owns the scan of everything from the segment that holds the recovery point on: batches are read in large pieces and
checked by their CRC; what follows the first bad byte is a torn tail and is cut; indexes, producer state and leader
epochs are made anew from what is good.  Also owns finishing, or undoing, an interrupted swap of compacted segments.

Invariants: nothing below the recovery point is changed; afterwards the directory may be opened as after a clean stop.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from crc32c import crc32c

from pybroker.limits import RECOVERED_AT_FIRST_TOUCH_BYTES_MAX
from pybroker.storage import os_file
from pybroker.storage.checkpoints import PARTITION_METADATA
from pybroker.storage.control_batch import replay_batch
from pybroker.storage.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SUFFIXES,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    file_name,
)
from pybroker.storage.leader_epoch_cache import LeaderEpochCache
from pybroker.storage.log_loader import SegmentFile, segment_files
from pybroker.storage.offset_index import OffsetIndex
from pybroker.storage.producer_snapshot import SNAPSHOT_SUFFIX, delete_snapshots, latest_snapshot, write_snapshot
from pybroker.storage.producer_state import ProducerStateManager
from pybroker.storage.results import StorageError
from pybroker.storage.segment import RELATIVE_OFFSET_MAX, Segment
from pybroker.storage.time_index import TimeIndex
from pybroker.storage.transaction_index import AbortedTransaction, TransactionIndex
from pybroker.storage.validator import HeaderFields
from pybroker_protocol.records import ATTRIBUTES_AT, HEADER, HEADER_BYTES, LOG_OVERHEAD

# One piece of a scan: large enough that system calls do not count, small enough for the processor's caches.
SCAN_BYTES = 1 << 20
_INDEX_INTERVAL_BYTES = 4096
_HALF_WAY = (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)

logger = logging.getLogger("pybroker.storage")

ScannedBatch = tuple[int, HeaderFields, memoryview]


class SegmentScan:
    """Walks the good batches of a data file; ``end`` is where they end so far."""

    __slots__ = ("_base_offset", "_buffer", "_fd", "_held", "_offset_max", "_size", "_start", "end")

    def __init__(self, fd: int, size: int, base_offset: int, next_base_offset: int = 1 << 63) -> None:
        self._fd = fd
        self._base_offset = base_offset
        # The CRC does not cover the base offset, so that damage to it is seen by the order of offsets alone.
        self._offset_max = min(base_offset + RELATIVE_OFFSET_MAX, next_base_offset - 1)
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
            size = header[1] + LOG_OVERHEAD
            if size < HEADER_BYTES or self.end + size > self._size or header[3] != 2 or header[0] < next_offset:
                break
            if size <= len(self._buffer):
                at = self._hold(size)
                batch = self._buffer[at : at + size]
                crc = crc32c(batch[ATTRIBUTES_AT:])
            else:
                batch = self._buffer[at : at + HEADER_BYTES]
                crc = self._crc_of_huge(self.end + ATTRIBUTES_AT, size - ATTRIBUTES_AT)
            if crc != header[4] or header[6] < 0 or header[0] + header[6] > self._offset_max:
                break
            next_offset = header[0] + header[6] + 1
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


class _Rebuilt:
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
        last_offset = header[0] + header[6]
        self.end_offset = last_offset + 1
        if header[8] > self.max_timestamp:
            self.max_timestamp = header[8]
            self.offset_of_max = last_offset
        if self.bytes_since_index > _INDEX_INTERVAL_BYTES:
            self.offset_index.append(last_offset, position)
            self.time_index.maybe_append(self.max_timestamp, self.offset_of_max)
            self.bytes_since_index = 0
        self.bytes_since_index += header[1] + LOG_OVERHEAD

    def write(self) -> None:
        """Write the indexes; without room there are none, until there is and somebody makes them anew."""
        self.time_index.maybe_append(self.max_timestamp, self.offset_of_max)
        try:
            self.offset_index.rewrite()
            self.time_index.rewrite()
        except OSError as error:
            if not os_file.is_passing(error):
                raise
            self.offset_index.remove_file()
            self.time_index.remove_file()


def rebuild_indexes(segment: Segment) -> tuple[OffsetIndex, TimeIndex]:
    """A whole segment's indexes, made anew because they are missing or damaged.  Raises OSError."""
    logger.warning("Rebuilding the indexes of %s", segment.path())
    segment.open()
    rebuilt = _Rebuilt(segment.directory, segment.base_offset)
    for position, header, _ in SegmentScan(segment.fd, segment.size, segment.base_offset):
        rebuilt.add(position, header)
    rebuilt.write()
    return rebuilt.offset_index, rebuilt.time_index


class Recovered(NamedTuple):
    """The log end offset, and from where on files were written anew: none of them is synced."""

    end_offset: int
    from_offset: int


def recover_partition(directory: Path, recovery_point: int, log_start_offset: int, expiration_ms: int) -> Recovered:
    """Recover one partition's directory.  Raises OSError and StorageError.

    Without room on the disk what can be made anew from the data is left out, for whoever opens the log: a torn tail is
    cut all the same.
    """
    tidy_directory(directory)
    files = segment_files(directory)
    if not files:
        return Recovered(log_start_offset, log_start_offset)
    first = max(sum(base_offset <= recovery_point for base_offset, _, _ in files) - 1, 0)
    producers = _producers_before(directory, files[:first], files[first][0], expiration_ms)
    epochs = LeaderEpochCache(directory)
    epochs.load_or_forget()
    known_epochs = epochs.entries
    epochs.truncate_from_end(files[first][0])
    end_offset = files[first][0]
    delete_snapshots(directory, above=end_offset)
    for i in range(first, len(files)):
        base_offset, size, _ = files[i]
        next_base_offset = files[i + 1][0] if i + 1 < len(files) else 1 << 63
        end_offset, kept = _recover_segment(directory, files[i], next_base_offset, producers, epochs)
        if kept < size:
            logger.warning("Cut %d torn bytes off %s", size - kept, directory / file_name(base_offset))
            _remove_segments(directory, files[i + 1 :])
            break
        if i + 1 < len(files):
            _write_snapshot(directory, files[i + 1][0], producers)
    if end_offset < log_start_offset:
        # What DeleteRecords had reached was lost with the crash: its offsets must not be given out again.
        _remove_segments(directory, files)
        epochs.clear()
        end_offset = log_start_offset
    epochs.truncate_from_start(log_start_offset)
    epochs.dirty = epochs.entries != known_epochs or not known_epochs
    _write_epochs(epochs, complete=bool(known_epochs) or first == 0)
    if producers.producers or sum(size for _, size, _ in files) > RECOVERED_AT_FIRST_TOUCH_BYTES_MAX:
        _write_snapshot(directory, end_offset, producers)  # else an opening finds that there are none as quickly
    return Recovered(end_offset, files[first][0])


def _write_epochs(epochs: LeaderEpochCache, complete: bool) -> None:
    """Write the leader epochs; what is known of a part of the log only is left to be taken from all of it."""
    try:
        if complete:
            epochs.write()
        else:
            epochs.path.unlink(missing_ok=True)
    except OSError as error:
        if not os_file.is_passing(error):
            raise
        epochs.path.unlink(missing_ok=True)


def _write_snapshot(directory: Path, offset: int, producers: ProducerStateManager) -> None:
    try:
        write_snapshot(directory, offset, producers.producers, sync=False)
    except OSError as error:
        if not os_file.is_passing(error):
            raise


def sync_partition(directory: Path, from_offset: int) -> None:
    """Sync what a recovered partition holds from an offset on, and the names of its files.  Raises OSError."""
    files = segment_files(directory)
    for i, (base_offset, _, _) in enumerate(files):
        if i + 1 == len(files) or files[i + 1][0] > from_offset:
            for suffix in SUFFIXES:
                os_file.sync_path(directory / file_name(base_offset, suffix))
    os_file.sync_path(directory / PARTITION_METADATA)
    os_file.sync_path(directory)
    os_file.sync_path(directory.parent)


def sync_transaction_indexes(directory: Path, from_offset: int, recovery_point: int) -> None:
    """Sync the indexes of aborted transactions that were written anew for data which is on the disk.  Raises OSError.

    Those of later data are synced with it.  The other indexes can be made anew at any time, and an open would notice;
    without an entry of this one an aborted transaction looks like a committed one.
    """
    found = False
    for base_offset, _, _ in segment_files(directory):
        path = directory / file_name(base_offset, TXN_INDEX_SUFFIX)
        if from_offset <= base_offset < recovery_point and path.exists():
            os_file.sync_path(path)
            found = True
    if found:
        os_file.sync_path(directory)


def _recover_segment(
    directory: Path,
    file: SegmentFile,
    next_base_offset: int,
    producers: ProducerStateManager,
    epochs: LeaderEpochCache,
) -> tuple[int, int]:
    """Scan one segment, write its indexes, cut its torn tail; returns (end offset, bytes kept)."""
    base_offset, size, _ = file
    rebuilt = _Rebuilt(directory, base_offset)
    transactions: list[AbortedTransaction] = []
    fd = os_file.open_for_append(directory / file_name(base_offset))
    try:
        scan = SegmentScan(fd, size, base_offset, next_base_offset)
        for position, header, batch in scan:
            rebuilt.add(position, header)
            if header[2] > epochs.latest_epoch:
                epochs.assign(header[2], header[0])
            if header[9] >= 0:
                aborted = replay_batch(producers, header, header[0], batch)
                if aborted is not None:
                    transactions.append(aborted)
        if scan.end < size:
            os_file.ftruncate(fd, scan.end)
    finally:
        os.close(fd)
    rebuilt.write()
    TransactionIndex(directory / file_name(base_offset, TXN_INDEX_SUFFIX)).rewrite(transactions)
    return rebuilt.end_offset, scan.end


def _producers_before(
    directory: Path, files: list[SegmentFile], offset: int, expiration_ms: int
) -> ProducerStateManager:
    """The producers of everything below ``offset``: the last snapshot, and the batches of ``files`` after it."""
    producers = ProducerStateManager(expiration_ms)
    snapshot = latest_snapshot(directory, offset)
    start = 0
    if snapshot is not None:
        start = snapshot[0]
        producers.load(snapshot[1], start, 0)
    for i, (base_offset, size, _) in enumerate(files):
        end_offset = files[i + 1][0] if i + 1 < len(files) else offset
        if end_offset <= start:
            continue
        fd = os_file.open_for_append(directory / file_name(base_offset))
        try:
            for _, header, batch in SegmentScan(fd, size, base_offset):
                if header[9] >= 0 and header[0] >= start:
                    replay_batch(producers, header, header[0], batch)
        finally:
            os.close(fd)
    return producers


def _remove_segments(directory: Path, files: list[SegmentFile]) -> None:
    for base_offset, _, _ in files:
        logger.warning("Removing %s, which lies behind what was lost", directory / file_name(base_offset))
        for suffix in SUFFIXES:
            (directory / file_name(base_offset, suffix)).unlink(missing_ok=True)
    if files:
        delete_snapshots(directory, above=files[0][0] - 1)


def tidy_directory(directory: Path) -> None:
    """Remove what deletion and compaction left half way; finish the swaps that had begun, as Kafka does."""
    names = sorted(name for name in os.listdir(directory) if name.endswith(_HALF_WAY))
    if not names:
        return
    for name in names:
        # Kafka keeps deleted snapshots of its metadata log by another rule.
        if name.endswith(DELETED_SUFFIX) and not name.endswith(".checkpoint" + DELETED_SUFFIX):
            (directory / name).unlink(missing_ok=True)
    cleaned = [name for name in names if name.endswith(CLEANED_SUFFIX)]
    lowest_cleaned = min((int(name[:20]) for name in cleaned if name[:20].isdigit()), default=1 << 63)
    swaps = [name for name in names if name.endswith(SWAP_SUFFIX)]
    for name in [*cleaned, *(name for name in swaps if int(name[:20]) >= lowest_cleaned)]:
        (directory / name).unlink(missing_ok=True)
    _finish_swaps(directory, [name for name in swaps if int(name[:20]) < lowest_cleaned])


def _finish_swaps(directory: Path, swaps: list[str]) -> None:
    """Replace the segments that the ``.swap`` ones were compacted from."""
    low, high = 1 << 63, -1
    for name in swaps:
        if name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
            path = directory / name
            end_offset = int(name[:20])
            fd = os_file.open_for_append(path)
            try:
                for _, header, _ in SegmentScan(fd, path.stat().st_size, int(name[:20])):
                    end_offset = header[0] + header[6] + 1
            finally:
                os.close(fd)
            low, high = min(low, int(name[:20])), max(high, end_offset)
    # By name, as a data file may have been renamed already and its indexes not: they would speak of what is gone.
    for path in list(directory.iterdir()):
        if path.suffix in {*SUFFIXES, SNAPSHOT_SUFFIX} and path.stem.isdigit() and low <= int(path.stem) < high:
            path.unlink(missing_ok=True)
    for name in swaps:
        os_file.rename(directory / name, directory / name.removesuffix(SWAP_SUFFIX))
