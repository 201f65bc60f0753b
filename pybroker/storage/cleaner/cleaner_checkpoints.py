"""``cleaner-offset-checkpoint``: up to where each log of a directory is clean.

Owns the offsets in memory and their writing, on the directory's flusher thread.  A lost or damaged file only costs
work: what is not known to be clean is dirty.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pybroker.storage.files import os_file
from pybroker.storage.files.checkpoints import read_offset_checkpoint, write_offset_checkpoint
from pybroker.storage.results import StorageError, TopicPartition

if TYPE_CHECKING:
    from pybroker.storage.dirs.log_dir import LogDir

CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"

logger = logging.getLogger("pybroker.storage")


class CleanerCheckpoints:
    """The checkpoints of all log directories, each read at first need."""

    def __init__(self) -> None:
        self._offsets: dict[LogDir, dict[TopicPartition, int]] = {}

    def of(self, directory: LogDir) -> dict[TopicPartition, int]:
        """The offsets of one directory."""
        offsets = self._offsets.get(directory)
        if offsets is None:
            path = directory.path / CLEANER_OFFSET_CHECKPOINT
            try:
                offsets = read_offset_checkpoint(path)
            except (StorageError, OSError) as error:
                logger.warning("%s cannot be read, everything counts as dirty: %s", path, error)
                offsets = {}
            self._offsets[directory] = offsets
        return offsets

    def set(self, directory: LogDir, key: TopicPartition, offset: int | None) -> None:
        """Note up to where a log is clean, or that it is gone, and write the file."""
        offsets = self.of(directory)
        if offsets.get(key) == offset:
            return
        if offset is None:
            del offsets[key]
        else:
            offsets[key] = offset
        if directory.offline or directory.closing:
            return
        path, snapshot = directory.path / CLEANER_OFFSET_CHECKPOINT, dict(offsets)

        def written(_: None, error: BaseException | None) -> None:
            if error is not None and os_file.is_passing(error):
                logger.warning("No space to write %s: %s", path, error)
            elif error is not None:
                directory.fail(error, f"writing {path}")

        directory.flusher.submit(lambda: write_offset_checkpoint(path, snapshot, directory.sync), written)
