"""What a start makes of a log directory before it belongs to a broker, and how that is taken back.

Owns: which directories and files of a log dir were not there before this start, and that a directory whose
subdirectories are brokers' log dirs is none itself.  Owns neither the lock nor what is in the files.

Invariant: only files that a broker makes by these names are removed, and only those that were not there before; who
removes them holds the lock.

Kafka has no counterpart: its log dirs are formatted by a command of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from pybroker.storage.files import checkpoints, os_file
from pybroker.storage.files.metadata_mark import MARK_FILE
from pybroker.storage.results import StorageError

LOCK_FILE: Final = ".lock"
CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"
SYNCED_FIRST_FILE: Final = "pybroker-synced-before-acknowledged"
_FILES: Final = (
    CLEAN_SHUTDOWN_FILE,
    SYNCED_FIRST_FILE,
    checkpoints.RECOVERY_POINT_CHECKPOINT,
    checkpoints.LOG_START_OFFSET_CHECKPOINT,
    checkpoints.HIGH_WATERMARK_CHECKPOINT,
    MARK_FILE,
    LOCK_FILE,  # the last: until it is gone no other process begins here
)
_NAMED_MAX: Final = 3


class StartRollback:
    """Those in the log dir at ``path``; to be made before anything is written there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._missing = [each for each in (path, *path.parents) if not os_file.exists(each)]
        self._found = [name for name in _FILES if os_file.exists(path / name)]

    def take_back(self) -> None:
        """Remove what was not there, as far as that goes; a directory with anything else in it stays."""
        for name in _FILES:
            if name not in self._found:
                with suppress(OSError):
                    os_file.unlink(self._path / name)
        for directory in self._missing:
            with suppress(OSError):
                os_file.rmdir(directory)


def refuse_parent_of_log_dirs(path: Path) -> None:
    """StorageError where several brokers of this machine have their log dirs in this one, which is not one yet."""
    if _is_log_dir(path):
        return
    names = sorted(_log_dirs_in(path))
    if names:
        named = ", ".join(names[:_NAMED_MAX]) + (", ..." if len(names) > _NAMED_MAX else "")
        raise StorageError(
            f"{path} holds the data directories of several brokers ({named}), as serve --workers and cluster up make "
            "them: start those, or name a directory of its own for this broker"
        )


def _is_log_dir(path: Path) -> bool:
    return os_file.exists(path / checkpoints.META_PROPERTIES)


def _log_dirs_in(path: Path) -> Iterator[str]:
    """The names of the log dirs in a directory; what may not be looked into, as a file system's lost+found, is none."""
    with suppress(PermissionError):
        for name in os_file.names_in(path):
            with suppress(PermissionError):
                if _is_log_dir(path / name):
                    yield name
