"""Making a file in another directory hold what a file holds: the thread's part of a move between log directories.

Owns: copying a range in small pieces, going on with a copy that was begun before, small files as a whole, the removal
of what has no counterpart. Knows no segment and no log: the mover says which files, and how much of each is fixed.

Invariant: what lies at the target already counts only as far as it is compared with the source and equal.  So it does
not matter who wrote it, nor what of it a power failure has kept.

Errors of reading are ``SourceFailed``, all others are the target's: different directories may have to go offline.

Kafka: none; there a move is a fetch of the replica from itself.
"""

from __future__ import annotations

from collections.abc import Collection, Generator
from pathlib import Path

from pybroker.storage.files import os_file

# A thread that copies lets others have their turn after a piece of this size: it takes a fraction of a millisecond.
MOVE_PIECE_BYTES = 256 << 10


class SourceFailed(Exception):
    """What was to be copied could not be read; the cause says why."""


class SourceCut(Exception):
    """The source is shorter than was said: it was cut meanwhile."""


def _read(fd: int, size: int, position: int) -> bytes:
    try:
        piece = os_file.pread(fd, size, position)
    except OSError as error:
        raise SourceFailed from error
    if len(piece) != size:
        raise SourceCut
    return piece


def mirror_range(source_fd: int, target: Path, start: int, end: int, sync: bool) -> Generator[None, None, None]:
    """Make [start, end) of ``target`` what the source has there, and end it at ``end``; raises OSError and see above.

    Without ``sync`` the kernel is only asked to begin to write it.
    """
    fd = os_file.open_for_append(target)
    try:
        there = os_file.fstat(fd).st_size
        for position in range(start, end, MOVE_PIECE_BYTES):
            piece = _read(source_fd, min(MOVE_PIECE_BYTES, end - position), position)
            if position + len(piece) > there or os_file.pread(fd, len(piece), position) != piece:
                os_file.write_fully(fd, piece, position)
            yield
        if there > end:
            os_file.ftruncate(fd, end)
        if sync:
            os_file.fdatasync(fd)
        else:
            os_file.begin_write_back(fd, start, end - start)
    finally:
        os_file.close(fd)


def mirror_file(source: Path, target: Path, sync: bool) -> Generator[None, None, None]:
    """Make ``target`` hold what ``source`` holds, or be as absent; raises as ``mirror_range`` does."""
    try:
        fd = os_file.open_to_read(source)
    except FileNotFoundError:
        os_file.unlink_if_exists(target)
        return
    except OSError as error:
        raise SourceFailed from error
    try:
        yield from mirror_range(fd, target, 0, os_file.fstat(fd).st_size, sync)
    finally:
        os_file.close(fd)


def copy_times(source_fd: int, target: Path) -> None:
    """Give a file the times of its source: retention asks for them where records say none."""
    stat = os_file.fstat(source_fd)
    os_file.utime(target, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def remove_others(directory: Path, names: Collection[str]) -> None:
    """Remove all files but those ``names``."""
    for name in os_file.listdir(directory):
        if name not in names:
            os_file.unlink_if_exists(directory / name)
