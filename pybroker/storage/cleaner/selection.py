"""Which log is cleaned next, and what of it may be.  Kafka: LogCleanerManager and LogToClean.

Owns the judgement of one log: from where it is dirty, up to where it may be cleaned, and whether it is due, by its
ratio or by ``max.compaction.lag.ms``. Never cleaned are the active segment, what lies at or past the last stable
offset, and what is younger than ``min.compaction.lag.ms``. Runs on the broker's loop and looks at nothing but segments'
sizes and ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pybroker.config.schema import LONG_MAX
from pybroker.storage.log.retention import newest_timestamp

if TYPE_CHECKING:
    from pybroker.storage.files.segment import Segment
    from pybroker.storage.log.log_state import LogState
    from pybroker.storage.log.partition_log import PartitionLog


class LogToClean(NamedTuple):
    """One log that may be cleaned: up to ``first_uncleanable_offset``, where a segment begins."""

    log: PartitionLog
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


def examine(partition_log: PartitionLog, checkpoint: int | None, now_ms: int) -> LogToClean:
    """What of the log could be cleaned, given what the checkpoint says is clean.  Raises OSError."""
    log = partition_log.open()
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
    return LogToClean(partition_log, first_dirty, first_uncleanable, clean_bytes, cleanable_bytes, overdue)


def _first_dirty_offset(log: LogState, checkpoint: int | None) -> int:
    """The checkpoint, unless the log says otherwise: nothing is known then of what is clean."""
    if checkpoint is None or not log.log_start_offset <= checkpoint <= log.log_end_offset:
        return log.log_start_offset
    return checkpoint


def _first_uncleanable_offset(log: LogState, first_dirty: int, now_ms: int) -> int:
    bound = min(log.last_stable_offset, log.active.base_offset)
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        for segment in _dirty_sealed(log, first_dirty):
            if newest_timestamp(segment) > now_ms - lag_ms:
                return min(bound, segment.base_offset)
    return bound


def _dirty_sealed(log: LogState, first_dirty: int) -> list[Segment]:
    segments = log.segments
    first = segments.floor(first_dirty)
    return [segments[i] for i in range(first, len(segments)) if segments[i] is not log.active]


def _is_overdue(log: LogState, first_dirty: int, now_ms: int) -> bool:
    """Whether something dirty and sealed is older than ``max.compaction.lag.ms``, by its segment's first batch."""
    lag_ms = log.config.max_compaction_lag_ms
    if lag_ms == LONG_MAX:
        return False
    return any(0 < segment.load_first_timestamp() < now_ms - lag_ms for segment in _dirty_sealed(log, first_dirty))
