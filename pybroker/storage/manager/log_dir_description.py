"""What DescribeLogDirs tells of the log directories.

Owns: the sizes of volumes and partitions, also of partitions whose log is not open.  Counterpart in Kafka:
``ReplicaManager.describeLogDirs``.

Invariants:
- The file system is asked by the directories' reader threads only, a partition at a time. So neither the loop nor cold
  reads wait for a broker of ten thousand partitions to be described.
- The loop says of some partitions at a time whose logs are in use.
- Only what was asked for is looked at, for as long as it is waited for.
- A directory that cannot be read is answered with an error, and the others as they are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Generator, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pybroker.storage.files import os_file
from pybroker.storage.files.directory_listing import segment_files
from pybroker.storage.results import KAFKA_STORAGE_ERROR, NONE

if TYPE_CHECKING:
    from pybroker.env import Cancellable
    from pybroker.storage.dirs.log_dir import LogDir
    from pybroker.storage.log.log import Log
    from pybroker.storage.log.partition_log import PartitionLog
    from pybroker.storage.manager.log_dir_state import LogDirState
    from pybroker.storage.manager.partition_places import PartitionPlaces
    from pybroker.storage.manager.replica_moves import ReplicaMoves
    from pybroker.storage.results import TopicPartition

# Partitions of which the loop tells DescribeLogDirs at a time whose log is in use, before their files are looked at.
PARTITIONS_DESCRIBED_AT_ONCE = 100

_UNKNOWN = -1
# Total and usable bytes of a volume, sizes of partitions.
_Seen = tuple[int, int, list[int]]

logger = logging.getLogger("pybroker.storage")


class PartitionDescription:
    """One partition in DescribeLogDirs."""

    __slots__ = ("index", "is_future", "offset_lag", "size_bytes", "topic")

    def __init__(self, topic: str, index: int, size_bytes: int, offset_lag: int, is_future: bool = False) -> None:
        """``is_future``: it is on its way here; its lag is behind the log that it becomes."""
        self.topic = topic
        self.index = index
        self.size_bytes = size_bytes
        self.offset_lag = offset_lag
        self.is_future = is_future


class LogDirDescription:
    """One log directory in DescribeLogDirs; ``total_bytes`` and ``usable_bytes`` are its volume's, -1 if unknown.

    Where there is an error code nothing else is known.
    """

    __slots__ = ("error_code", "is_cordoned", "partitions", "path", "total_bytes", "usable_bytes")

    def __init__(self, path: Path, is_cordoned: bool = False) -> None:
        self.path = str(path)
        self.is_cordoned = is_cordoned  # takes no new replicas (KIP-1066)
        self.fail(NONE)

    def fail(self, error_code: int) -> None:
        """Forget what is known, and say why."""
        self.error_code = error_code
        self.partitions: list[PartitionDescription] = []
        self.total_bytes = self.usable_bytes = _UNKNOWN


class LogDirsDescription:
    """All log directories; ``done(descriptions)`` runs once they are all described, in ``start`` or on the loop later.

    It never runs after ``abandon()``, nor where the broker stops meanwhile.
    """

    __slots__ = ("_abandoned", "_done", "_jobs", "_logs", "_moves", "_results", "_under_way", "_unwritten", "_wanted")

    def __init__(
        self,
        logs: Mapping[TopicPartition, PartitionLog],
        moves: ReplicaMoves,
        done: Callable[[list[LogDirDescription]], None],
    ) -> None:
        """``logs`` are those that are in use: what they know needs no look at their files."""
        self._logs = logs
        self._moves = moves
        self._wanted: frozenset[TopicPartition] | None = None
        self._unwritten: Container[TopicPartition] = ()
        self._done = done
        self._results: list[LogDirDescription] = []
        self._under_way = 0
        self._jobs: dict[LogDirState, Cancellable] = {}  # the last one of each
        self._abandoned = False

    def abandon(self) -> None:
        """Its caller has gone."""
        self._abandoned = True
        for job in self._jobs.values():
            job.cancel()

    def start(
        self,
        states: Sequence[LogDirState],
        places: PartitionPlaces,
        wanted: Iterable[TopicPartition] | None,
        assigned: Mapping[TopicPartition, bytes | None],
    ) -> None:
        """Look at every directory and the ``wanted`` partitions in it (``None``: all).

        ``assigned`` are this broker's by the metadata, with the id of the directory that was chosen for each (or
        ``None``). One that nothing was written to has no place yet, and the size 0.
        """
        keys: dict[LogDirState, list[TopicPartition]] = {state: [] for state in states}
        wanted = None if wanted is None else dict.fromkeys(wanted)
        self._wanted = None if wanted is None else frozenset(wanted)
        unwritten = [key for key in assigned if key not in places]
        self._unwritten = frozenset(unwritten)
        for key in (*places, *unwritten) if wanted is None else wanted:
            state = places.get(key)
            if state is not None:
                keys[state].append(key)
            elif key in assigned:
                coming = places.coming(key, assigned[key])
                if coming is not None:
                    keys[coming].append(key)
        self._results = [LogDirDescription(state.directory.path, state.is_cordoned) for state in states]
        for state, described in zip(states, self._results, strict=True):
            if state.directory.offline:
                described.fail(KAFKA_STORAGE_ERROR)
            else:
                self._under_way += 1
                self._look(state, described, keys[state])
        if not self._under_way:
            self._done(self._results)

    def _look(self, state: LogDirState, described: LogDirDescription, keys: list[TopicPartition]) -> None:
        """Let the reader thread look at the next of the partitions."""
        some = keys[:PARTITIONS_DESCRIBED_AT_ONCE]
        paths = [None if self._open_log(key) or key in self._unwritten else state.path_of(key) for key in some]
        self._jobs[state] = state.directory.reader.submit(
            partial(_sizes, state.directory.path, paths), partial(self._seen, state, described, keys)
        )

    def _seen(
        self,
        state: LogDirState,
        described: LogDirDescription,
        keys: list[TopicPartition],
        seen: _Seen | None,
        error: BaseException | None,
    ) -> None:
        if self._abandoned or state.directory.closing:
            return
        if error is not None:
            _note(state.directory, error)
        if seen is None or state.directory.offline:
            described.fail(KAFKA_STORAGE_ERROR)
        else:
            described.total_bytes, described.usable_bytes, sizes = seen
            for key, size in zip(keys, sizes, strict=False):
                described.partitions.append(self._partition(key, size))
            del keys[: len(sizes)]
            if keys:
                self._look(state, described, keys)
                return
            described.partitions += self._futures(state)
        self._under_way -= 1
        if not self._under_way:
            self._done(self._results)

    def _partition(self, key: TopicPartition, size_bytes: int) -> PartitionDescription:
        log = self._open_log(key)
        if log is None:
            return PartitionDescription(*key, size_bytes, 0)
        return PartitionDescription(*key, log.size_bytes, max(log.high_watermark - log.log_end_offset, 0))

    def _futures(self, state: LogDirState) -> list[PartitionDescription]:
        """The partitions that are on their way to a directory."""
        return [
            PartitionDescription(*move.key, move.size_bytes, move.offset_lag(), is_future=True)
            for move in self._moves.futures_in(state)
            if self._wanted is None or move.key in self._wanted
        ]

    def _open_log(self, key: TopicPartition) -> Log | None:
        log = self._logs.get(key)
        return log.opened if log is not None and not log.refuses else None


def _sizes(directory: Path, paths: list[Path | None]) -> Generator[None, None, _Seen]:
    """The volume's total and free bytes, and those of the segments at each path; on a thread.  Raises OSError."""
    total, usable = _UNKNOWN, _UNKNOWN
    try:
        total, usable = os_file.disk_space(directory)
    except OSError as error:
        logger.warning("The volume of %s cannot be asked for its size: %s", directory, error)
    sizes = []
    for path in paths:
        sizes.append(sum(file[1] for file in segment_files(path)) if path else 0)
        yield
    return total, usable, sizes


def _note(directory: LogDir, error: BaseException) -> None:
    if os_file.is_passing(error):
        logger.warning("%s cannot be described now: %s", directory.path, error)
    else:
        directory.fail(error, "describing it")
