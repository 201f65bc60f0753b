"""What goes between the broker and its cleaner: jobs and answers, as JSON lines or as the objects themselves.

Owns the shapes.  Times in ms, sizes in bytes.

A job carries the aborted transactions whose markers lie behind the cleaned range: without them aborted data would count
as committed.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from pybroker.storage.results import AbortedTransaction


class SourceSegment(NamedTuple):
    """A sealed segment to clean; what its file holds past ``size`` does not count."""

    base_offset: int
    size: int


class CleaningJob(NamedTuple):
    """One round over one log.

    ``segments`` are all from the log's first up to ``first_uncleanable_offset``, which is where the next one begins.
    ``later_aborted`` are the aborted transactions whose markers lie behind them.  ``producers`` has, by producer id,
    the last offsets of the batches, none perhaps, and the epoch of every producer that the log remembers.
    """

    directory: str
    segments: list[SourceSegment]
    later_aborted: list[AbortedTransaction]
    producers: dict[int, tuple[tuple[int, ...], int]]
    first_dirty_offset: int
    first_uncleanable_offset: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    index_bytes_max: int
    index_interval_bytes: int
    offset_map_bytes: int
    offset_map_load_factor: float
    io_buffer_bytes: int
    bytes_per_second: float
    sync: bool

    def to_json(self) -> str:
        """One line."""
        return json.dumps({**self._asdict(), "producers": [[k, *v] for k, v in self.producers.items()]})

    @classmethod
    def from_json(cls, line: str) -> CleaningJob:
        """The job of ``to_json``."""
        fields: dict[str, Any] = json.loads(line)
        fields["segments"] = [SourceSegment(*segment) for segment in fields["segments"]]
        fields["later_aborted"] = [AbortedTransaction(*aborted) for aborted in fields["later_aborted"]]
        fields["producers"] = {k: (tuple(offsets), epoch) for k, offsets, epoch in fields["producers"]}
        return cls(**fields)


class Progress(NamedTuple):
    """So many bytes were read and written since the last report."""

    bytes: int


class CleanedGroup(NamedTuple):
    """``.cleaned`` files at ``base_offset`` stand ready, synced, to replace the segments at ``replaced``."""

    base_offset: int
    size: int
    replaced: list[int]


class RoundStats(NamedTuple):
    """What a round did."""

    bytes_read: int
    bytes_written: int
    records_read: int
    records_kept: int
    keys: int


class RoundEnd(NamedTuple):
    """Everything below ``clean_offset`` is clean."""

    clean_offset: int
    stats: RoundStats


class CleaningFailed(Exception):
    """The round cannot be finished: the log holds what cannot be read.  Another try would fail alike."""


class CleanerDied(Exception):
    """The cleaner's process ended in the middle of a round; another one may do better."""


class CleaningAborted(Exception):
    """The round was given up because the broker said so."""


Step = Progress | CleanedGroup | RoundEnd
