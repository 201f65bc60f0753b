"""One of a log directory's checkpoint files: an offset for each partition, written on the flusher thread.

Owns what the file says and will say, that an older state never comes after a newer one, and which partitions the file
may name though they are gone.  Does not own the format (``files/checkpoints.py``), nor what the offsets mean.

Kafka: OffsetCheckpointFile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Lock

from pybroker.storage.dirs.log_dir import LogDir
from pybroker.storage.files import checkpoints, os_file
from pybroker.storage.results import StorageError, TopicPartition

logger = logging.getLogger("pybroker.storage")


class OffsetCheckpoint:
    """One checkpoint file: what it will say (``offsets``), and which deleted partitions the file may still name."""

    __slots__ = ("_directory", "_gone", "_lock", "_newest", "_on_disk", "_path", "offsets", "was_damaged")

    def __init__(self, directory: LogDir, name: str) -> None:
        self.offsets: dict[TopicPartition, int] = {}
        self.was_damaged = False  # when it was read
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
            self.was_damaged = True

    def forget(self, key: TopicPartition) -> None:
        """Say nothing of a partition any more."""
        if self.offsets.pop(key, None) is not None:
            self._gone[key] = self._newest[0]

    @property
    def names_gone(self) -> bool:
        """Whether the file may name a partition that was forgotten."""
        return bool(self._gone)

    def says(self, key: TopicPartition, offset: int) -> bool:
        """Whether the file says ``offset`` or more of a partition."""
        number, offsets = self._newest
        return self._on_disk >= number and offsets.get(key, 0) >= offset

    def write(self) -> None:
        """Write what changed, on the flusher thread."""
        self._take_snapshot()
        if self._on_disk < self._newest[0]:
            self._directory.flusher.submit(self._write_newest, self._written)

    def begin_write(self) -> Callable[[], int]:
        """Take down what the file is to say; what is returned writes it, on any thread.  Raises OSError there."""
        self._take_snapshot()
        return self._write_newest

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
