"""Putting a cleaned segment in the place of those it was made from.  Kafka: LocalLog.replaceSegments.

Owns the order of the renames, which is all that crash safety hangs on: ``.cleaned`` becomes ``.swap``, the old files
``.deleted``, then ``.swap`` loses its suffix.  Before the first step is done a start undoes it all, after that it
finishes it (``recovery.tidy_directory``).

Invariant: on the broker's loop, so that no read, roll, truncation or retention of the log comes in between; readers
that hold views of the old segments go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker.storage.cleaner.cleaned_segment import remove_cleaned
from pybroker.storage.files import os_file
from pybroker.storage.files.file_names import CLEANED_SUFFIX, DELETED_SUFFIX, SUFFIXES, SWAP_SUFFIX
from pybroker.storage.files.segment import Segment
from pybroker.storage.log.producer_snapshot import snapshot_path

if TYPE_CHECKING:
    from pybroker.storage.cleaner.cleaner_jobs import CleanedGroup
    from pybroker.storage.log.log_state import LogState


class SwapFailed(Exception):
    """A rename failed in the middle: only the next start can tell what is what."""


def swap_in(log: LogState, group: CleanedGroup, replaced: list[Segment]) -> None:
    """Replace segments by the ``.cleaned`` one.  OSError: nothing has changed.  SwapFailed: see there."""
    segment = Segment(log.path, group.base_offset, group.size, replaced[-1].created_ms, log.environment.segments)
    try:
        _rename(segment, CLEANED_SUFFIX, SWAP_SUFFIX)
    except OSError:
        _undo(log, segment)
        raise
    try:
        to_delete = []
        for old in replaced:
            to_delete += old.rename_files(DELETED_SUFFIX)
        _rename(segment, SWAP_SUFFIX, "")
        for old in replaced[1:]:
            os_file.unlink_if_exists(snapshot_path(log.path, old.base_offset))
    except OSError as error:
        raise SwapFailed from error
    log.replace_segments(replaced, segment, to_delete)


def _rename(segment: Segment, suffix: str, new_suffix: str) -> None:
    for kind in SUFFIXES:
        path = segment.path(kind)
        try:
            os_file.rename(path.with_name(path.name + suffix), path.with_name(path.name + new_suffix))
        except FileNotFoundError:
            if kind == SUFFIXES[0]:
                raise


def _undo(log: LogState, segment: Segment) -> None:
    """Remove what was to come in; a ``.swap`` file that stays would come in at the next start."""
    try:
        for kind in SUFFIXES:
            path = segment.path(kind)
            os_file.unlink_if_exists(path.with_name(path.name + SWAP_SUFFIX))
        remove_cleaned(log.path, segment.base_offset)
    except OSError as error:
        raise SwapFailed from error
