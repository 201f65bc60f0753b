"""A log directory with the offsets that its checkpoints name.

Owns: which checkpoints there are, and that they say nothing of a partition that is gone once another takes its name.
Knows no log but in passing; which partition lies in which directory is ``partition_places``'.

Invariant: before the first file of a partition comes into being, no checkpoint on the disk names it. A start reads them
before it is known which topic they mean.

``LogDir.before_first_file`` sees to that.  A deletion writes the checkpoints once per turn, on the flusher; entries
without a directory are dropped at the start.

Counterpart in Kafka: ``LogManager``'s checkpoint maps.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pybroker.storage.dirs.log_dir import LogDir
from pybroker.storage.files import checkpoints
from pybroker.storage.files.file_names import partition_dir_name
from pybroker.storage.log.log_environment import RestartPoint
from pybroker.storage.manager.offset_checkpoint import OffsetCheckpoint
from pybroker.storage.results import Hole, TopicPartition

if TYPE_CHECKING:
    from pybroker.storage.log.log import Log

logger = logging.getLogger("pybroker.storage")


class RecoveryToCome(Protocol):
    """The partitions that a crash left; see ``PendingRecovery``.  All but the first two may be called at any time."""

    def begin(self, keys: Iterable[TopicPartition]) -> None:
        """Recover what cannot wait.  Raises OSError and StorageError."""

    def recover_first(self, key: TopicPartition) -> None:
        """A log is about to be opened.  Raises OSError and StorageError."""

    def forget(self, key: TopicPartition) -> None:
        """The partition is gone."""

    def finish(self) -> None:
        """Recover what is left; blocks.  Raises OSError and StorageError."""

    def cancel(self) -> None:
        """Do nothing more in the background."""


class LogDirState:
    """A log directory with what its checkpoints said, and say now."""

    __slots__ = (
        "_pending_recovery",
        "directory",
        "high_watermarks",
        "holes",
        "is_cordoned",
        "log_start_offsets",
        "ready",
        "recovery_points",
        "unsynced_since",
    )

    def __init__(self, directory: LogDir) -> None:
        self.directory = directory
        self.is_cordoned = False  # takes no new replicas (KIP-1066)
        self.ready = False  # locked, read, and recovered if need be: only then may it be marked as cleanly stopped
        self.recovery_points = OffsetCheckpoint(directory, checkpoints.RECOVERY_POINT_CHECKPOINT)
        self.log_start_offsets = OffsetCheckpoint(directory, checkpoints.LOG_START_OFFSET_CHECKPOINT)
        self.high_watermarks = OffsetCheckpoint(directory, checkpoints.HIGH_WATERMARK_CHECKPOINT)
        # Where that begins which a recovery found, and did not sync; of logs that are open, their flushes know better.
        self.unsynced_since: dict[TopicPartition, int] = {}
        # Where a recovery found a log that may lack something in its middle, until somebody has asked.
        self.holes: dict[TopicPartition, Hole] = {}
        self._pending_recovery: RecoveryToCome | None = None  # there is none after a clean stop
        directory.before_first_file = self._make_way_for

    def _checkpoints(self) -> tuple[OffsetCheckpoint, OffsetCheckpoint, OffsetCheckpoint]:
        return self.recovery_points, self.log_start_offsets, self.high_watermarks

    def load(self) -> None:
        """Read the checkpoints; raises OSError."""
        for checkpoint in self._checkpoints():
            checkpoint.load()

    def recover(self, pending: RecoveryToCome, keys: Iterable[TopicPartition]) -> None:
        """The partitions here may not be whole: none is opened before it is recovered.

        Raises OSError and StorageError.
        """

        self._pending_recovery = pending
        self.directory.before_opening = pending.recover_first
        pending.begin(keys)

    def stop_recovering(self) -> None:
        """Recover nothing more in the background."""
        if self._pending_recovery is not None:
            self._pending_recovery.cancel()

    def finish_recovery(self) -> None:
        """Recover what is left, for the clean stop; blocks.  Raises OSError and StorageError."""
        if self._pending_recovery is not None:
            self._pending_recovery.finish()

    def keep_only(self, keys: Iterable[TopicPartition]) -> None:
        """Forget what the checkpoints say of partitions that do not lie here: they were deleted just before a crash."""
        kept = set(keys)
        for checkpoint in self._checkpoints():
            for key in checkpoint.offsets.keys() - kept:
                checkpoint.forget(key)

    def forget(self, key: TopicPartition) -> None:
        """The partition is gone."""
        for checkpoint in self._checkpoints():
            checkpoint.forget(key)
        self.unsynced_since.pop(key, None)
        self.holes.pop(key, None)
        if self._pending_recovery is not None:
            self._pending_recovery.forget(key)

    def write_without_gone(self) -> None:
        """Write the checkpoints that may name a partition which is gone, on the flusher thread."""
        for checkpoint in self._checkpoints():
            if checkpoint.names_gone:
                checkpoint.write()

    def _make_way_for(self, key: TopicPartition) -> None:
        """A partition's first file is about to be made: the checkpoints must not take it for a former one.

        Raises OSError.  They are written here only if the flusher has not come to it since the former one went.
        """
        for checkpoint in self._checkpoints():
            checkpoint.make_way_for(key)

    def path_of(self, key: TopicPartition) -> Path:
        """The partition's own directory."""
        return self.directory.path / partition_dir_name(*key)

    def restart_point(self, key: TopicPartition) -> RestartPoint:
        """What is known of a partition that was not opened yet."""
        recovery_point, log_start_offset, high_watermark = (each.offsets.get(key, 0) for each in self._checkpoints())
        return RestartPoint(recovery_point, log_start_offset, high_watermark)

    @property
    def knows_what_was_lost(self) -> bool:
        """Whether nothing past the recovery points that were read was cleaned away, or acknowledged (``LogDir``)."""
        return self.directory.synced_before_acknowledged and not self.recovery_points.was_damaged

    def note_offsets(self, key: TopicPartition, log: Log) -> None:
        """Take an open log's offsets over into what the checkpoints will say."""
        self.note_recovery_point(key, log)
        self.note_log_start(key, log)

    def note_recovery_point(self, key: TopicPartition, log: Log) -> None:
        """Where a recovery of that log would begin."""
        self.recovery_points.offsets[key] = log.recovery_point

    def cover(self, key: TopicPartition, log: Log, offset: int) -> Callable[[], object] | None:
        """What writes, on any thread, a checkpoint by which a recovery begins at ``offset`` or later; ``None`` if the
        file says so already.  The log's recovery point is there.  Raises OSError."""
        if self.recovery_points.says(key, offset):
            return None
        self.note_recovery_point(key, log)
        return self.recovery_points.begin_write()

    def note_log_start(self, key: TopicPartition, log: Log) -> None:
        """Where that log starts; a start that its first segment tells needs no entry, as in Kafka."""
        if log.log_start_offset > log.segments[0].base_offset:
            self.log_start_offsets.offsets[key] = log.log_start_offset
        else:
            self.log_start_offsets.forget(key)

    def write_high_watermarks(self) -> None:
        """Write the high watermarks, on the flusher thread."""
        self.high_watermarks.write()

    def begin_write(self) -> list[Callable[[], int]]:
        """Take down what all checkpoints are to say; what is returned writes them, on any thread.  Raises OSError."""
        return [checkpoint.begin_write() for checkpoint in self._checkpoints()]

    def write_all_now(self) -> None:
        """Write every checkpoint; raises OSError."""
        for checkpoint in self._checkpoints():
            checkpoint.write_now()


def cordon(states: Iterable[LogDirState], paths: Collection[str]) -> list[bytes]:
    """Those whose directories lie at these absolute paths take no new replicas, the others do: the ids of the former,
    as far as they work.
    """
    for state in states:
        state.is_cordoned = str(state.directory.path) in paths
    return [state.directory.directory_id for state in online(states) if state.is_cordoned]


def online(states: Iterable[LogDirState]) -> list[LogDirState]:
    """Those whose directories work."""
    return [state for state in states if not state.directory.offline]
