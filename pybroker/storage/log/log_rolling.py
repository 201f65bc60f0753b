"""Making space for the next append: a log's first files, and the roll to a new segment.

Invariants:
- Before a new segment takes an append, the former one is sealed, its indexes are written, and a snapshot of the
  producers stands at the new base offset.
- When the disk has no space for that, nothing has changed.

Kafka: UnifiedLog.roll.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker.storage.files import os_file
from pybroker.storage.files.checkpoints import write_partition_metadata
from pybroker.storage.files.segment import Segment
from pybroker.storage.log.producer_snapshot import write_snapshot
from pybroker.storage.results import RECORD_LIST_TOO_LARGE, AppendResult

if TYPE_CHECKING:
    from pybroker.storage.log.log_state import LogState


def maybe_roll(log: LogState, size: int, offset: int) -> AppendResult | None:
    """Make the place of an append of ``size`` bytes at ``offset`` that the active segment has none for.

    Returns why there is none.
    """
    if log.refuses:
        return log.storage_error()  # this touch was to open it: there may be files, though it knows of none
    limit = log.config.segment_size_bytes
    if size > limit:
        message = f"The record batch of {size} bytes exceeds segment.bytes of {limit}"
        return log.failure(RECORD_LIST_TOO_LARGE, message)
    try:
        if log.on_disk:
            roll(log, offset)
        else:
            make_files(log)
    except OSError as error:
        log.write_failed(error, size)
        return log.storage_error()
    return None


def make_files(log: LogState) -> None:
    """Make the partition's directory and its first segment.  Raises OSError, and may be tried again."""
    log.directory.check_place()
    log.directory.before_first_file((log.topic, log.partition))
    os_file.make_directory(log.path)
    if log.topic_id is not None:
        write_partition_metadata(log.path, log.topic_id)
    try:
        log.active.create(log.config.segment_size_bytes)
    except OSError:
        # The log may begin at another offset by the next try; a segment that is left here would be its start then.
        log.active.discard()
        raise
    log.files_made()


def roll(log: LogState, offset: int) -> None:
    """Seal the active segment and begin a new one at ``offset``, at or past the log's end.  Raises OSError."""
    former, environment = log.active, log.environment
    if offset == former.base_offset:
        return
    former.check_place()  # another directory in the place of the partition's would take the new files
    segment = Segment(log.path, offset, 0, environment.now_ms(), environment.segments)
    try:
        segment.create(log.config.segment_size_bytes)
        former.seal()
        former.note_unsynced()  # the next flush syncs its indexes with its data
        write_snapshot(log.path, offset, log.producers.producers, sync=False)
    except OSError:
        former.unseal()
        segment.discard()
        raise
    jitter_ms = min(log.config.segment_jitter_ms, log.config.segment_ms)
    log.begin_segment(segment, environment.env.random.randrange(jitter_ms) if jitter_ms > 0 else 0)
