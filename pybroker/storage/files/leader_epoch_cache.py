"""Which leader epoch wrote from which offset on.  Kafka's LeaderEpochFileCache.

Owns the entries in memory and the ``leader-epoch-checkpoint`` file.  Writes are not synced here: a flush of the log
syncs the file, and recovery takes what is missing from the batches themselves.

Invariants: epochs and start offsets rise strictly from entry to entry.
"""

from __future__ import annotations

import logging
from itertools import pairwise
from pathlib import Path

from pybroker.storage.files import os_file
from pybroker.storage.files.checkpoints import encode_entries, read_entries
from pybroker.storage.results import StorageError

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1

logger = logging.getLogger("pybroker.storage")


class LeaderEpochCache:
    """The epochs of one log; ``latest_epoch`` is -1 while there is none."""

    __slots__ = ("_epochs", "_start_offsets", "dirty", "latest_epoch", "path")

    def __init__(self, directory: Path) -> None:
        self.path = directory / LEADER_EPOCH_CHECKPOINT
        self._epochs: list[int] = []
        self._start_offsets: list[int] = []
        self.latest_epoch = UNDEFINED_EPOCH
        self.dirty = False

    def note_changed(self, changed: bool = True) -> None:
        """Whether the entries are others than those that the file holds."""
        self.dirty = changed

    def load(self) -> None:
        """Read the checkpoint file, if there is one.  Raises StorageError if it is damaged."""
        try:
            rows = [(int(epoch), int(offset)) for epoch, offset in read_entries(self.path, 2)]
        except ValueError:
            raise StorageError(f"The checkpoint file {self.path} is malformed") from None
        if any(former >= later for pair in pairwise(rows) for former, later in zip(*pair, strict=True)):
            raise StorageError(f"The checkpoint file {self.path} is not in order")
        self._epochs = [epoch for epoch, _ in rows]
        self._start_offsets = [offset for _, offset in rows]
        self.latest_epoch = self._epochs[-1] if rows else UNDEFINED_EPOCH

    def load_or_forget(self) -> None:
        """Read the checkpoint file; a damaged one counts as missing.  Raises OSError."""
        try:
            self.load()
        except StorageError as error:
            logger.warning("%s; the leader epochs are taken from the log", error)
            self.clear()

    @property
    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset), rising."""
        return list(zip(self._epochs, self._start_offsets, strict=True))

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that ``epoch`` writes from ``start_offset`` on; whether that was new.  ``write`` makes it last."""
        if epoch <= self.latest_epoch or epoch < 0:
            return False
        # An epoch that wrote nothing before the next one began has no entry.
        while self._start_offsets and self._start_offsets[-1] >= start_offset:
            self._start_offsets.pop()
            self._epochs.pop()
        self._epochs.append(epoch)
        self._start_offsets.append(start_offset)
        self.latest_epoch = epoch
        self.dirty = True
        return True

    def end_offset_for(self, requested_epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch at or below the requested one; (-1, -1) when that is not known."""
        if requested_epoch == UNDEFINED_EPOCH or not self._epochs or requested_epoch > self.latest_epoch:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if requested_epoch == self.latest_epoch:
            return requested_epoch, log_end_offset
        higher = next(i for i, epoch in enumerate(self._epochs) if epoch > requested_epoch)
        if higher == 0:
            # All of that epoch is gone: what is left begins with the first epoch that is known.
            return requested_epoch, self._start_offsets[0]
        return self._epochs[higher - 1], self._start_offsets[higher]

    def epoch_of(self, offset: int) -> int:
        """The epoch that wrote ``offset``, -1 if that is not known."""
        found = UNDEFINED_EPOCH
        for epoch, start_offset in zip(self._epochs, self._start_offsets, strict=True):
            if start_offset > offset:
                break
            found = epoch
        return found

    def start_of(self, epoch: int, log_end_offset: int) -> int:
        """Where the first epoch begins that is not below that one; at the log's end while there is none."""
        entries = zip(self._epochs, self._start_offsets, strict=True)
        return next((start_offset for known, start_offset in entries if known >= epoch), log_end_offset)

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget the epochs that begin at or after ``end_offset``."""
        while self._start_offsets and self._start_offsets[-1] >= end_offset:
            self._start_offsets.pop()
            self._epochs.pop()
            self.dirty = True
        self.latest_epoch = self._epochs[-1] if self._epochs else UNDEFINED_EPOCH

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget the epochs that end before ``start_offset``; the one that spans it begins there from now on."""
        while len(self._start_offsets) > 1 and self._start_offsets[1] <= start_offset:
            del self._start_offsets[0], self._epochs[0]
            self.dirty = True
        if self._start_offsets and self._start_offsets[0] < start_offset:
            self._start_offsets[0] = start_offset
            self.dirty = True

    def clear(self) -> None:
        """Forget everything."""
        self._epochs.clear()
        self._start_offsets.clear()
        self.latest_epoch = UNDEFINED_EPOCH
        self.dirty = True

    def write(self, sync: bool = False) -> None:
        """Write the checkpoint file if it is not up to date."""
        if self.dirty:
            os_file.replace_file(self.path, self.contents(), sync)
            self.dirty = False

    def contents(self) -> bytes:
        """What the checkpoint file holds once it is up to date."""
        return encode_entries([f"{epoch} {offset}" for epoch, offset in self.entries])
