"""Space on the disk that is kept for a start: a file that gives way to the metadata store where nothing is free.

A broker that was killed on a full disk has to write a little before it can serve reads. That is the store's shared
memory file, and its registration with the new leader epochs. While it runs, a full disk refuses changes of the metadata
instead.

Owns one file next to the store, whose content means nothing.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from pybroker.storage.files import os_file

# What a start frees of the space that is kept for it, each time that the metadata store finds none.
RESERVED_SPACE_STEP_BYTES = 256 << 10


class ReservedSpace:
    """The file at ``path``; it is made by ``keep``."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def keep(self, size: int) -> None:
        """Have at least ``size`` bytes of space, or as much as there is; a failing disk shows elsewhere."""
        try:
            if os_file.stat(self._path).st_size >= size:
                return
        except OSError:
            pass
        with suppress(OSError):
            fd = os_file.open_for_append(self._path)
            try:
                os_file.allocate(fd, size)
            finally:
                os_file.close(fd)

    def remove(self) -> None:
        """Have no such file: there is no store beside it."""
        with suppress(OSError):
            os_file.unlink(self._path)

    def give_way(self) -> bool:
        """Free some of the space; whether there was any."""
        with suppress(OSError):
            size = os_file.stat(self._path).st_size
            if size:
                os_file.truncate(self._path, max(size - max(RESERVED_SPACE_STEP_BYTES, size // 4), 0))
                return True
        return False
