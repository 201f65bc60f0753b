"""What a thread does of a move between log directories: pieces of segments, and at last all that is small.

Owns what belongs to a copy of a log besides its data, and the order in which it is synced.  Does not own what is copied
when, nor the log: it is handed descriptors and paths (``replica_move``).

Invariant: after ``make_whole`` the copy opens as the log would after a clean stop, and a power failure takes nothing of
it back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pybroker.storage.files import os_file
from pybroker.storage.files.file_names import LOG_SUFFIX, SUFFIXES, file_name
from pybroker.storage.files.mirror import copy_times, mirror_file, mirror_range, remove_others

_INDEX_SUFFIXES = tuple(suffix for suffix in SUFFIXES if suffix != LOG_SUFFIX)


class Piece(NamedTuple):
    """A range of a segment that is copied in one step."""

    base_offset: int
    start: int
    end: int
    completes: bool  # nothing is appended to it any more, or now, and this is all of it


def copy_piece(piece: Piece, fd: int, source: Path, target: Path, sync: bool) -> Generator[None, None, None]:
    """On the mover's thread: copy the piece from the descriptor, with the indexes that lie in ``source`` if all is."""
    path = target / file_name(piece.base_offset)
    yield from mirror_range(fd, path, piece.start, piece.end, sync and piece.completes)
    if piece.completes:
        for name in (file_name(piece.base_offset, suffix) for suffix in _INDEX_SUFFIXES):
            yield from mirror_file(source / name, target / name, sync)
        copy_times(fd, path)


def make_whole(
    copying: Generator[None, None, None],
    source: Path,
    target: Path,
    names: Sequence[str],
    contents: Mapping[str, bytes],
    kept: Collection[str],
    checkpoints: Sequence[Callable[[], int]],
    sync: bool,
) -> Generator[None, None, None]:
    """On the mover's thread, while appends are held: after this the target has what the log has, synced.

    ``names`` are copied from the source; ``contents`` are what the log has in memory, for which the source may have no
    space.
    """
    yield from copying
    for name in names:
        yield from mirror_file(source / name, target / name, sync)
    for name, data in contents.items():
        os_file.replace_file(target / name, data, sync)
        yield
    remove_others(target, {*kept, *names, *contents})
    sync_directory(target, sync)
    sync_directory(target.parent, sync)
    for write in checkpoints:
        write()


def sync_directory(path: Path, sync: bool) -> None:
    """Make the names in a directory last, where anything is synced; raises OSError."""
    if sync:
        os_file.sync_path(path)
