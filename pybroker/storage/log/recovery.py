"""Making a partition's directory whole again after a crash.  Kafka: LogLoader.recoverLog and LogSegment.recover.

Owns the scan of everything from the segment that holds the recovery point on. Batches are read in large pieces and
checked by their CRC. What follows the first bad byte is a torn tail and is cut. Indexes, producer state and leader
epochs are made anew from what is good. Also owns finishing, or undoing, an interrupted swap of compacted segments.

Invariants: nothing below the recovery point is changed; afterwards the directory may be opened as after a clean stop.

Where the disk has no space for what is made anew from the data (indexes, snapshots, leader epochs) it is left out, and
its file removed. An opening of the log or the segment finds it missing and makes it in memory. Only aborted
transactions that cannot be written down make a log wait for space. So each such file may be missing or damaged at any
time (``tests/storage/test_every_damaged_file.py``). An empty transaction index alone looks like that of a segment where
nothing was aborted, as in Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pybroker.storage.files import os_file
from pybroker.storage.files.checkpoints import PARTITION_METADATA
from pybroker.storage.files.directory_listing import ListedSegment, segment_files
from pybroker.storage.files.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SUFFIXES,
    SWAP_SUFFIX,
    TXN_INDEX_SUFFIX,
    file_name,
)
from pybroker.storage.files.leader_epoch_cache import LeaderEpochCache
from pybroker.storage.files.offset_index import offset_max_of
from pybroker.storage.files.segment_scan import RebuiltIndexes, SegmentScan
from pybroker.storage.files.transaction_index import TransactionIndex
from pybroker.storage.log.producer_snapshot import SNAPSHOT_SUFFIX, delete_snapshots, latest_snapshot, write_snapshot
from pybroker.storage.results import AbortedTransaction
from pybroker.storage.rules.control_batch import replay_batch
from pybroker.storage.rules.producer_state import ProducerStateManager
from pybroker.storage_limits import RECOVERED_AT_FIRST_TOUCH_BYTES_MAX
from pybroker_protocol.records import BASE_OFFSET, LAST_OFFSET_DELTA, PARTITION_LEADER_EPOCH, PRODUCER_ID

_HALF_WAY = (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)

logger = logging.getLogger("pybroker.storage")


class Recovered(NamedTuple):
    """The log end offset, and from where on files were written anew: none of them is synced.

    ``hole``: where a segment lost its end and the next one is there, None if none did (``_lost_from``).  The power
    failed when the next one's name was on the disk, and the end of this one was not.
    """

    end_offset: int
    from_offset: int
    hole: int | None = None


def recover_partition(
    directory: Path, recovery_point: int, log_start_offset: int, expiration_ms: int, clean_offset: int = 0
) -> Recovered:
    """Recover one partition's directory.  Raises OSError and StorageError.

    ``clean_offset``: what the cleaner's checkpoint says of the log; what is missing behind a segment that begins below
    was cleaned away.

    Without space on the disk what can be made anew from the data is left out, for the next opening: a torn tail is
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
    hole = None
    for i in range(first, len(files)):
        base_offset, size, _ = files[i]
        if hole is None and i > first and files[i - 1][0] >= clean_offset:
            hole = _lost_from(files[i - 1][0], end_offset, base_offset, max(recovery_point, log_start_offset))
        next_base_offset = files[i + 1][0] if i + 1 < len(files) else 1 << 63
        known = _KnownEpochs(epochs, known_epochs, end_offset)
        end_offset, kept = _recover_segment(directory, files[i], next_base_offset, producers, known)
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
    epochs.note_changed(epochs.entries != known_epochs or not known_epochs)
    _write_epochs(epochs, complete=bool(known_epochs) or first == 0)
    if producers.producers or sum(size for _, size, _ in files) > RECOVERED_AT_FIRST_TOUCH_BYTES_MAX:
        _write_snapshot(directory, end_offset, producers)  # else an opening finds that there are none as quickly
    return Recovered(end_offset, files[first][0], hole)


def _lost_from(former_base_offset: int, end_offset: int, base_offset: int, known_end_offset: int) -> int | None:
    """Where what was lost begins between a segment's end and the next one's beginning; None if nothing was.

    Nothing is lost below ``known_end_offset``: all that was there was on the disk, or deleted.  What is missing there
    the cleaner took away, which goes no further than that (``LogCleaner``).  A leader's segment holds no more offsets
    than its indexes can name: a larger distance is a follower's, whose leader had cleaned away as many.
    """
    start = max(end_offset, known_end_offset)
    return start if start < base_offset <= offset_max_of(former_base_offset) + 1 else None


def _write_epochs(epochs: LeaderEpochCache, complete: bool) -> None:
    """Write the leader epochs; what is known of a part of the log only is left to be taken from all of it."""
    try:
        if complete:
            epochs.write()
        else:
            os_file.unlink_if_exists(epochs.path)
    except OSError as error:
        if not os_file.is_passing(error):
            raise
        os_file.unlink_if_exists(epochs.path)


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
        if from_offset <= base_offset < recovery_point and os_file.exists(path):
            os_file.sync_path(path)
            found = True
    if found:
        os_file.sync_path(directory)


class _KnownEpochs:
    """The leader epochs as the batches have them and, where batches were cleaned away, as the checkpoint had them.

    A follower that has what those batches were in place of would not learn that, if the epoch began behind it.
    """

    def __init__(self, epochs: LeaderEpochCache, known: Sequence[tuple[int, int]], end_offset: int) -> None:
        self._epochs = epochs
        self._known = known
        self._end_offset = end_offset  # of the batch before

    def found(self, epoch: int, base_offset: int, end_offset: int) -> None:
        """A batch of ``epoch`` lies from ``base_offset`` to ``end_offset``, behind the last that was found."""
        epochs, start_offset = self._epochs, self._end_offset
        if epoch > epochs.latest_epoch:
            for known, known_start in self._known:
                if epochs.latest_epoch < known <= epoch and start_offset <= known_start <= base_offset:
                    epochs.assign(known, known_start)
                    start_offset = known_start + 1
            # Of one that the checkpoint lacks: the lowest that it may be, since followers cut there.
            epochs.assign(epoch, min(start_offset, base_offset))
        self._end_offset = end_offset


def _recover_segment(
    directory: Path,
    file: ListedSegment,
    next_base_offset: int,
    producers: ProducerStateManager,
    epochs: _KnownEpochs,
) -> tuple[int, int]:
    """Scan one segment, write its indexes, cut its torn tail; returns (end offset, bytes kept)."""
    base_offset, size, _ = file
    rebuilt = RebuiltIndexes(directory, base_offset)
    transactions: list[AbortedTransaction] = []
    fd = os_file.open_for_append(directory / file_name(base_offset))
    try:
        scan = SegmentScan(fd, size, base_offset, next_base_offset)
        for position, header, batch in scan:
            rebuilt.add(position, header)
            epochs.found(header[PARTITION_LEADER_EPOCH], header[BASE_OFFSET], rebuilt.end_offset)
            if header[PRODUCER_ID] >= 0:
                aborted = replay_batch(producers, header, header[BASE_OFFSET], batch)
                if aborted is not None:
                    transactions.append(aborted)
        if scan.end < size:
            os_file.ftruncate(fd, scan.end)
    finally:
        os_file.close(fd)
    rebuilt.write()
    TransactionIndex(directory / file_name(base_offset, TXN_INDEX_SUFFIX)).rewrite(transactions)
    return rebuilt.end_offset, scan.end


def _producers_before(
    directory: Path, files: list[ListedSegment], offset: int, expiration_ms: int
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
                if header[PRODUCER_ID] >= 0 and header[BASE_OFFSET] >= start:
                    replay_batch(producers, header, header[BASE_OFFSET], batch)
        finally:
            os_file.close(fd)
    return producers


def _remove_segments(directory: Path, files: list[ListedSegment]) -> None:
    for base_offset, _, _ in files:
        logger.warning("Removing %s, which lies behind what was lost", directory / file_name(base_offset))
        for suffix in SUFFIXES:
            os_file.unlink_if_exists(directory / file_name(base_offset, suffix))
    if files:
        delete_snapshots(directory, above=files[0][0] - 1)


def tidy_directory(directory: Path) -> None:
    """Remove what deletion and compaction left half way; finish the swaps that had begun, as Kafka does."""
    names = sorted(name for name in os_file.listdir(directory) if name.endswith(_HALF_WAY))
    if not names:
        return
    for name in names:
        # Kafka keeps deleted snapshots of its metadata log by another rule.
        if name.endswith(DELETED_SUFFIX) and not name.endswith(".checkpoint" + DELETED_SUFFIX):
            os_file.unlink_if_exists(directory / name)
    cleaned = [name for name in names if name.endswith(CLEANED_SUFFIX)]
    lowest_cleaned = min((int(name[:20]) for name in cleaned if name[:20].isdigit()), default=1 << 63)
    swaps = [name for name in names if name.endswith(SWAP_SUFFIX)]
    for name in [*cleaned, *(name for name in swaps if int(name[:20]) >= lowest_cleaned)]:
        os_file.unlink_if_exists(directory / name)
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
                for _, header, _ in SegmentScan(fd, os_file.stat(path).st_size, int(name[:20])):
                    end_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
            finally:
                os_file.close(fd)
            low, high = min(low, int(name[:20])), max(high, end_offset)
    # By name, as a data file may have been renamed already and its indexes not: they would speak of what is gone.
    for path in [directory / name for name in os_file.listdir(directory)]:
        if path.suffix in {*SUFFIXES, SNAPSHOT_SUFFIX} and path.stem.isdigit() and low <= int(path.stem) < high:
            os_file.unlink_if_exists(path)
    for name in swaps:
        os_file.rename(directory / name, directory / name.removesuffix(SWAP_SUFFIX))
