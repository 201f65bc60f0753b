"""After every event: the broker's offsets and files against the model.

Owns the invariants that need no client: LSO <= high watermark <= log end, offsets without gaps, no duplicates, the last
stable offset below every open transaction, what a restart must find.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.simulation.model import Batch, LogModel, Model, batches_of, check, read_directory, whole_batches

if TYPE_CHECKING:
    from pybroker.server import BrokerServer
    from pybroker.storage.log.log import Log
    from pybroker.storage.log.partition_log import PartitionLog

_READ_BYTES = 4096  # most batches are smaller
_ORDER = "last stable offset <= high watermark <= log end"


class Observer:
    """Reads what was appended since it looked last."""

    def __init__(self, model: Model, log_dirs: Sequence[Path]) -> None:
        self._model = model
        self._log_dirs = log_dirs
        self._places: dict[LogModel, tuple[int, int]] = {}  # the segment and the position that are read next
        self._seen: dict[PartitionLog, tuple[int, int, int]] = {}

    def look(self, server: BrokerServer | None) -> None:
        """Check every log that is open."""
        logs: Any = server and server._logs
        if not logs:
            return
        for partition_log in logs._logs.values():
            log = partition_log.opened
            if log is None:
                continue
            end, high, stable = log.log_end_offset, log.high_watermark, log.last_stable_offset
            if self._seen.get(partition_log) != (end, high, stable):
                self._look_at(partition_log, log, end, high, stable)

    def _look_at(self, partition_log: PartitionLog, log: Log, end: int, high: int, stable: int) -> None:
        name = f"{log.topic}-{log.partition}"
        before = self._seen.get(partition_log, (0, 0, 0))
        check(
            log.log_start_offset <= stable <= high <= end <= log.next_offset,
            _ORDER,
            f"{name}: start {log.log_start_offset}, stable {stable}, high {high}, end {end}, next {log.next_offset}",
        )
        check(high >= before[1], "the high watermark never goes back", f"{name}: from {before[1]} to {high}")
        check(end >= before[0], "the log's end never goes back", f"{name}: from {before[0]} to {end}")
        check(stable >= before[2], "the last stable offset never goes back", f"{name}: from {before[2]} to {stable}")
        model = self._model.log(log.topic, log.partition)
        if end > model.end_offset:
            if log.active.base_offset == model.end_offset:
                self._places[model] = model.end_offset, 0  # what is behind may have been cleaned
            self._read_on(log.path, model, end)
        check(
            stable <= model.first_open_offset,
            "the last stable offset stays below every open transaction",
            f"{name}: last stable offset {stable}, a transaction is open from {model.first_open_offset} on",
        )
        self._seen[partition_log] = (end, high, stable)

    def _read_on(self, directory: Path, model: LogModel, end: int) -> None:
        base, position = self._places.get(model, (-1, 0))
        while model.end_offset < end:
            file = directory / f"{base:020d}.log"
            batch = batch_at(file, position) if base >= 0 else None
            if batch is None:
                base, position = model.end_offset, 0
                batch = batch_at(directory / f"{base:020d}.log", 0)
                if batch is None:
                    base, position, batch = self._find(directory, model.end_offset)
            model.append(batch)
            position += len(batch.data)
        self._places[model] = (base, position)

    @staticmethod
    def _find(directory: Path, offset: int) -> tuple[int, int, Batch]:
        """The batch at ``offset``, wherever it is."""
        for file in sorted(directory.glob("*.log"), reverse=True):
            base = int(file.stem)
            if base <= offset:
                position = 0
                while (batch := batch_at(file, position)) is not None:
                    if batch.base_offset == offset:
                        return base, position, batch
                    position += len(batch.data)
                break
        raise AssertionError(f"no batch at {offset} in {directory}, where the log says that there is one")

    def _directory_of(self, topic: str, partition: int) -> Path:
        """Where a partition lies; what is not whole of a move does not count, nor what has moved already."""
        name = f"{topic}-{partition}"
        found = [path / name for path in self._log_dirs if (path / name).exists()]
        check(len(found) < 2, "a partition lies in one log dir", name)
        found += [moved for path in self._log_dirs for moved in path.glob(f"{name}.*-moved")]
        return found[0] if found else self._log_dirs[0] / name

    def died(self) -> None:
        """The process ended in the middle of an event: what it had written by then may be acknowledged already."""
        for (topic, partition), model in self._model.logs.items():
            files = sorted(self._directory_of(topic, partition).glob("*.log"))
            behind = [file for file in files if int(file.stem) > model.end_offset]
            for file in files[-len(behind) - 1 :]:
                for batch in whole_batches(file.read_bytes()):
                    if batch.base_offset >= model.end_offset:
                        model.append(batch)

    def restarted(self, power_failed: bool, cuts: Mapping[tuple[str, int], int]) -> str:
        """A new process has recovered the directory: what must be there is there.  Says what is not.

        ``cuts``: logs that are cut when they are opened, and where, because something in their middle was lost.
        """
        self._places.clear()
        self._seen.clear()
        lost = []
        for (topic, partition), model in self._model.logs.items():
            directory = self._directory_of(topic, partition)
            found = read_directory(directory)
            cut = cuts.get((topic, partition))
            if cut is not None:
                found = [batch for batch in found if batch.last_offset < cut]
            must_keep = model.acknowledged_end if power_failed else model.end_offset
            count = model.recovered(found, must_keep)
            if power_failed and cut is None:
                model.skip_to(empty_end(directory))
            if count:
                lost.append(f"{count} offsets of {model.name}")
        return ", ".join(lost)


def empty_end(directory: Path) -> int:
    """Where a log ends whose files are whole and of which the last is empty, else 0."""
    files = sorted(directory.glob("*.log"))
    for file in files:
        data = file.read_bytes()
        if sum(len(batch.data) for batch in whole_batches(data)) < len(data):
            return 0
    return int(files[-1].stem) if files and not files[-1].stat().st_size else 0


def batch_at(file: str | Path, position: int) -> Batch | None:
    """The batch at a position of a file; None when no whole one is there."""
    data = bytes_at(file, position, _READ_BYTES)
    if len(data) < 12:
        return None
    size = 12 + struct.unpack_from(">i", data, 8)[0]
    if size > len(data):
        data += bytes_at(file, position + len(data), size - len(data))
    return next(batches_of(data[:size]))


def bytes_at(file: str | Path, position: int, size: int) -> bytes:
    """The bytes at a position of a file, as many as there are; none if there is no file."""
    try:
        with FileIO(file) as opened:
            return os.pread(opened.fileno(), size, position)
    except FileNotFoundError:
        return b""
