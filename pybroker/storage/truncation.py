"""Cutting a log's end off: what a follower does where its leader's log differs.

Invariants: the log end moves before files do; producer state and leader epochs never speak of what is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker.storage.file_names import DELETED_SUFFIX
from pybroker.storage.log_loader import load_producers
from pybroker.storage.log_rolling import make_files
from pybroker.storage.producer_snapshot import delete_snapshots

if TYPE_CHECKING:
    from pybroker.storage.log import Log


def truncate_log(log: Log, offset: int) -> None:
    """Drop everything at and past ``offset``.  Raises OSError."""
    if offset >= log.log_end_offset:
        return
    if offset < log.segments[0].base_offset:
        truncate_fully(log, offset)
        return
    _leave_uncleaned(log)
    log.flushes.truncated()
    log.log_end_offset = log.next_offset = offset
    log.high_watermark = min(log.high_watermark, offset)
    log.recovery_point = min(log.recovery_point, offset)
    gone = [segment for segment in log.segments if segment.base_offset > offset]
    log.drop_segments(gone)
    segment = log.segments[-1]
    log.activate(segment)
    position = segment.find(offset)
    segment.truncate(position if position >= 0 else segment.size, offset)
    log.leader_epochs.truncate_from_end(offset)
    log.write_epochs()
    delete_snapshots(log.path, above=offset)
    log.log_start_offset = min(log.log_start_offset, offset)
    load_producers(log)
    _forget_clean(log)


def _leave_uncleaned(log: Log) -> None:
    """Before the cut: what is being cleaned of the log may be cut."""
    if log.environment.cleaner is not None:
        log.environment.cleaner.abort(log)


def _forget_clean(log: Log) -> None:
    """After the cut: what follows is dirty."""
    if log.environment.cleaner is not None:
        log.environment.cleaner.truncated(log, log.active.base_offset)


def truncate_fully(log: Log, offset: int) -> None:
    """Drop everything and begin anew at ``offset``.  Raises OSError."""
    _leave_uncleaned(log)
    former = list(log.segments)
    on_disk = log.on_disk
    log.flushes.truncated()
    log.become_empty(offset)
    log.recovery_point = offset
    log.leader_epochs.clear()
    log.producers.clear(offset)
    if on_disk:
        doomed = []
        for segment in former:
            doomed += segment.rename_files(DELETED_SUFFIX)
            segment.retire()
        log.directory.remove_later(doomed, log.config.file_delete_delay_ms)
        delete_snapshots(log.path, below=1 << 63)
        make_files(log)
    _forget_clean(log)
