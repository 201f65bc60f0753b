"""Which of a log's oldest segments may go.  Kafka: UnifiedLog.deleteOldSegments.

A segment goes when everything in it lies below the log start offset. With ``cleanup.policy=delete`` it goes when its
newest record is older than ``retention.ms`` or the log is larger than ``retention.bytes`` without it. Nothing past the
high watermark goes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker.storage.files import os_file
from pybroker.storage.log.log_rolling import roll
from pybroker.storage.log.producer_snapshot import delete_snapshots

if TYPE_CHECKING:
    from pybroker.storage.files.segment import Segment
    from pybroker.storage.log.log_state import LogState

NEVER_MS = (1 << 63) - 1


def apply_retention(log: LogState) -> int:
    """Drop what has expired; returns how many segments.  Raises OSError."""
    expired = expired_segments(log, log.environment.now_ms())
    if not expired:
        return 0
    if len(expired) == len(log.segments):
        roll(log, log.next_offset)
    log.advance_start(log.segments[len(expired)].base_offset)
    log.drop_segments(expired)
    delete_snapshots(log.path, below=log.segments[0].base_offset)
    return len(expired)


def expired_segments(log: LogState, now_ms: int) -> list[Segment]:
    """The segments to drop, oldest first; all of them only if even the active one holds nothing but expired records."""
    config = log.config
    by_policy = config.delete
    by_size = by_policy and config.retention_bytes >= 0
    excess_bytes = log.segments.total_bytes() - config.retention_bytes if by_size else -1
    retention_ms = config.retention_ms if by_policy else -1
    expired: list[Segment] = []
    for i, segment in enumerate(log.segments):
        end_offset = log.segments.end_offset(i, log.log_end_offset)
        is_active = segment is log.active
        if end_offset > log.high_watermark or (is_active and segment.size == 0):
            break
        below_start = end_offset <= log.log_start_offset and not is_active
        too_old = retention_ms >= 0 and now_ms - newest_timestamp(segment) > retention_ms
        too_large = excess_bytes >= segment.size
        if not (below_start or too_old or too_large):
            break
        excess_bytes -= segment.size
        expired.append(segment)
    return expired


def retention_due_ms(log: LogState) -> int:
    """When (in ms since the epoch) retention has to look at the log again, if it is not touched till then.

    0 if that is as soon as possible, ``NEVER_MS`` if only a touch or another setting can make a difference.  Raises
    OSError.
    """
    config, oldest = log.config, log.segments[0]
    if log.segments.end_offset(0, log.log_end_offset) > log.high_watermark:
        return 0  # the high watermark moves without a touch
    if oldest.size == 0 and oldest is log.active:
        return NEVER_MS
    if expired_segments(log, log.environment.now_ms()):
        return 0  # it had to wait
    if not config.delete or config.retention_ms < 0:
        return NEVER_MS
    return newest_timestamp(oldest) + config.retention_ms + 1


def largest_timestamp(segment: Segment) -> int:
    """The largest timestamp (ms) in a segment, -1 where its records have none.  Raises OSError."""
    if segment.max_timestamp < 0:
        segment.load_max_timestamp()
    return segment.max_timestamp


def newest_timestamp(segment: Segment) -> int:
    """The largest timestamp in a segment; where its records have none, when its file was last written."""
    largest = largest_timestamp(segment)
    return largest if largest >= 0 else int(os_file.stat(segment.path()).st_mtime * 1000)
