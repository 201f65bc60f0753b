"""Opening a partition's directory whose bytes are known to be whole.  Kafka: LogLoader, without its recovery.

Owns the pass over the directory's names and sizes, the look at the ends of the active segment and its indexes, and the
reload of producer state.  What a crash may have left is ``recovery.py``'s, which ran before.
"""

from __future__ import annotations

import errno
import logging
import os
from bisect import bisect_right
from itertools import chain
from typing import TYPE_CHECKING

from pybroker.config.schema import INT_MAX
from pybroker.storage.files import os_file
from pybroker.storage.files.directory_listing import segment_files
from pybroker.storage.files.file_names import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
)
from pybroker.storage.files.offset_index import OffsetIndex, offset_max_of
from pybroker.storage.files.segment import Segment
from pybroker.storage.files.segment_scan import rebuild_indexes
from pybroker.storage.files.stored_headers import stored_headers
from pybroker.storage.files.time_index import TimeIndex
from pybroker.storage.log.producer_snapshot import latest_snapshot
from pybroker.storage.log.unreplicated_transactions import unreplicated_transactions
from pybroker.storage.results import StorageError
from pybroker.storage.rules.control_batch import replay_batch
from pybroker.storage.rules.producer_state import ProducerStateManager
from pybroker_protocol.records import HEADER_BYTES, LOG_OVERHEAD, BatchHeader, read_batch_header

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pybroker.storage.log.log_environment import RestartPoint
    from pybroker.storage.log.log_state import LogState

# Where the last batches of producers are looked for when a log is opened: what a dozen of them had in flight, five
# batches each, and more of small ones.  Headers alone are read.
PRODUCERS_TAIL_BYTES = 256 << 10
PRODUCERS_TAIL_BATCHES = 64

logger = logging.getLogger("pybroker.storage")


def load_log(log: LogState, restart_point: RestartPoint) -> None:
    """Give the log the state that its directory holds.  Raises OSError and StorageError.

    A directory that turns out not to be whole, though its owner said so, is recovered first.
    """
    log.directory.before_opening((log.topic, log.partition))
    damaged_from = _load(log, restart_point)
    if damaged_from is None:
        _remove_stale(log)
        _tell_what_is_missing(log, restart_point)
        return
    from pybroker.storage.log.recovery import recover_partition, sync_transaction_indexes

    logger.warning("%s is not whole, recovering it", log.path)
    settings, start_offset = log.environment.settings, restart_point.log_start_offset
    # A hole is of no interest here: the recovery after a crash has found it, and after a clean stop there is none.
    recovered = recover_partition(log.path, damaged_from, start_offset, settings.producer_id_expiration_ms)
    if settings.sync:
        sync_transaction_indexes(log.path, recovered.from_offset, restart_point.recovery_point)
    log.forget_segments()
    if _load(log, restart_point) is not None:
        raise StorageError(f"{log.path} could not be recovered")
    _tell_what_is_missing(log, restart_point)


def _tell_what_is_missing(log: LogState, restart_point: RestartPoint) -> None:
    """What was synced before is there; who has removed or cut it ought to hear of that."""
    end, synced = log.log_end_offset, restart_point.recovery_point
    if end < synced:
        logger.warning("%s ends at offset %d, and was on the disk up to %d: records are missing", log.path, end, synced)


def _remove_stale(log: LogState) -> None:
    """Remove what was renamed to be removed later when the last owner stopped cleanly."""
    stale = [log.path / name for name in os_file.names_in(log.path) if name.endswith(DELETED_SUFFIX)]
    if stale:
        log.directory.remove_later(stale, 0)


def _load(log: LogState, restart_point: RestartPoint) -> int | None:
    """Load what is there; returns from which offset on it has to be recovered first, ``None`` if it is whole."""
    files = segment_files(log.path)
    if not files:
        _check_never_there(log, restart_point)
        log.become_empty(max(restart_point.log_start_offset, 0))
        return None
    log.forget_segments()
    log.leader_epochs.load_or_forget()
    environment = log.environment
    for base_offset, size, modified in files:
        log.segments.add(Segment(log.path, base_offset, size, int(modified * 1000), environment.segments))
    active = log.segments[-1]
    load_active_indexes(active)
    log_end_offset = _load_end(active)
    damaged = _with_damaged_transactions(log)
    if damaged is not None or log_end_offset is None:
        return (damaged or active).base_offset
    load_leader_epochs(log, log_end_offset)
    for i, segment in enumerate(log.segments):
        if log.segments.end_offset(i, log_end_offset) > restart_point.recovery_point:
            segment.note_unsynced()
            log.flushes.note_changed_files()  # its name may not be on the disk either, if a process died before
    log_start_offset = max(restart_point.log_start_offset, files[0][0])
    log.become(
        min(log_start_offset, log_end_offset),
        log_end_offset,
        restart_point.high_watermark,
        restart_point.recovery_point,
    )
    load_producers(log)
    return None


def _with_damaged_transactions(log: LogState) -> Segment | None:
    """The first segment whose transaction index cannot be right."""
    if any(name.endswith(TXN_INDEX_SUFFIX) for name in os_file.listdir(log.path)):
        for segment in log.segments:
            if not segment.txn_index.is_sound(segment.base_offset):
                return segment
    return None


def _check_never_there(log: LogState, restart_point: RestartPoint) -> None:
    """Raise OSError where a partition without files is known to have had some: it must not begin anew."""
    log.directory.check_place()
    # A crash may have taken the files, and left the directory.  Of a directory that was not there at the start the
    # checkpoints tell nothing.
    if restart_point.had_files or (restart_point.high_watermark and not os_file.exists(log.path)):
        raise FileNotFoundError(errno.ENOENT, "its files are gone", os.fspath(log.path))


def load_active_indexes(segment: Segment) -> None:
    """Load the indexes of the segment that is appended to; a missing or bad one is made anew from the data."""
    offset_index = OffsetIndex.load(segment.path(INDEX_SUFFIX), segment.base_offset, segment.size)
    time_index = TimeIndex.load(segment.path(TIME_INDEX_SUFFIX), segment.base_offset)
    indexed = offset_index is not None and bool(offset_index.entries)
    # Data may be too short for an entry in either.  One in the offset index comes with one in the time index.
    if time_index is not None and (indexed or len(time_index)) and not segment.bears_out(time_index.last()):
        time_index = None
    if offset_index is None or time_index is None:
        segment.open()
        offset_index, time_index = rebuild_indexes(segment.directory, segment.base_offset, segment.fd, segment.size)
    segment.set_indexes(offset_index, time_index)
    segment.load_max_timestamp()


def _load_end(segment: Segment) -> int | None:
    """Walk the batches past the last index entry; returns the offset after the last one, ``None`` if they are torn."""
    position, expected = segment.offset_index.last()
    end_offset = segment.base_offset
    if segment.size == 0:
        return end_offset
    segment.open()
    end = start = position
    for at, header in stored_headers(segment, position):
        in_order = end_offset <= header.base_offset <= header.last_offset <= offset_max_of(segment.base_offset)
        end_offset = header.next_offset
        if not in_order or (at == start and expected >= 0 and end_offset != expected + 1):
            return None
        segment.note_stored(at, header.last_offset, header.max_timestamp, at - start)
        end = at + header.size_bytes
    if end != segment.size:
        return None
    segment.load_first_timestamp()
    return end_offset


def load_leader_epochs(log: LogState, log_end_offset: int) -> None:
    """Take the leader epochs from the data where their checkpoint is missing or damaged, and drop those past its end.

    Epochs only rise along a log, so that the indexes lead to where one begins.
    """
    cache = log.leader_epochs
    cache.truncate_from_end(log_end_offset + 1)
    if cache.entries or not any(segment.size for segment in log.segments):
        return
    for segment in log.segments:
        segment.open()
        for epoch, start_offset in _epoch_beginnings(segment):
            cache.assign(epoch, start_offset)
    cache.note_changed()
    log.write_epochs()


def _epoch_beginnings(segment: Segment) -> Iterator[tuple[int, int]]:
    """The leader epochs of the batches, each with the end of the one before: its first ones may be cleaned away."""
    known, end_offset = -1, segment.base_offset
    position = 0
    while True:
        for _, header in stored_headers(segment, position):
            if header.partition_leader_epoch > known:
                break
            end_offset = header.next_offset
        else:
            return
        known = header.partition_leader_epoch
        yield known, end_offset
        position = _before_next_epoch(segment, known)


def _before_next_epoch(segment: Segment, epoch: int) -> int:
    """The position of the last indexed batch that is of ``epoch`` or an earlier one."""

    def epoch_at(entry: int) -> int:
        header = os_file.pread(segment.fd, HEADER_BYTES, entry & 0xFFFFFFFF)
        # A sealed segment may be torn inside of the last that are indexed: nothing begins there.
        return read_batch_header(header).partition_leader_epoch if len(header) == HEADER_BYTES else INT_MAX

    entries = segment.offset_index.entries
    i = bisect_right(entries, epoch, key=epoch_at)
    return entries[i - 1] & 0xFFFFFFFF if i else 0


def load_producers(log: LogState) -> None:
    """Producer state from the last good snapshot and the batches after it."""
    producers = log.producers
    start = log.log_start_offset
    snapshot = latest_snapshot(log.path, log.log_end_offset)
    if snapshot is not None and snapshot[0] >= start:
        start = snapshot[0]
        producers.load(snapshot[1], start, log.environment.now_ms())
    else:
        producers.clear(start)
    if start < log.log_end_offset:
        _replay_from(log, start)
    if producers.producers:
        _refill_batches(log)
    producers.forget_replicated(log.high_watermark)
    if start > log.high_watermark and producers.has_completed_transactions():
        producers.unreplicated_txns.update(unreplicated_transactions(log))


def _replay_from(log: LogState, start: int) -> None:
    """Take the batches from ``start`` to the log's end into account."""
    producers = log.producers
    for i in range(log.segments.floor(start), len(log.segments)):
        segment = log.segments[i]
        segment.open()
        position = segment.offset_index.floor(start) if segment.base_offset < start else 0
        for at, header in stored_headers(segment, position):
            if header.base_offset >= start and header.producer_id >= 0:
                size = LOG_OVERHEAD + min(header.batch_length, 4096)
                batch = os_file.pread(segment.fd, size, at) if header.is_control else b""
                replay_batch(producers, header, header.base_offset, memoryview(batch))
    producers.remove_expired(log.environment.now_ms())


def _refill_batches(log: LogState) -> None:
    """Give producers their last five batches back, as far as the log's tail holds them.

    A snapshot knows only the last one, which is not enough for a producer that repeats all it had in flight.
    """
    tail = ProducerStateManager(log.producers.expiration_ms)
    for header in _tail(log):
        if header.producer_id >= 0 and not header.is_control:
            replay_batch(tail, header, header.base_offset, memoryview(b""))
    for producer_id, seen in tail.producers.items():
        entry = log.producers.producers.get(producer_id)
        if entry is not None and entry.producer_epoch == seen.producer_epoch and entry.batches:
            last = entry.batches[-1]
            # What was replayed after the snapshot may end with other batches than the tail: only agreement counts.
            if seen.batches[-1][:4] == last[:4] and len(seen.batches) > len(entry.batches):
                entry.batches = seen.batches


def _tail(log: LogState) -> Iterator[BatchHeader]:
    """The log's last batches in order: as many as are in flight of some producers, be they large or small ones."""
    pieces: list[list[BatchHeader]] = []
    missing_bytes, missing_batches = PRODUCERS_TAIL_BYTES, PRODUCERS_TAIL_BATCHES
    for i in reversed(range(len(log.segments))):
        if missing_bytes <= 0 and missing_batches <= 0:
            break
        segment = log.segments[i]
        segment.open()
        end = segment.size
        while end > 0 and (missing_bytes > 0 or missing_batches > 0):
            start = segment.offset_index.floor_position(end - 1)
            pieces.append([header for _, header in stored_headers(segment, start, end)])
            missing_bytes -= end - start
            missing_batches -= len(pieces[-1])
            end = start
    return chain.from_iterable(reversed(pieces))
