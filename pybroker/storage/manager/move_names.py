"""The names of the directories of a move, and what a start makes of a move that a crash has interrupted.

Owns: how they are called, and which of a partition's two directories counts.

A move from one log directory to another goes through these states, each of which one rename ends:

    source                     target                      which one counts
    t-0                        t-0.<uuid>-future           the source; the move goes on
    t-0.<uuid>-moved           t-0.<uuid>-future           the target: it is synced, and nothing came since
    t-0.<uuid>-moved           t-0                         the target; the source is removed

Invariants: the rename in the source, which decides, is synced before that in the target is made, and that before the
source's files go.  A ``-moved`` directory whose target is not here is kept, and the partition is nowhere else.

Kafka: ``-future`` is its own name.  It has no ``-moved``: it renames the future directory first, tells the controller
before, and by that a start knows which of two counts (``LogManager.recoverAbandonedFutureLogs``).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pybroker.storage.files import os_file
from pybroker.storage.files.file_names import partition_dir_name
from pybroker.storage.manager.log_dir_state import online

if TYPE_CHECKING:
    from pybroker.storage.manager.log_dir_state import LogDirState
    from pybroker.storage.results import TopicPartition

FUTURE_DIR_SUFFIX = "-future"
MOVED_DIR_SUFFIX = "-moved"
DELETE_DIR_SUFFIX = "-delete"
NAME_BYTES_MAX = 255

_NAME = re.compile(r"(.+)-(\d+)\.([0-9a-f]{32})(-future|-moved)")

T = TypeVar("T")

logger = logging.getLogger("pybroker.storage")


def future_dir_name(key: TopicPartition, unique: str) -> str:
    """Kafka's name for the directory of a partition that is being moved here; ``unique`` is 32 hexadecimal digits."""
    return f"{partition_dir_name(*key)}.{unique}{FUTURE_DIR_SUFFIX}"


def is_movable(key: TopicPartition) -> bool:
    """Whether the names that a move needs fit into a file system's."""
    return len(future_dir_name(key, "0" * 32)) <= NAME_BYTES_MAX


def moved_path(source: LogDirState, future: Path) -> Path:
    """What the partition's directory in the source is called once that of its move counts."""
    return source.directory.path / (future.name.removesuffix(FUTURE_DIR_SUFFIX) + MOVED_DIR_SUFFIX)


def mark_deleted(path: Path) -> Path:
    """Rename a directory of a move, so that it is to be removed; raises OSError.  Returns its new path."""
    target = path.with_name(path.name.rpartition("-")[0] + DELETE_DIR_SUFFIX)
    os_file.rename(path, target)
    return target


class InterruptedMoves:
    """What was found at a start, and what it comes to, by the rules of the module."""

    def __init__(self) -> None:
        self.futures: dict[TopicPartition, tuple[LogDirState, Path]] = {}  # of moves that go on
        self.away: set[TopicPartition] = set()  # they lie in a log directory that is not here

    def settle(self, states: Sequence[LogDirState]) -> None:
        """Finish the moves that had been decided.  What cannot be read or renamed takes its log directory offline."""
        futures: dict[str, tuple[TopicPartition, LogDirState, Path]] = {}
        moved: dict[str, tuple[TopicPartition, LogDirState, Path]] = {}
        for state in online(states):
            for key, unique, path in _guarded(state, partial(_found_in, state)) or ():
                found = futures if path.name.endswith(FUTURE_DIR_SUFFIX) else moved
                found[unique] = (key, state, path)
        for unique in moved.keys() & futures.keys():
            key, state, path = futures.pop(unique)
            _guarded(state, partial(_take_place, state, key, path))
        for key, state, path in moved.values():
            self._let_go(states, key, state, path)
        for key, state, path in futures.values():
            if key in self.futures or os_file.exists(state.path_of(key)):
                _guarded(state, partial(mark_deleted, path))
            else:
                self.futures[key] = (state, path)

    def _let_go(self, states: Sequence[LogDirState], key: TopicPartition, state: LogDirState, path: Path) -> None:
        if any(os_file.exists(other.path_of(key)) for other in online(states)):
            _guarded(state, partial(mark_deleted, path))
        else:
            logger.error("%s-%d has moved from %s to a log directory that is not here", *key, state.directory.path)
            self.away.add(key)


def _guarded(state: LogDirState, action: Callable[[], T]) -> T | None:
    try:
        return action()
    except OSError as error:
        state.directory.fail(error, "finishing moves between log directories")
        return None


def _found_in(state: LogDirState) -> list[tuple[TopicPartition, str, Path]]:
    directory = state.directory.path
    matches = [match for name in os_file.listdir(directory) if (match := _NAME.fullmatch(name))]
    return [((match[1], int(match[2])), match[3], directory / match[0]) for match in matches]


def _take_place(state: LogDirState, key: TopicPartition, path: Path) -> None:
    os_file.rename(path, state.path_of(key))
    if state.directory.sync:
        os_file.sync_path(state.directory.path)
    logger.info("%s-%d lies in %s: its move had come to that", *key, state.directory.path)
