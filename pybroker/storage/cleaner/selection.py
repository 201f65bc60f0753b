"""Which log is cleaned next, and what of it may be.  Kafka: LogCleanerManager and LogToClean.

Owns the judgement of one log: from where it is dirty, up to where it may be cleaned (never the active segment, nothing
at or past the last stable offset, nothing younger than ``min.compaction.lag.ms``), and whether it is due, by its ratio
or by ``max.compaction.lag.ms``.  Runs on the broker's loop and looks at nothing but segments' sizes and ends.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from pybroker.config.schema import LONG_MAX
from pybroker.storage import os_file
from pybroker.storage.retention import newest_timestamp
from pybroker_protocol.records import HEADER, HEADER_BYTES

if TYPE_CHECKING:
    from pybroker.storage.log import Log
    from pybroker.storage.segment import Segment


class LogToClean(NamedTuple):
    """One log that may be cleaned: up to ``first_uncleanable_offset``, where a segment begins."""

    log: Log
    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    overdue: bool

    @property
    def dirty_ratio(self) -> float:
        """The share of what would be read that is dirty."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    @property
    def due(self) -> bool:
        """Whether cleaning is worth it now."""
        return self.dirty_ratio > self.log.config.min_cleanable_dirty_ratio or (
            self.overdue and self.cleanable_bytes > 0
        )


def examine(log: Log, checkpoint: int | None, now_ms: int) -> LogToClean:
    """What of the log could be cleaned, given what the checkpoint says is clean.  Raises OSError."""
    first_dirty = _first_dirty_offset(log, checkpoint)
    bound = max(first_dirty, _first_uncleanable_offset(log, first_dirty, now_ms))
    segments = log.segments
    first_uncleanable = min(segments[segments.floor(bound)].base_offset, log.active.base_offset)
    clean_bytes = cleanable_bytes = 0
    for i, segment in enumerate(segments):
        if segment.base_offset < first_dirty:
            clean_bytes += segment.size
        if segment.base_offset < first_uncleanable and segments.end_offset(i, log.log_end_offset) > first_dirty:
            cleanable_bytes += segment.size
    overdue = _is_overdue(log, first_dirty, now_ms)
    return LogToClean(log, first_dirty, first_uncleanable, clean_bytes, cleanable_bytes, overdue)


def _first_dirty_offset(log: Log, checkpoint: int | None) -> int:
    """The checkpoint, unless the log says otherwise: nothing is known then of what is clean."""
    if checkpoint is None or not log.log_start_offset <= checkpoint <= log.log_end_offset:
        return log.log_start_offset
    return checkpoint


def _first_uncleanable_offset(log: Log, first_dirty: int, now_ms: int) -> int:
    bound = min(log.last_stable_offset, log.active.base_offset)
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        for segment in _dirty_sealed(log, first_dirty):
            if newest_timestamp(segment) > now_ms - lag_ms:
                return min(bound, segment.base_offset)
    return bound


def _dirty_sealed(log: Log, first_dirty: int) -> list[Segment]:
    segments = log.segments
    first = segments.floor(first_dirty)
    return [segments[i] for i in range(first, len(segments)) if segments[i] is not log.active]


def _is_overdue(log: Log, first_dirty: int, now_ms: int) -> bool:
    """Whether something dirty and sealed is older than ``max.compaction.lag.ms``, by its segment's first batch."""
    lag_ms = log.config.max_compaction_lag_ms
    if lag_ms == LONG_MAX:
        return False
    return any(0 < first_timestamp(segment) < now_ms - lag_ms for segment in _dirty_sealed(log, first_dirty))


def first_timestamp(segment: Segment) -> int:
    """The largest timestamp of a segment's first batch, -1 without one.  Looked up once."""
    if segment.first_timestamp < 0 and segment.size:
        fd = os.open(segment.path(), os.O_RDONLY | os.O_CLOEXEC)
        try:
            segment.first_timestamp = HEADER.unpack(os_file.pread(fd, HEADER_BYTES, 0))[8]
        finally:
            os.close(fd)
    return segment.first_timestamp
