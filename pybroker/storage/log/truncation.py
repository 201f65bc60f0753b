"""Cutting a log's end off: what a follower does where its leader's log differs.

Invariants: the log end moves before files do; producer state and leader epochs never speak of what is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker.storage.log.log_loader import load_producers
from pybroker.storage.log.log_rolling import make_files
from pybroker.storage.log.producer_snapshot import delete_snapshots

if TYPE_CHECKING:
    from pybroker.storage.log.log_state import LogState


def truncate_log(log: LogState, offset: int) -> None:
    """Drop everything at and past ``offset``.  Raises OSError."""
    if offset >= log.log_end_offset:
        return
    if offset < log.segments[0].base_offset:
        truncate_fully(log, offset)
        return
    _leave_uncleaned(log)
    log.producers.verifications.clear()
    log.cut(offset)
    segment = log.active
    position = segment.find(offset)
    segment.truncate(position if position >= 0 else segment.size, offset)
    log.leader_epochs.truncate_from_end(offset)
    log.write_epochs()
    delete_snapshots(log.path, above=offset)
    load_producers(log)
    _forget_clean(log)


def _leave_uncleaned(log: LogState) -> None:
    """Before the cut: what is being cleaned of the log may be cut."""
    if log.environment.cleaner is not None:
        log.environment.cleaner.abort(log.path)


def _forget_clean(log: LogState) -> None:
    """After the cut: what follows is dirty."""
    if log.environment.cleaner is not None:
        log.environment.cleaner.truncated(log.directory, (log.topic, log.partition), log.active.base_offset)


def truncate_fully(log: LogState, offset: int) -> None:
    """Drop everything and begin anew at ``offset``.  Raises OSError."""
    _leave_uncleaned(log)
    log.producers.verifications.clear()
    on_disk = log.on_disk
    log.begin_anew(offset)
    if on_disk:
        delete_snapshots(log.path, below=1 << 63)
    if on_disk or offset:  # the first append would make them, but a restart before it has to know where the log begins
        make_files(log)
    _forget_clean(log)
