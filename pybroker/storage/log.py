"""One partition's log: segments in Kafka's file format, with offsets, leader epochs and producers.  Kafka's UnifiedLog.

Owns the offsets (start, end, high watermark), their assignment, the roll to a new segment, truncation, and the
answers to reads.  Does not own replication's decisions: the Partition above moves the high watermark, says when to
truncate, and is the leader or a follower.

Invariants:
- ``log_end_offset`` is the readable end: the bytes below it are written.  ``next_offset`` is the reserved end; the two
  differ only while the writer thread has appends of this log in flight.
- An offset once readable is never given to other bytes, except after ``truncate_to`` below it.
- Errors of a client or of the disk are results, never exceptions.

A log is opened by the first touch: until then it is an ``_UnopenedLog``, whose ``__getattr__`` opens it where a slot of
its state is unset.  So ten thousand idle partitions cost ten thousand small objects; and an opened one, whose class has
no ``__getattr__``, pays nothing: with one, Python reads every attribute of a log, set or not, at five times the cost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Any, TypeVar

from pybroker.limits import INLINE_WRITE_BYTES_MAX
from pybroker.storage import os_file
from pybroker.storage.append_queue import AppendQueue, OnComplete, PendingAppend
from pybroker.storage.control_batch import replay_batch
from pybroker.storage.file_names import DELETED_SUFFIX
from pybroker.storage.flush_queue import FlushQueue
from pybroker.storage.leader_epoch_cache import LeaderEpochCache
from pybroker.storage.log_environment import RestartPoint
from pybroker.storage.log_reader import bytes_between, read_segments
from pybroker.storage.log_rolling import make_room, roll
from pybroker.storage.producer_snapshot import delete_snapshots, write_snapshot
from pybroker.storage.producer_state import BatchMetadata, ProducerStateManager, SequenceError
from pybroker.storage.results import (
    EMPTY,
    KAFKA_STORAGE_ERROR,
    NONE,
    OFFSET_OUT_OF_RANGE,
    AppendResult,
    ColdRead,
    ReadResult,
    StorageError,
)
from pybroker.storage.segment import Segment
from pybroker.storage.segment_list import SegmentList
from pybroker.storage.validator import (
    TIMESTAMP_TOO_LATE,
    AppendRules,
    HeaderFields,
    Rejection,
    stamp_log_append_time,
    validate,
)
from pybroker_protocol.records import CONTROL_FLAG, HEADER, LOG_OVERHEAD, TRANSACTIONAL_FLAG, end_offset_of

if TYPE_CHECKING:
    from pybroker.config.log_config import LogConfig
    from pybroker.storage.log_dir import LogDir
    from pybroker.storage.log_environment import LogEnvironment
    from pybroker.storage.timestamp_lookups import Found
    from pybroker.storage.transaction_index import AbortedTransaction

T = TypeVar("T")

_PATCH = Struct(">qii")  # base offset, length (as it was), leader epoch: outside the CRC
_patch_into = _PATCH.pack_into
_NEVER = 1 << 63
# The slots that ``open`` fills.
_STATE = (
    "active",
    "flushes",
    "high_watermark",
    "leader_epochs",
    "log_end_offset",
    "log_start_offset",
    "next_offset",
    "producers",
    "queue",
    "segments",
)
_NO_RESULT = ReadResult(NONE, EMPTY)
_OUT_OF_RANGE = ReadResult(OFFSET_OUT_OF_RANGE, EMPTY)

logger = logging.getLogger("pybroker.storage")


class Refusal(Enum):
    """Why a log takes nothing and gives nothing."""

    OFFLINE = "its log directory failed: until restart"
    UNOPENED = "there was no descriptor or memory to open it: until it is asked for again"
    STOPPING = "the broker stops: what is in flight completes"
    DELETED = "the partition is deleted: what waits fails, reads that have begun go on"


class Log:
    """One partition's log.  Everything runs on the broker's loop."""

    __slots__ = (
        "_refusal",
        "_restart_point",
        "acks_wait_for_syncs",
        "active",
        "config",
        "directory",
        "environment",
        "flushes",
        "high_watermark",
        "is_open",
        "last_flush_ms",
        "leader_epochs",
        "log_end_offset",
        "log_start_offset",
        "next_offset",
        "on_disk",
        "partition",
        "path",
        "producers",
        "queue",
        "recovery_point",
        "retention_due_ms",
        "roll_jitter_ms",
        "rules",
        "segments",
        "sync_at_offset",
        "topic",
        "topic_id",
    )

    active: Segment
    leader_epochs: LeaderEpochCache
    flushes: FlushQueue
    acks_wait_for_syncs: bool  # all of them: then nothing is shown either that a power failure could take back
    high_watermark: int  # moved by the Partition above, by ``update_high_watermark``
    log_end_offset: int
    log_start_offset: int
    next_offset: int  # the reserved end
    producers: ProducerStateManager
    queue: AppendQueue
    segments: SegmentList
    sync_at_offset: int  # an append that reaches it is answered after a sync

    def __init__(
        self,
        environment: LogEnvironment,
        directory: LogDir,
        topic: str,
        partition: int,
        topic_id: bytes | None,
        config: LogConfig,
        restart_point: RestartPoint,
    ) -> None:
        self.environment = environment
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.path: Path = directory.path / f"{topic}-{partition}"
        self.config = config
        self.rules = AppendRules(config)
        self.recovery_point = restart_point.recovery_point
        self.is_open = False
        self.on_disk = False
        self.last_flush_ms = environment.now_ms()
        self._restart_point = restart_point
        self._refusal: Refusal | None = None
        self.retention_due_ms = 0  # of a parked log: before this time retention has nothing to do
        self.roll_jitter_ms = 0
        self._arm()
        self._become_unopened()

    def __repr__(self) -> str:
        return f"Log({self.topic}-{self.partition})"

    # Opening and closing ----------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Read the directory (names, sizes, the ends of the indexes); recovery has been done at start, if it was due.

        What cannot be read leaves an empty log that refuses everything: until restart, because its log directory is
        taken offline; or, where only descriptors or memory are lacking, until ``open_again``.
        """
        from pybroker.storage.log_loader import load_log

        self.queue = AppendQueue(self)
        self.flushes = FlushQueue(self)
        self.leader_epochs = LeaderEpochCache(self.path)
        self.producers = ProducerStateManager(self.environment.settings.producer_id_expiration_ms)
        self.segments = SegmentList()
        self.is_open = True
        self.__class__ = Log
        try:
            load_log(self, self._restart_point)
        except (OSError, StorageError) as error:
            self.close_files()
            self.become_empty(0)
            if os_file.is_passing(error):
                self.directory.refused_for_room(error)
                self._refusal = self._refusal or Refusal.UNOPENED
            else:
                self._refusal = Refusal.OFFLINE
                self.directory.fail(error, f"opening the log {self.path}")
        self._arm()

    def open_again(self) -> None:
        """If it could not be opened, forget that: the next touch tries again."""
        if self._refusal is Refusal.UNOPENED:
            self._refusal = None
            self._unset()

    def _unset(self) -> None:
        self.is_open = False
        for name in _STATE:
            delattr(self, name)
        self._become_unopened()

    def _become_unopened(self) -> None:
        self.__class__ = _UnopenedLog

    def become_empty(self, offset: int) -> None:
        """Take the state of a log without files that begins and ends at ``offset``; the first append makes them."""
        segment = Segment(self.path, offset, 0, self.environment.now_ms(), self.environment.segments)
        self.segments = SegmentList()
        self.segments.add(segment)
        self.active = segment
        self.log_start_offset = self.log_end_offset = self.next_offset = self.high_watermark = offset
        self.on_disk = False

    def activate(self, segment: Segment) -> None:
        """Make the last segment the one that is appended to."""
        self.active = segment
        segment.sealed = False
        self.arm_segment(segment)

    def become(self, log_start_offset: int, log_end_offset: int, high_watermark: int) -> None:
        """Take the state that the loader found on the disk in ``segments``."""
        self.activate(self.segments[-1])
        self.log_start_offset = log_start_offset
        self.log_end_offset = self.next_offset = log_end_offset
        self.high_watermark = max(min(high_watermark, log_end_offset), log_start_offset)
        self.recovery_point = min(self.recovery_point, log_end_offset)
        self.on_disk = True

    def _arm(self) -> None:
        """Recompute from the settings what the append path compares with."""
        sync, at_once = self.directory.sync, self.environment.settings.fsync_before_ack
        self.acks_wait_for_syncs = sync and (at_once or self.config.flush_messages == 1)
        if not sync:
            self.sync_at_offset = _NEVER
        elif at_once:
            self.sync_at_offset = 0
        else:
            self.sync_at_offset = self.recovery_point + self.config.flush_messages - 1

    def arm_segment(self, segment: Segment) -> None:
        """Set the bounds past which an append rolls the active segment."""
        config = self.config
        segment.index_interval_bytes = config.index_interval_bytes
        segment.index_entries_max = min(config.segment_index_bytes // 8, config.segment_index_bytes // 12 - 1)
        segment.limit(config.segment_size_bytes)
        segment.roll_after_ms = config.segment_age_max_ms - self.roll_jitter_ms

    def update_config(self, config: LogConfig) -> None:
        """Take changed topic settings into use at once."""
        self.config = config
        self.rules = AppendRules(config)
        self.retention_due_ms = 0
        self._arm()
        if self.is_open and self.on_disk:
            self.arm_segment(self.active)

    def check_place(self) -> None:
        """Raise OSError if the partition's files are not at their path any more; cheap, but not for every append."""
        if self.on_disk and not self._refusal:
            self.active.check_place()

    def look_for_it(self) -> None:
        """Take the log directory offline if the partition's files are not at their path any more."""
        try:
            self.check_place()
        except OSError as error:
            if not os_file.is_passing(error):
                self.directory.fail(error, f"looking for {self.path}")

    def go_offline(self) -> None:
        """The log directory failed: refuse everything until restart."""
        self._refusal = Refusal.OFFLINE
        self.directory.lookups.drop(self)

    def refuse_appends(self) -> None:
        """The broker stops: what is in flight completes, nothing new is taken."""
        self._refusal = Refusal.STOPPING

    @property
    def refuses(self) -> bool:
        """Whether nothing is taken or given; ``Refusal`` has the reasons."""
        return self._refusal is not None

    def retire(self) -> None:
        """The partition is deleted: what waits fails, reads that have begun go on."""
        self._refusal = Refusal.DELETED
        self.directory.lookups.drop(self)
        if self.environment.cleaner is not None:
            self.environment.cleaner.abort(self)
        if self.is_open:
            self.flushes.retire()
            for segment in self.segments:
                segment.retire()

    def close_cleanly(self, sync: bool) -> None:
        """Write everything, and a snapshot of the producers, so that the next start need not look.  Raises OSError.

        Without ``sync`` the caller syncs the whole file system, before it says anywhere that this log is whole.
        """
        self.active.seal()
        self.flushes.flush_now(sync)
        write_snapshot(self.path, self.log_end_offset, self.producers.producers, sync=False)
        delete_snapshots(self.path, below=self.segments[0].base_offset)

    def park(self) -> None:
        """Forget the state of an idle log; the next touch opens it again."""
        if not self.is_open or self.queue.busy or self.flushes.in_flight or any(s.pins for s in self.segments):
            return
        if self._refusal or self.producers.verifications:
            return  # what the transaction coordinator answers is remembered nowhere else
        from pybroker.storage.retention import retention_due_ms

        self.retention_due_ms = self._guarded(lambda: retention_due_ms(self), "retention") or 0
        self._restart_point = RestartPoint(self.recovery_point, self.log_start_offset, self.high_watermark)
        self.close_files()
        self._unset()

    def close_files(self) -> None:
        """Let go of all descriptors and maps; nothing may be in flight."""
        for segment in self.segments:
            segment.close()

    # Offsets ----------------------------------------------------------------------------------------------------------

    @property
    def last_stable_offset(self) -> int:
        """Up to where a read_committed consumer reads: the high watermark or the first open transaction."""
        producers = self.producers
        if not producers.ongoing_txns and not producers.unreplicated_txns:
            return self.high_watermark
        # The transaction's first records may have been deleted.
        return min(self.high_watermark, max(producers.first_unstable_offset(), self.log_start_offset))

    @property
    def committed_end(self) -> int:
        """Where the high watermark may be with no replica but this one: what is written, or synced if acks wait."""
        return self.recovery_point if self.acks_wait_for_syncs else self.log_end_offset

    def update_high_watermark(self, offset: int) -> int:
        """Move the high watermark, within the log's start and end; returns where it is then."""
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        elif offset < self.log_start_offset:
            offset = self.log_start_offset
        self.high_watermark = offset
        if self.producers.unreplicated_txns:
            self.producers.forget_replicated(offset)
        return offset

    def end_offset_for_epoch(self, requested_epoch: int, current_leader_epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the requested epoch or the largest known one below it; (-1, -1) if unknown (KIP-101).

        The leader's current epoch ends at the log's end, also while nothing has been appended in it.
        """
        if requested_epoch == current_leader_epoch >= 0:
            return requested_epoch, self.log_end_offset
        if requested_epoch > self.leader_epochs.latest_epoch >= 0 and requested_epoch < current_leader_epoch:
            return self.leader_epochs.latest_epoch, self.log_end_offset
        return self.leader_epochs.end_offset_for(requested_epoch, self.log_end_offset)

    # Appending --------------------------------------------------------------------------------------------------------

    def append_as_leader(
        self, records: memoryview, leader_epoch: int, produce_version: int, on_complete: OnComplete
    ) -> AppendResult | None:
        """Append one batch of a producer; its bytes must be writable and are patched in place.

        Returns the result now, or ``None``: then ``on_complete(AppendResult)`` runs on the loop later, and a buffer of
        more than ``INLINE_WRITE_BYTES_MAX`` must stay as it is until then (a smaller one is copied if need be).
        """
        if self._refusal:
            return self.storage_error()
        now_ms = self.environment.now_ms()
        rules = self.rules
        header = validate(records, rules, now_ms, produce_version)
        if isinstance(header, Rejection):
            if header is TIMESTAMP_TOO_LATE:
                return self._append_after_decoding(records, HEADER.unpack_from(records), leader_epoch, on_complete)
            return self._rejected(header)
        log_append_time_ms = -1
        if rules.needs_records:
            return self._append_after_decoding(records, header, leader_epoch, on_complete)
        if rules.log_append_time:
            log_append_time_ms = now_ms
            header = stamp_log_append_time(records, header, now_ms)
        return self._append(records, header, leader_epoch, log_append_time_ms, on_complete)

    def _append_after_decoding(
        self, records: memoryview, header: HeaderFields, leader_epoch: int, on_complete: OnComplete
    ) -> AppendResult | None:
        """Append a batch whose records have to be looked at, or rewritten; a large one is decoded in the thread."""
        from pybroker.storage.record_validator import prepare_at_once, prepare_records

        rules, now_ms = self.rules, self.environment.now_ms()
        log_append_time_ms = now_ms if rules.log_append_time else -1

        def append(prepared: tuple[memoryview, HeaderFields] | Rejection, in_turn: bool) -> AppendResult | None:
            if self._refusal:
                return self.storage_error()
            if isinstance(prepared, Rejection):
                return self._rejected(prepared)
            batch, fields = prepared
            if rules.log_append_time:
                fields = stamp_log_append_time(batch, fields, now_ms)
            place = self._append_in_turn if in_turn else self._append
            return place(batch, fields, leader_epoch, log_append_time_ms, on_complete)

        prepared_at_once = prepare_at_once(records, header, rules, now_ms)
        if prepared_at_once is not None:
            return append(prepared_at_once, in_turn=False)
        kept = records if len(records) > INLINE_WRITE_BYTES_MAX else memoryview(bytearray(records))
        self.queue.run_in_thread(
            prepare_records(kept, header, rules, now_ms),
            lambda prepared: append(prepared, in_turn=True),
            on_complete,
        )
        return None

    def append_internal(
        self, records: bytes | bytearray | memoryview, leader_epoch: int, on_complete: OnComplete
    ) -> AppendResult | None:
        """Append one batch that the broker itself built, control batches too; otherwise as ``append_as_leader``."""
        if self._refusal:
            return self.storage_error()
        if isinstance(records, bytes):
            records = bytearray(records)
        view = memoryview(records)
        return self._append(view, HEADER.unpack_from(view), leader_epoch, -1, on_complete)

    def append_end_transaction(
        self,
        marker: bytes,
        coordinator_epoch: int,
        transaction_version: int,
        leader_epoch: int,
        on_complete: OnComplete,
    ) -> AppendResult | None:
        """Append the control batch that ends a producer's transaction; otherwise as ``append_as_leader``.

        INVALID_PRODUCER_EPOCH for a marker that comes late, TRANSACTION_COORDINATOR_FENCED for one of a former
        coordinator.  It is decided, and written, when nothing is in flight: failed writes could not be told apart from
        the open transaction that they belong to.
        """
        view = memoryview(bytearray(marker))
        header = HEADER.unpack_from(view)

        def append() -> AppendResult | None:
            if self._refusal:
                return self.storage_error()
            refused = self.producers.check_marker(header[9], header[10], coordinator_epoch, transaction_version)
            if refused is not None:
                return self.failure(refused.error_code, refused.message)
            return self._append_in_turn(view, header, leader_epoch, -1, on_complete)

        def append_later() -> None:
            result = append()
            if result is not None:
                on_complete(result)

        if not self.queue.busy:
            return append()
        self.queue.when_idle(append_later)
        return None

    def append_as_follower(self, records: memoryview) -> AppendResult:
        """Append the leader's batches as they are, with their offsets and epochs.

        Nothing is appended from the first batch on that is corrupt or does not lie past the log's end; the result's
        ``last_offset`` says how far it went (-1: nowhere).
        """
        from pybroker.storage.follower_append import append_batches

        if self._refusal:
            return self.storage_error()
        return append_batches(self, records)

    def _append(
        self,
        records: memoryview,
        header: HeaderFields,
        leader_epoch: int,
        log_append_time_ms: int,
        on_complete: OnComplete,
    ) -> AppendResult | None:
        """Append behind everything that came before, which its sequence number goes by as well as its offset."""
        if self.queue.others_wait:
            self._append_when_idle(records, header, leader_epoch, log_append_time_ms, on_complete)
            return None
        return self._append_in_turn(records, header, leader_epoch, log_append_time_ms, on_complete)

    def _append_in_turn(
        self,
        records: memoryview,
        header: HeaderFields,
        leader_epoch: int,
        log_append_time_ms: int,
        on_complete: OnComplete,
    ) -> AppendResult | None:
        _, length, _, _, _, attributes, last_offset_delta, _, max_timestamp, producer_id, epoch, sequence, _ = header
        size = length + LOG_OVERHEAD
        if producer_id >= 0 and sequence >= 0:
            transactional = attributes & TRANSACTIONAL_FLAG
            verdict = self.producers.check(producer_id, epoch, sequence, last_offset_delta, transactional)
            if verdict is not None:
                return self._answer_verdict(verdict, records, header, leader_epoch, log_append_time_ms, on_complete)
        elif producer_id >= 0 and not attributes & CONTROL_FLAG:
            unwanted = self.producers.check_unsequenced(producer_id, epoch, attributes & TRANSACTIONAL_FLAG)
            if unwanted is not None:
                return self.failure(unwanted.error_code, unwanted.message)
        queue = self.queue
        segment = self.active
        base_offset = self.next_offset
        last_offset = base_offset + last_offset_delta
        if queue.busy:
            if queue.must_wait(segment, size, last_offset, max_timestamp):
                self._append_when_idle(records, header, leader_epoch, log_append_time_ms, on_complete)
                return None
        elif segment.must_roll(size, last_offset, max_timestamp):
            refused = make_room(self, size)
            if refused is not None:
                self._not_begun(producer_id, epoch, sequence)
                return refused
            segment = self.active
        if leader_epoch > self.leader_epochs.latest_epoch:
            self.assign_epoch(leader_epoch, base_offset)
        _patch_into(records, 0, base_offset, length, leader_epoch)
        result = AppendResult(NONE, base_offset, last_offset, log_append_time_ms, self.log_start_offset, leader_epoch)
        try:
            if size > INLINE_WRITE_BYTES_MAX or queue.busy:
                queue.append_in_thread(records, header, size, result, on_complete)
                return None
            segment.append(records, size, base_offset, last_offset, max_timestamp)
            self.directory.writers.small_appends += 1
        except OSError as error:
            self.write_failed(error)
            self._not_begun(producer_id, epoch, sequence)
            return self.storage_error()
        self.log_end_offset = self.next_offset = last_offset + 1
        if producer_id >= 0:
            self.note_producer(header, base_offset, records)
        if last_offset >= self.sync_at_offset or segment.size >= segment.write_back_at:
            return self._acknowledge(result, on_complete)
        return result

    def _not_begun(self, producer_id: int, epoch: int, sequence: int) -> None:
        if producer_id >= 0 and sequence >= 0:
            self.producers.not_begun(producer_id, epoch, sequence)

    def _append_when_idle(
        self,
        records: memoryview,
        header: HeaderFields,
        leader_epoch: int,
        log_append_time_ms: int,
        on_complete: OnComplete,
    ) -> None:
        """Queue an append that cannot join the writes in flight (it rolls the segment, or others wait already)."""
        kept = records if len(records) > INLINE_WRITE_BYTES_MAX else memoryview(bytearray(records))

        def append() -> None:
            result = self.storage_error()
            if not self._refusal:
                appended = self._append_in_turn(kept, header, leader_epoch, log_append_time_ms, on_complete)
                if appended is None:
                    return
                result = appended
            on_complete(result)

        self.queue.when_idle(append)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is on its way through the writer thread."""
        return not self.queue.busy

    def large_append_written(self, pending: PendingAppend) -> None:
        """The writer thread wrote it: it becomes readable and is acknowledged."""
        segment, result = self.active, pending.result
        base_offset, last_offset = result.base_offset, result.last_offset
        segment.account(pending.position, pending.length, base_offset, last_offset, pending.max_timestamp)
        self.log_end_offset = last_offset + 1
        if last_offset >= self.sync_at_offset or segment.size >= segment.write_back_at:
            acknowledged = self._acknowledge(result, pending.on_complete)
            if acknowledged is None:
                return
        pending.on_complete(result)

    def _acknowledge(self, result: AppendResult, on_complete: OnComplete) -> AppendResult | None:
        """Start the sync that is due; the result comes after it only if a setting says so."""
        if result.last_offset >= self.sync_at_offset:
            self.flushes.acknowledge(result.last_offset + 1, result, on_complete)
            return None
        self.write_back_if_due()
        return result

    def write_back_if_due(self) -> None:
        """Once the kernel holds much of the active segment, have it begin to write that; nobody waits for it."""
        segment, directory = self.active, self.directory
        if segment.size < segment.write_back_at:
            return
        write_back = segment.begin_write_back()
        if directory.sync and not directory.closing:
            segment.pins += 1  # its descriptor stays its own meanwhile
            directory.flusher.submit(write_back, lambda _result, _error: segment.unpin())

    def _answer_verdict(
        self,
        verdict: BatchMetadata | SequenceError,
        records: memoryview,
        header: HeaderFields,
        leader_epoch: int,
        log_append_time_ms: int,
        on_complete: OnComplete,
    ) -> AppendResult | None:
        """Refuse a batch out of sequence; answer a repeated one with the original's offsets."""
        if isinstance(verdict, SequenceError):
            return self.failure(verdict.error_code, verdict.message)
        if self.queue.busy:
            # The original may be in flight still, and may fail: decide when that is known.
            self._append_when_idle(records, header, leader_epoch, log_append_time_ms, on_complete)
            return None
        timestamp = verdict[4] if self.rules.log_append_time else -1
        result = AppendResult(NONE, verdict[2], verdict[3], timestamp, self.log_start_offset, leader_epoch)
        result.is_duplicate = True
        if result.last_offset >= max(self.sync_at_offset, self.recovery_point):
            # The original's sync has not ended yet, or a process that died had only written it.
            self.flushes.acknowledge(result.last_offset + 1, result, on_complete)
            return None
        return result

    def note_producer(self, header: HeaderFields, base_offset: int, records: memoryview) -> None:
        """Take a producer's batch, whose place in the log is certain or reserved, into account."""
        _, _, _, _, _, attributes, last_offset_delta, _, max_timestamp, producer_id, epoch, sequence, _ = header
        if attributes & CONTROL_FLAG:
            aborted = replay_batch(self.producers, header, base_offset, records)
            if aborted is not None:
                self.active.txn_index.append(aborted)
                self._guarded(self.active.txn_index.persist, "transaction index")
            return
        transactional = bool(attributes & TRANSACTIONAL_FLAG)
        last_offset = base_offset + last_offset_delta
        self.producers.update(producer_id, epoch, sequence, base_offset, last_offset, max_timestamp, transactional)

    def assign_epoch(self, leader_epoch: int, start_offset: int) -> None:
        """A new leader epoch writes from ``start_offset`` on."""
        self.leader_epochs.assign(leader_epoch, start_offset)
        if self.on_disk:
            self.write_epochs()

    def write_epochs(self) -> None:
        """Write the leader epochs' checkpoint; where there is no room for it, the next flush does."""
        try:
            self.leader_epochs.write()
            self.flushes.files_changed = True
        except OSError as error:
            if not os_file.is_passing(error):
                self.directory.fail(error, f"writing {self.leader_epochs.path}")

    # Failures ---------------------------------------------------------------------------------------------------------

    def failure(self, error_code: int, message: str | None) -> AppendResult:
        """The result of an append that was refused as a whole."""
        return AppendResult(error_code, -1, -1, -1, self.log_start_offset, -1, (), message)

    def storage_error(self) -> AppendResult:
        """The result of an append that the disk did not take."""
        return self.failure(KAFKA_STORAGE_ERROR, None)

    def _rejected(self, rejection: Rejection) -> AppendResult:
        result = self.failure(rejection.error_code, rejection.message)
        result.record_errors = rejection.record_errors
        return result

    def write_failed(self, error: BaseException) -> None:
        """A write failed: cut the torn tail; anything but a lack of room takes the log directory offline."""
        self.next_offset = self.log_end_offset
        self.leader_epochs.truncate_from_end(self.log_end_offset)
        try:
            self.active.cut_torn_tail()
        except OSError as cut_error:
            error = cut_error
        if os_file.is_passing(error):
            self.directory.refused_for_room(error)
        else:
            self.directory.fail(error, f"a write to {self.path}")

    def planning_failed(self, error: BaseException) -> None:
        """What comes before a sync failed: a lack of room or of descriptors may pass, and the next one covers all."""
        if os_file.is_passing(error):
            self.directory.refused_for_room(error)
        else:
            self.directory.fail(error, f"preparing a sync of {self.path}")

    def sync_failed(self, error: BaseException) -> None:
        """A sync failed: what it covered may be lost, for want of room too, and only a restart can tell."""
        if os_file.lacks_descriptor(error):
            self.directory.refused_for_room(error)
        else:
            self.directory.fail(error, f"a sync of {self.path}")

    def read_failed(self, error: BaseException) -> None:
        """A read failed; only a failing disk, not a lack of descriptors, takes the log directory offline."""
        if not os_file.is_passing(error):
            self.directory.fail(error, f"a read of {self.path}")

    def flush_is_overdue(self, now_ms: int) -> bool:
        """Whether ``flush.ms`` has passed since the last sync."""
        return now_ms - self.last_flush_ms >= self.config.flush_ms

    def flushed_to(self, offset: int) -> None:
        """Everything below ``offset`` is on the disk."""
        self.last_flush_ms = self.environment.now_ms()
        if offset > self.recovery_point:
            self.recovery_point = min(offset, self.log_end_offset)
        self._arm()

    # Reading ----------------------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, upper_bound_offset: int, min_one_batch: bool) -> ReadResult | ColdRead:
        """Whole batches from the one that holds ``offset`` on, below ``upper_bound_offset``, at most ``max_bytes``.

        The first batch is returned even if it is larger, when ``min_one_batch``.  Kafka may cut the last batch; here
        none is.  OFFSET_OUT_OF_RANGE is answered below the log's start and past its end.
        """
        log_end_offset = self.log_end_offset
        if self._refusal:
            return ReadResult(KAFKA_STORAGE_ERROR, EMPTY)
        if offset >= upper_bound_offset or offset >= log_end_offset:
            if offset > log_end_offset or offset < self.log_start_offset:
                return _OUT_OF_RANGE
            return _NO_RESULT
        if offset < self.log_start_offset:
            return _OUT_OF_RANGE
        segment = self.active
        if offset >= segment.base_offset and upper_bound_offset >= log_end_offset:
            start = segment.known_position(offset)
            size = segment.size
            if start >= 0 and size - start <= max_bytes and segment.is_recent(start):
                view = segment.view
                if view is not None and len(view) >= size:
                    segment.referenced = True
                    segment.exposed_end = size
                    return ReadResult(NONE, view[start:size])
        return read_segments(self, offset, max_bytes, upper_bound_offset, min_one_batch)

    def offset_for_timestamp(self, timestamp: int) -> Found:
        """ListOffsets: the first record whose timestamp is at least ``timestamp``, ``None`` if there is none."""
        from pybroker.storage.timestamp_lookup import offset_for_timestamp

        return offset_for_timestamp(self, timestamp)

    def offset_of_max_timestamp(self) -> Found:
        """ListOffsets: the first record that has the log's largest timestamp, ``None`` in an empty log (KIP-734)."""
        from pybroker.storage.timestamp_lookup import offset_of_max_timestamp

        return offset_of_max_timestamp(self)

    def bytes_between(self, offset: int, upper_bound_offset: int) -> int:
        """Bytes from the batch that holds ``offset`` up to ``upper_bound_offset``, for a fetch's minimum; cheap."""
        return bytes_between(self, offset, upper_bound_offset)

    def aborted_transactions(self, fetch_offset: int, upper_bound_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions that touch [fetch_offset, upper_bound_offset), for read_committed fetches."""
        found: list[AbortedTransaction] = []
        for i in range(self.segments.floor(fetch_offset), len(self.segments)):
            more, complete = self.segments[i].txn_index.overlapping(fetch_offset, upper_bound_offset)
            found += more
            if complete:
                break
        return found

    def aborted_transactions_of(self, fetch_offset: int, records: memoryview) -> list[AbortedTransaction] | None:
        """Those that touch what a read from ``fetch_offset`` on has returned; ``None`` if the disk does not say."""
        segments = self.segments
        try:
            for i in range(segments.floor(fetch_offset), len(segments)):
                if segments[i].txn_index.reaches(fetch_offset):
                    return self.aborted_transactions(fetch_offset, end_offset_of(records))
        except OSError as error:
            self.read_failed(error)
            return None
        return []

    # Truncating -------------------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int, done: Callable[[], None] | None = None) -> None:
        """Drop everything at and past ``offset``, which is where a batch begins; ``done`` runs after (now, if it can).

        A follower does so where its leader says that they diverge.  Nothing happens if the log ends before ``offset``.
        """

        def truncate() -> None:
            from pybroker.storage.truncation import truncate_log

            self._guarded(lambda: truncate_log(self, offset), "truncation")
            if done is not None:
                done()

        self.queue.when_idle(truncate)

    def truncate_fully_and_start_at(self, offset: int, done: Callable[[], None] | None = None) -> None:
        """Drop everything; the log is empty and its next offset is ``offset``."""

        def truncate() -> None:
            from pybroker.storage.truncation import truncate_fully

            self._guarded(lambda: truncate_fully(self, offset), "truncation")
            if done is not None:
                done()

        self.queue.when_idle(truncate)

    def increment_log_start_offset(self, offset: int) -> int:
        """DeleteRecords: forget what lies below ``offset`` (at most the high watermark).  Returns an error code.

        The segments that lie wholly below go at the next retention check, as in Kafka.
        """
        if offset > self.high_watermark:
            return OFFSET_OUT_OF_RANGE
        if self._refusal:
            return KAFKA_STORAGE_ERROR
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.leader_epochs.truncate_from_start(offset)
            if self.on_disk:
                self.write_epochs()
        return NONE

    # Retention and removal --------------------------------------------------------------------------------------------

    def apply_retention(self) -> int:
        """Drop the segments that ``retention.ms``, ``retention.bytes`` or the log start offset let go; how many."""
        from pybroker.storage.retention import apply_retention

        dropped = 0
        cleaner = self.environment.cleaner
        if self.is_idle and not self._refusal and self.on_disk and not (cleaner and cleaner.is_cleaning(self)):
            dropped = self._guarded(lambda: apply_retention(self), "retention") or 0
        return dropped

    def drop_segments(self, segments: list[Segment]) -> None:
        """Take segments out of the log: their files are renamed now and removed after ``file.delete.delay.ms``."""
        doomed = []
        for segment in segments:
            self.segments.remove(segment)
            doomed += segment.rename_files(DELETED_SUFFIX)
            segment.retire()
        self.flushes.files_changed = True
        self.directory.remove_later(doomed, self.config.file_delete_delay_ms)

    def _guarded(self, action: Callable[[], T], what: str) -> T | None:
        """Run an action on the files; a failing disk takes the log directory offline."""
        try:
            return action()
        except OSError as error:
            if os_file.is_passing(error):
                logger.warning("The %s of %s has to wait: %s", what, self.path, error)
            else:
                self.directory.fail(error, f"the {what} of {self.path}")
            return None

    def roll(self) -> None:
        """Begin a new segment at the log's end, if the active one holds anything; raises OSError."""
        roll(self)

    @property
    def size_bytes(self) -> int:
        """The bytes of all segments, for DescribeLogDirs and ``retention.bytes``."""
        return self.segments.total_bytes()


class _UnopenedLog(Log):
    """A log whose state is not there yet, or not any more; the first touch makes it a ``Log``."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """An unset slot is read: open the log.  See the module's docstring."""
            if self.is_open or name not in Log.__slots__:
                raise AttributeError(name)
            self.open()
            return getattr(self, name)
