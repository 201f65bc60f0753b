"""A log directory with the offsets that its checkpoints name.

Owns: reading them at the start, what they will say next, and writing those that changed.  Knows no log but in passing;
which partition lies in which directory is ``partition_places``'.

Counterpart in Kafka: ``LogManager``'s checkpoint maps.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pybroker.storage import checkpoints, os_file
from pybroker.storage.log_dir import LogDir
from pybroker.storage.log_environment import RestartPoint
from pybroker.storage.results import TopicPartition

if TYPE_CHECKING:
    from pybroker.storage.log import Log


class LogDirState:
    """A log directory with what its checkpoints said, and say now."""

    __slots__ = (
        "directory",
        "high_watermarks",
        "log_start_offsets",
        "ready",
        "recovery_points",
        "unsynced_since",
        "written",
    )

    def __init__(self, directory: LogDir) -> None:
        self.directory = directory
        self.ready = False  # locked, read, and recovered if need be: only then may it be marked as cleanly stopped
        self.recovery_points: dict[TopicPartition, int] = {}
        self.log_start_offsets: dict[TopicPartition, int] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}
        # Where that begins which a recovery found, and did not sync; of logs that are open, their flushes know better.
        self.unsynced_since: dict[TopicPartition, int] = {}
        self.written: dict[str, dict[TopicPartition, int]] = {}

    def load(self) -> None:
        """Read the checkpoints."""
        path = self.directory.path
        self.recovery_points = checkpoints.read_offset_checkpoint(path / checkpoints.RECOVERY_POINT_CHECKPOINT)
        self.log_start_offsets = checkpoints.read_offset_checkpoint(path / checkpoints.LOG_START_OFFSET_CHECKPOINT)
        self.high_watermarks = checkpoints.read_offset_checkpoint(path / checkpoints.HIGH_WATERMARK_CHECKPOINT)

    def forget(self, key: TopicPartition) -> None:
        """The partition is gone."""
        for offsets in (self.recovery_points, self.log_start_offsets, self.high_watermarks, self.unsynced_since):
            offsets.pop(key, None)

    def path_of(self, key: TopicPartition) -> Path:
        """The partition's own directory."""
        return self.directory.path / f"{key[0]}-{key[1]}"

    def restart_point(self, key: TopicPartition) -> RestartPoint:
        """What is known of a partition that was not opened yet."""
        return RestartPoint(
            self.recovery_points.get(key, 0), self.log_start_offsets.get(key, 0), self.high_watermarks.get(key, 0)
        )

    def note_offsets(self, key: TopicPartition, log: Log) -> None:
        """Take an open log's offsets over into what the checkpoints will say."""
        self.recovery_points[key] = log.recovery_point
        if log.log_start_offset > log.segments[0].base_offset:
            self.log_start_offsets[key] = log.log_start_offset
        else:
            self.log_start_offsets.pop(key, None)

    def write_offsets(self) -> None:
        """Write where logs start, and where a recovery would, on the flusher thread."""
        self._write(checkpoints.RECOVERY_POINT_CHECKPOINT, self.recovery_points)
        self._write(checkpoints.LOG_START_OFFSET_CHECKPOINT, self.log_start_offsets)

    def write_high_watermarks(self) -> None:
        """Write the high watermarks, on the flusher thread."""
        self._write(checkpoints.HIGH_WATERMARK_CHECKPOINT, self.high_watermarks)

    def write_all_now(self) -> None:
        """Write every checkpoint; raises OSError."""
        for name, offsets in (
            (checkpoints.RECOVERY_POINT_CHECKPOINT, self.recovery_points),
            (checkpoints.LOG_START_OFFSET_CHECKPOINT, self.log_start_offsets),
            (checkpoints.HIGH_WATERMARK_CHECKPOINT, self.high_watermarks),
        ):
            checkpoints.write_offset_checkpoint(self.directory.path / name, offsets, self.directory.sync)

    def _write(self, name: str, offsets: dict[TopicPartition, int]) -> None:
        if offsets == self.written.get(name):
            return
        snapshot = dict(offsets)
        self.written[name] = snapshot
        directory = self.directory
        path = directory.path / name

        def written(_: None, error: BaseException | None) -> None:
            if error is None:
                return
            self.written.pop(name, None)
            if not os_file.is_passing(error):
                directory.fail(error, f"writing {path}")

        directory.flusher.submit(lambda: checkpoints.write_offset_checkpoint(path, snapshot, directory.sync), written)
