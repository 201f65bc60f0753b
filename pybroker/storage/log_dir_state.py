"""A log directory with the offsets that its checkpoints name.

Owns: reading them at the start, what they will say next, writing those that changed, and that they say nothing of a
partition that is gone once another takes its name.  Knows no log but in passing; which partition lies in which
directory is ``partition_places``'.

Invariant: before the first file of a partition comes into being, no checkpoint on the disk names it.  A start reads
them before anybody knows which topic they mean.

Counterpart in Kafka: ``LogManager``'s checkpoint maps, and ``OffsetCheckpointFile``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from pybroker.storage import checkpoints, os_file
from pybroker.storage.log_dir import LogDir
from pybroker.storage.log_environment import RestartPoint
from pybroker.storage.results import StorageError, TopicPartition

if TYPE_CHECKING:
    from pybroker.storage.log import Log
    from pybroker.storage.log_environment import LogEnvironment
    from pybroker.storage.pending_recovery import PendingRecovery

logger = logging.getLogger("pybroker.storage")


class OffsetCheckpoint:
    """One checkpoint file: what it will say (``offsets``), and whom it may name still though he is gone."""

    __slots__ = ("_directory", "_gone", "_lock", "_newest", "_on_disk", "_path", "offsets")

    def __init__(self, directory: LogDir, name: str) -> None:
        self.offsets: dict[TopicPartition, int] = {}
        self._directory = directory
        self._path = directory.path / name
        # The last snapshot that was taken to be written, and its number; replaced as a whole, as a thread reads both.
        self._newest: tuple[int, dict[TopicPartition, int]] = (0, {})
        self._on_disk = 0  # the number of the snapshot that the file holds
        self._gone: dict[TopicPartition, int] = {}  # who is in no snapshot past that number
        self._lock = Lock()  # one write at a time; the loop takes it only where it has to write itself

    def load(self) -> None:
        """Read the file; a damaged one counts as empty, as in Kafka.  Raises OSError."""
        try:
            self.offsets = checkpoints.read_offset_checkpoint(self._path)
            self._newest = (0, dict(self.offsets))
        except StorageError as error:
            # Recovery then begins at a log's first segment, a log at its first record, its high watermark at its end.
            logger.warning("%s: it is made anew", error)
            self._newest = (1, {})

    def forget(self, key: TopicPartition) -> None:
        """Say nothing of a partition any more."""
        if self.offsets.pop(key, None) is not None:
            self._gone[key] = self._newest[0]

    @property
    def names_gone(self) -> bool:
        """Whether the file may name somebody who was forgotten."""
        return bool(self._gone)

    def write(self) -> None:
        """Write what changed, on the flusher thread."""
        self._take_snapshot()
        if self._on_disk < self._newest[0]:
            self._directory.flusher.submit(self._write_newest, self._written)

    def write_now(self) -> None:
        """Write it whether it changed or not.  Raises OSError."""
        self._newest = (self._newest[0] + 1, dict(self.offsets))
        self._settle(self._write_newest())

    def make_way_for(self, key: TopicPartition) -> None:
        """If the file may still tell of a former partition of that name, write it now.  Raises OSError."""
        if key in self._gone:
            self._take_snapshot()
            self._settle(self._write_newest())
            self._gone.pop(key, None)

    def _take_snapshot(self) -> None:
        number, offsets = self._newest
        if self.offsets != offsets:
            self._newest = (number + 1, dict(self.offsets))

    def _write_newest(self) -> int:
        """On any thread: see to it that the file holds the newest snapshot, and never an older one again."""
        with self._lock:
            number, offsets = self._newest
            if self._on_disk < number:
                checkpoints.write_offset_checkpoint(self._path, offsets, self._directory.sync)
                self._on_disk = number
            return self._on_disk

    def _written(self, number: int | None, error: BaseException | None) -> None:
        if number is not None:
            self._settle(number)
        elif error is not None and not os_file.is_passing(error):
            self._directory.fail(error, f"writing {self._path}")

    def _settle(self, number: int) -> None:
        """The file holds that snapshot: forget whom it, and all that may follow, do not name."""
        if self._gone:
            self._gone = {key: last for key, last in self._gone.items() if last >= number}


class LogDirState:
    """A log directory with what its checkpoints said, and say now."""

    __slots__ = (
        "_pending_recovery",
        "directory",
        "high_watermarks",
        "log_start_offsets",
        "ready",
        "recovery_points",
        "unsynced_since",
    )

    def __init__(self, directory: LogDir) -> None:
        self.directory = directory
        self.ready = False  # locked, read, and recovered if need be: only then may it be marked as cleanly stopped
        self.recovery_points = OffsetCheckpoint(directory, checkpoints.RECOVERY_POINT_CHECKPOINT)
        self.log_start_offsets = OffsetCheckpoint(directory, checkpoints.LOG_START_OFFSET_CHECKPOINT)
        self.high_watermarks = OffsetCheckpoint(directory, checkpoints.HIGH_WATERMARK_CHECKPOINT)
        # Where that begins which a recovery found, and did not sync; of logs that are open, their flushes know better.
        self.unsynced_since: dict[TopicPartition, int] = {}
        self._pending_recovery: PendingRecovery | None = None  # there is none after a clean stop
        directory.before_first_file = self._make_way_for

    def _checkpoints(self) -> tuple[OffsetCheckpoint, OffsetCheckpoint, OffsetCheckpoint]:
        return self.recovery_points, self.log_start_offsets, self.high_watermarks

    def load(self) -> None:
        """Read the checkpoints; raises OSError."""
        for checkpoint in self._checkpoints():
            checkpoint.load()

    def recover(self, environment: LogEnvironment, keys: Iterable[TopicPartition]) -> None:
        """The partitions here may not be whole: see to it that nobody opens one that is not recovered.

        Raises OSError and StorageError.
        """
        from pybroker.storage.pending_recovery import PendingRecovery

        self._pending_recovery = pending = PendingRecovery(environment, self)
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
        """Forget what is said of partitions that do not lie here: a crash came between their end and its writing."""
        kept = set(keys)
        for checkpoint in self._checkpoints():
            for key in checkpoint.offsets.keys() - kept:
                checkpoint.forget(key)

    def forget(self, key: TopicPartition) -> None:
        """The partition is gone."""
        for checkpoint in self._checkpoints():
            checkpoint.forget(key)
        self.unsynced_since.pop(key, None)
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
        return self.directory.path / f"{key[0]}-{key[1]}"

    def restart_point(self, key: TopicPartition) -> RestartPoint:
        """What is known of a partition that was not opened yet."""
        recovery_point, log_start_offset, high_watermark = (each.offsets.get(key, 0) for each in self._checkpoints())
        return RestartPoint(recovery_point, log_start_offset, high_watermark)

    def note_offsets(self, key: TopicPartition, log: Log) -> None:
        """Take an open log's offsets over into what the checkpoints will say."""
        self.recovery_points.offsets[key] = log.recovery_point
        if log.log_start_offset > log.segments[0].base_offset:
            self.log_start_offsets.offsets[key] = log.log_start_offset
        else:
            self.log_start_offsets.forget(key)

    def write_offsets(self) -> None:
        """Write where logs start, and where a recovery would, on the flusher thread."""
        self.recovery_points.write()
        self.log_start_offsets.write()

    def write_high_watermarks(self) -> None:
        """Write the high watermarks, on the flusher thread."""
        self.high_watermarks.write()

    def write_all_now(self) -> None:
        """Write every checkpoint; raises OSError."""
        for checkpoint in self._checkpoints():
            checkpoint.write_now()
