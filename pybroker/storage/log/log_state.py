"""The state of one partition's log that is open, and the only methods that change it.

Owns the offsets (start, end, reserved end, high watermark, recovery point), which segment is the active one, the leader
epochs and the producers. Owns what an append is compared with, and what follows a failure of the disk. Does not own
what is done with a log: appends, reads, truncations and retention are modules beside this one, which know a
``LogState``, and ``log.Log`` offers them.

Invariants:
- ``log_end_offset`` is the readable end: the bytes below it are written.  ``next_offset`` is the reserved end; the two
  differ only while the writer thread has appends of this log in flight.
- An offset once readable is never given to other bytes, except after a truncation below it.
- The class alone assigns its fields.

Kafka: the fields of UnifiedLog and LocalLog.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Protocol, TypeVar

from pybroker.storage.files import os_file
from pybroker.storage.files.file_names import DELETED_SUFFIX
from pybroker.storage.files.leader_epoch_cache import LEADER_EPOCH_CHECKPOINT, LeaderEpochCache
from pybroker.storage.files.segment import Segment
from pybroker.storage.files.segment_list import SegmentList
from pybroker.storage.log.append_queue import AppendQueue, OnComplete, PendingAppend
from pybroker.storage.log.flush_queue import FlushQueue
from pybroker.storage.results import KAFKA_STORAGE_ERROR, AppendResult
from pybroker.storage.rules.control_batch import replay_batch
from pybroker.storage.rules.producer_state import ProducerStateManager
from pybroker.storage.rules.validator import AppendRules, Rejection
from pybroker_protocol.records import HeaderFields

if TYPE_CHECKING:
    from pathlib import Path

    from pybroker.config.log_config import LogConfig
    from pybroker.storage.dirs.log_dir import LogDir
    from pybroker.storage.log.log_environment import LogSetup

T = TypeVar("T")

_NEVER = 1 << 63

logger = logging.getLogger("pybroker.storage")


class Refusal(Enum):
    """Why a log takes nothing and gives nothing."""

    OFFLINE = "its log directory failed: until restart"
    UNOPENED = "there was no descriptor or memory to open it: until it is asked for again"
    STOPPING = "the broker stops: what is in flight completes"
    DELETED = "the partition is deleted: what waits fails, reads that have begun go on"


class Mirror(Protocol):
    """Who copies the log's files as they grow."""

    def on_cut(self) -> None:
        """The log's end was cut, inside of the active segment: what comes next has other bytes."""


class LogState:
    """An open log's state.  Everything runs on the broker's loop."""

    __slots__ = (
        "acks_wait_for_syncs",
        "active",
        "config",
        "directory",
        "environment",
        "flushes",
        "high_watermark",
        "last_flush_ms",
        "leader_epochs",
        "log_end_offset",
        "log_start_offset",
        "mirror",
        "next_offset",
        "on_disk",
        "partition",
        "path",
        "producers",
        "queue",
        "recovery_point",
        "refusal",
        "roll_jitter_ms",
        "rules",
        "segments",
        "sync_at_offset",
        "topic",
        "topic_id",
    )

    active: Segment  # the last segment, which is appended to
    acks_wait_for_syncs: bool  # all of them: then nothing is shown either that a power failure could take back
    high_watermark: int  # moved by the Partition above, by ``update_high_watermark``
    log_end_offset: int
    log_start_offset: int
    next_offset: int  # the reserved end
    on_disk: bool  # whether it has files
    recovery_point: int  # below it everything is on the disk
    segments: SegmentList
    sync_at_offset: int  # an append that reaches it is answered after a sync

    def __init__(self, setup: LogSetup) -> None:
        """A log without files that begins and ends at offset 0; ``log_loader`` gives it what its directory holds."""
        self.environment = setup.environment
        self.directory = setup.directory
        self.topic = setup.topic
        self.partition = setup.partition
        self.topic_id = setup.topic_id
        self.path = setup.path
        self.config = setup.config
        self.rules = AppendRules(setup.config)
        self.refusal: Refusal | None = None
        self.mirror: Mirror | None = None
        self.roll_jitter_ms = 0
        self.last_flush_ms = setup.environment.now_ms()
        self.queue = AppendQueue(self)
        self.flushes = FlushQueue(self)
        self.leader_epochs = LeaderEpochCache(setup.path)
        self.producers = ProducerStateManager(setup.environment.settings.producer_id_expiration_ms)
        self.become_empty(0)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.topic}-{self.partition})"

    # What it takes to be --------------------------------------------------------------------------------------------

    def become_empty(self, offset: int) -> None:
        """Take the state of a log without files that begins and ends at ``offset``; the first append makes them."""
        segment = Segment(self.path, offset, 0, self.environment.now_ms(), self.environment.segments)
        self.segments = SegmentList()
        self.segments.add(segment)
        self.active = segment
        self.log_start_offset = self.log_end_offset = self.next_offset = self.high_watermark = offset
        self.recovery_point = offset
        self.on_disk = False
        self._arm()

    def forget_segments(self) -> None:
        """Close what is open and begin with no segment, for who reads the directory; ``become`` must follow."""
        self.close_files()
        self.segments = SegmentList()

    def become(self, log_start_offset: int, log_end_offset: int, high_watermark: int, recovery_point: int) -> None:
        """Take the state that the loader found on the disk in ``segments``."""
        self.log_start_offset = log_start_offset
        self.log_end_offset = self.next_offset = log_end_offset
        self.high_watermark = max(min(high_watermark, log_end_offset), log_start_offset)
        self.recovery_point = min(recovery_point, log_end_offset)
        self.on_disk = True
        self._activate_last()
        self._arm()

    def refuse(self, refusal: Refusal) -> None:
        """Take nothing and give nothing from now on."""
        self.refusal = refusal
        if refusal is not Refusal.STOPPING:
            self.directory.lookups.drop(self)

    @property
    def refuses(self) -> bool:
        """Whether nothing is taken or given; ``Refusal`` has the reasons."""
        return self.refusal is not None

    def update_config(self, config: LogConfig) -> None:
        """Take changed topic settings into use at once."""
        self.config = config
        self.rules = AppendRules(config)
        self._arm()
        if self.on_disk:
            self.arm_segment(self.active)

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
        segment.arm(
            size_max=config.segment_size_bytes,
            age_max_ms=config.segment_age_max_ms - self.roll_jitter_ms,
            index_interval_bytes=config.index_interval_bytes,
            index_entries_max=min(config.segment_index_bytes // 8, config.segment_index_bytes // 12 - 1),
        )

    # Segments -------------------------------------------------------------------------------------------------------

    def _activate_last(self) -> None:
        segment = self.segments[-1]
        self.active = segment
        segment.unseal()
        self.arm_segment(segment)

    def files_made(self) -> None:
        """The first segment's files are there."""
        self.on_disk = True
        self.flushes.note_changed_files()
        self.arm_segment(self.active)
        self.write_epochs()

    def begin_segment(self, segment: Segment, roll_jitter_ms: int) -> None:
        """Append to a new segment, which begins at the log's end, from now on; what is behind it is synced."""
        self.roll_jitter_ms = roll_jitter_ms
        self.segments.add(segment)
        self._activate_last()
        self.flushes.note_changed_files()
        self.flushes.flush()

    def drop_segments(self, segments: list[Segment]) -> None:
        """Take segments out of the log: their files are renamed now and removed after ``file.delete.delay.ms``."""
        to_delete = []
        for segment in segments:
            self.segments.remove(segment)
            to_delete += segment.rename_files(DELETED_SUFFIX)
            segment.retire()
        self.flushes.note_changed_files()
        self.directory.remove_later(to_delete, self.config.file_delete_delay_ms)

    def replace_segments(self, replaced: list[Segment], segment: Segment, to_delete: list[Path]) -> None:
        """A cleaned segment has taken the place of those it was made from, whose files are ``to_delete``."""
        self.segments.replace(replaced, segment)
        for old in replaced:
            old.retire()
        self.flushes.note_changed_files()
        self.flushes.flush()
        self.directory.remove_later(to_delete, self.config.file_delete_delay_ms)

    def close_files(self) -> None:
        """Let go of all descriptors and maps; nothing may be in flight."""
        for segment in self.segments:
            segment.close()

    def retire(self) -> None:
        """The partition is deleted: what waits fails; who reads goes on, and the last one closes the files."""
        self.refuse(Refusal.DELETED)
        self.flushes.retire()
        for segment in self.segments:
            segment.retire()

    def check_place(self) -> None:
        """Raise OSError if the partition's files are not at their path any more; cheap, but not for every append."""
        if self.on_disk and not self.refusal:
            self.active.check_place()

    # Offsets --------------------------------------------------------------------------------------------------------

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

    def advance_start(self, offset: int) -> None:
        """Nothing below ``offset`` is part of the log any more."""
        self.log_start_offset = max(self.log_start_offset, offset)
        self.high_watermark = max(self.high_watermark, self.log_start_offset)
        self.leader_epochs.truncate_from_start(self.log_start_offset)
        if self.on_disk:
            self.write_epochs()

    def appended(self, end_offset: int) -> None:
        """Everything below ``end_offset`` is written, and nothing is in flight."""
        self.log_end_offset = self.next_offset = end_offset

    def reserve(self, end_offset: int) -> None:
        """The offsets below ``end_offset`` are given to appends in flight."""
        self.next_offset = end_offset

    def cut(self, offset: int) -> None:
        """The log ends at ``offset``, which is below its end; its segments past that go."""
        self.flushes.truncated(on_disk=True)
        self.log_end_offset = self.next_offset = offset
        self.high_watermark = min(self.high_watermark, offset)
        self.recovery_point = min(self.recovery_point, offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self.drop_segments([segment for segment in self.segments if segment.base_offset > offset])
        self._activate_last()
        self._tell_mirror_of_cut()

    def begin_anew(self, offset: int) -> None:
        """The log is empty and its next offset is ``offset``; its files go."""
        former = list(self.segments) if self.on_disk else []
        self.flushes.truncated(self.on_disk)
        self.become_empty(offset)
        self.leader_epochs.clear()
        self.producers.clear(offset)
        to_delete = []
        for segment in former:
            to_delete += segment.rename_files(DELETED_SUFFIX)
            segment.retire()
        if to_delete:
            self.directory.remove_later(to_delete, self.config.file_delete_delay_ms)
        self._tell_mirror_of_cut()

    def _tell_mirror_of_cut(self) -> None:
        if self.mirror is not None:
            self.mirror.on_cut()

    # Another place --------------------------------------------------------------------------------------------------

    def renamed_to(self, path: Path) -> None:
        """The partition's directory has another name."""
        self.path = path
        self.leader_epochs.path = path / LEADER_EPOCH_CHECKPOINT
        for segment in self.segments:
            segment.renamed_to(path)

    def move_to(self, directory: LogDir, path: Path, fds: Mapping[Segment, int]) -> None:
        """``path``, in another log directory, has the same files, all synced: they are the log's from now on.

        ``fds`` are their descriptors, for the segments that have to have one now.
        """
        self.directory = directory
        for segment in self.segments:
            segment.move_to(path, fds.get(segment, -1))
        self.renamed_to(path)
        if not self.on_disk:
            return
        self.flushed_to(self.log_end_offset)
        self.leader_epochs.note_changed()  # DeleteRecords may have changed them while they were copied
        self.flushes.note_changed_files()
        self.flushes.flush()  # who waits for a sync has it

    # Epochs and producers -------------------------------------------------------------------------------------------

    def assign_epoch(self, leader_epoch: int, start_offset: int) -> None:
        """A new leader epoch writes from ``start_offset`` on."""
        self.leader_epochs.assign(leader_epoch, start_offset)
        if self.on_disk:
            self.write_epochs()

    def write_epochs(self) -> None:
        """Write the leader epochs' checkpoint; where there is no space for it, the next flush does."""
        try:
            self.leader_epochs.write()
            self.flushes.note_changed_files()
        except OSError as error:
            if not os_file.is_passing(error):
                self.directory.fail(error, f"writing {self.leader_epochs.path}")

    def note_producer(self, header: HeaderFields, base_offset: int, records: memoryview) -> None:
        """Take a producer's batch, whose place in the log is certain or reserved, into account."""
        aborted = replay_batch(self.producers, header, base_offset, records)
        if aborted is not None:
            self.active.txn_index.append(aborted)
            self.guarded(self.active.txn_index.persist, "transaction index")

    def forget_former_producers(self, first_epoch: int) -> None:
        """Forget the producers of another cluster, which has written all that is below that leader epoch."""
        if first_epoch > 0 and self.producers.producers:
            self.producers.forget_former(self.leader_epochs.start_of(first_epoch, self.log_end_offset))

    # After a write --------------------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether nothing is on its way through the writer thread."""
        return not self.queue.busy

    @property
    def is_in_use(self) -> bool:
        """Whether something of it is in use, or it knows what is known nowhere else."""
        if self.queue.busy or self.flushes.in_flight or any(segment.pins for segment in self.segments):
            return True
        if self.mirror is not None:
            return True
        # What the transaction coordinator answers is remembered nowhere else.
        return bool(self.producers.verifications) or self.directory.lookups.has_any_of(self)

    def large_append_written(self, pending: PendingAppend) -> None:
        """The writer thread wrote it: it becomes readable and is acknowledged."""
        segment, result = self.active, pending.result
        last_offset = result.last_offset
        segment.append(None, (pending.placed,))
        self.log_end_offset = last_offset + 1
        if last_offset >= self.sync_at_offset or segment.size >= segment.write_back_at:
            acknowledged = self.acknowledge(result, pending.on_complete)
            if acknowledged is None:
                return
        pending.on_complete(result)

    def acknowledge(self, result: AppendResult, on_complete: OnComplete) -> AppendResult | None:
        """Start the sync that is due; the result comes after it only if a setting says so."""
        if result.last_offset >= self.sync_at_offset:
            self.flushes.acknowledge(result.last_offset + 1, result, on_complete)
            return None
        self.write_back_if_due()
        return result

    def write_back_if_due(self) -> None:
        """Once the kernel holds much of the active segment, have it begin to write that; no caller waits for it."""
        segment, directory = self.active, self.directory
        if segment.size < segment.write_back_at:
            return
        write_back = segment.begin_write_back()
        if directory.sync and not directory.closing:
            segment.pin()  # its descriptor stays its own meanwhile
            directory.flusher.submit(write_back, lambda _result, _error: segment.unpin())

    def flush_is_overdue(self, now_ms: int) -> bool:
        """Whether ``flush.ms`` has passed since the last sync."""
        return now_ms - self.last_flush_ms >= self.config.flush_ms

    def flushed_to(self, offset: int) -> None:
        """Everything below ``offset`` is on the disk."""
        self.last_flush_ms = self.environment.now_ms()
        if offset > self.recovery_point:
            self.recovery_point = min(offset, self.log_end_offset)
        self._arm()

    # Failures -------------------------------------------------------------------------------------------------------

    def failure(self, error_code: int, message: str | None) -> AppendResult:
        """The result of an append that was refused as a whole."""
        return AppendResult(error_code, -1, -1, -1, self.log_start_offset, -1, (), message)

    def storage_error(self) -> AppendResult:
        """The result of an append that the disk did not take."""
        return self.failure(KAFKA_STORAGE_ERROR, None)

    def rejected(self, rejection: Rejection) -> AppendResult:
        """The result of an append that a rule refuses."""
        result = self.failure(rejection.error_code, rejection.message)
        result.record_errors = rejection.record_errors
        return result

    def write_failed(self, error: BaseException, size: int) -> None:
        """A write of ``size`` bytes failed: cut the torn tail; all but a lack of space takes the log dir offline."""
        self.next_offset = self.log_end_offset
        self.leader_epochs.truncate_from_end(self.log_end_offset)
        try:
            self.active.cut_torn_tail()
        except OSError as cut_error:
            error = cut_error
        self._failed(error, os_file.is_passing(error), f"a write to {self.path}", size)

    def planning_failed(self, error: BaseException) -> None:
        """What comes before a sync failed: a lack of space or of descriptors may pass, and the next one covers all."""
        self._failed(error, os_file.is_passing(error), f"preparing a sync of {self.path}")

    def sync_failed(self, error: BaseException) -> None:
        """A sync failed: what it covered may be lost, for want of space too, and only a restart can tell."""
        self._failed(error, os_file.lacks_descriptor(error), f"a sync of {self.path}")

    def _failed(self, error: BaseException, may_pass: bool, what: str, size: int = 0) -> None:
        if may_pass:
            self.directory.refused_for_space(error, size)
        else:
            self.directory.fail(error, what)

    def read_failed(self, error: BaseException) -> None:
        """A read failed; only a failing disk, not a lack of descriptors, takes the log directory offline."""
        if not os_file.is_passing(error):
            self.directory.fail(error, f"a read of {self.path}")

    def guarded(self, action: Callable[[], T], what: str) -> T | None:
        """Run an action on the files; a failing disk takes the log directory offline."""
        try:
            return action()
        except OSError as error:
            if os_file.is_passing(error):
                logger.warning("The %s of %s has to wait: %s", what, self.path, error)
            else:
                self.directory.fail(error, f"the {what} of {self.path}")
            return None
