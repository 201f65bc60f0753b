"""Whether a shared SQLite file is still the one that was opened, and what to do where it is not.

Owns: which file that was, and the line of log that says that none, or another one, lies in its place.  SQLite does not
notice that: it goes on with a file that has no name any more.  Owns no connection (``shared_sqlite_worker``), and never
opens the file: who closes it gives up the locks that this process has on it.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)

WAL_SUFFIX: Final = "-wal"
_OWN_DESCRIPTORS: Final = Path("/proc/self/fd")

# Device and inode.
Identity = tuple[int, int]


class OpenedSqliteFile:
    """The file at ``path``, which is open, with its log of writes beside it.  OSError."""

    __slots__ = ("_is_gone", "_log_identity", "_main_identity", "_path")

    def __init__(self, path: str) -> None:
        self._path = path
        self._main_identity = _identity(os.stat(path))
        self._log_identity: Identity | None = None
        with suppress(OSError):  # a file system without shared memory has none
            self._log_identity = _identity(os.stat(path + WAL_SUFFIX))
        self._is_gone = False

    def look(self) -> None:
        """Tell, once, that the file is gone."""
        was_gone, self._is_gone = self._is_gone, self._is_another()
        if self._is_gone and not was_gone:
            log.error(
                "the metadata store %s was deleted, moved or replaced. Brokers that have it open go on with it, and no "
                "restart finds what they change from now on; to save it, %s",
                self._path,
                self._way_to_save(),
            )

    def _is_another(self) -> bool:
        try:
            return _identity(os.stat(self._path)) != self._main_identity
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:  # nothing is known of it
            return False

    def _way_to_save(self) -> str:
        main, writes = self._descriptor(self._main_identity), self._descriptor(self._log_identity)
        if main is None or writes is None:
            return "note what the cluster has (topics, settings, users) before any broker stops"
        return (
            f"pause all brokers (kill -STOP), copy {main} to {self._path} and {writes} to {self._path}{WAL_SUFFIX}, "
            f"remove {self._path}-shm, kill the brokers (kill -KILL) and start them again"
        )

    @staticmethod
    def _descriptor(identity: Identity | None) -> str | None:
        """The path by which others may read what this process has open; None where there is no such thing."""
        try:
            descriptors = [int(entry.name) for entry in _OWN_DESCRIPTORS.iterdir()]
        except OSError:
            return None
        for descriptor in descriptors:
            try:
                if _identity(os.fstat(descriptor)) == identity:
                    return f"/proc/{os.getpid()}/fd/{descriptor}"
            except OSError:  # it was that of the directory itself, or is closed by now
                continue
        return None


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino
