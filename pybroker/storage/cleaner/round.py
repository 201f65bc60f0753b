"""One round of cleaning over one log: the offsets of the dirty keys, then every segment anew.  Kafka's Cleaner.

Owns the two passes and the grouping of small segments.  Reads sealed segments and writes ``.cleaned`` ones; swaps
nothing, and knows neither clock nor thread: the driver of the generator sees to throttling and to aborts.

Invariant: what was begun is removed when the generator is closed or fails; a group that was handed out is the
driver's.

The first pass makes the map of keys, and judges the batches. The offsets in one have to ascend up to its header's last
one, so that a batch that lies cannot supersede what was written later. Such a batch makes its log uncleanable, named by
segment and offset. The second pass goes by offsets alone while the map is a dict. A batch of which no offset is the
last of its key is dropped by its header, unread if it is larger than the buffer. Only keys of the clean part are looked
up. Once the keys have moved to the table (``offset_map``) they are looked up.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import cast

from pybroker.storage.cleaner.batch_filter import (
    PAUSE,
    BatchFilter,
    columns_of,
    is_whole_slice,
    pass_control,
    records_section,
)
from pybroker.storage.cleaner.cleaned_segment import Chunk, CleanedSegment, Skip, read_chunks, skip_nothing
from pybroker.storage.cleaner.cleaned_transactions import CleanedTransactions
from pybroker.storage.cleaner.cleaner_jobs import (
    CleanedGroup,
    CleaningFailed,
    CleaningJob,
    Progress,
    RoundEnd,
    RoundStats,
    SourceSegment,
    Step,
)
from pybroker.storage.cleaner.offset_map import OffsetMap
from pybroker.storage.files import os_file
from pybroker.storage.files.file_names import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, file_name
from pybroker.storage.files.offset_index import RELATIVE_OFFSET_MAX, OffsetIndex
from pybroker.storage.files.transaction_index import TransactionIndex
from pybroker.storage.results import AbortedTransaction
from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.record_columns import RecordColumns
from pybroker_protocol.records import BatchHeader

# Segments that are cleaned into one at a time: swapping them is a few renames for each, on the loop.
CLEANED_GROUP_SEGMENTS_MAX = 32

# After so many records, a minute's work, a round goes no further into the dirty part, and the next log has its turn: a
# few KB may be millions of records.  The next round over the log goes on.
CLEANER_ROUND_RECORDS_MAX = 50_000_000


class Round:
    """``steps`` does it all, a piece per step."""

    def __init__(self, job: CleaningJob) -> None:
        self._job = job
        self._directory = Path(job.directory)
        self._map = OffsetMap(job.offset_map_bytes, job.offset_map_load_factor)
        self._target: CleanedSegment | None = None
        self._bytes_read = self._bytes_written = 0
        self._reading = (0, 0)  # the base offsets of the segment and the batch that are being looked at

    def steps(self) -> Iterator[Step]:
        """Progress, cleaned groups from the lowest offsets up, and the end.  Raises CleaningFailed and OSError."""
        try:
            yield from self._build_map()
            yield from self._clean()
        except ProtocolError as error:
            segment, offset = self._reading
            path = self._directory / file_name(segment)
            raise CleaningFailed(f"the batch at offset {offset} in {path} cannot be cleaned: {error}") from error
        finally:
            if self._target is not None:
                self._target.discard()

    # The offset map ---------------------------------------------------------------------------------------------------

    def _build_map(self) -> Iterator[Step]:
        """Map the dirty part, as much of it as there is space for and a round may read: at least one batch more."""
        job = self._job
        # Of one that ended in the clean part no marker comes: its producer's next transactions would count as aborted.
        aborted = [each for each in self._aborted_transactions() if each.last_offset >= job.first_dirty_offset]
        transactions = CleanedTransactions(aborted, lambda _: None)
        records = 0
        dirty = [i for i in range(len(job.segments)) if self._end_of(i) > job.first_dirty_offset]
        for i in dirty:
            segment = job.segments[i]
            for size, chunk in self._chunks(segment, self._dirty_position(segment)):
                for header, batch in chunk:
                    self._reading = segment.base_offset, header.base_offset
                    fits = yield from self._map_batch(header, batch, transactions)
                    records += header.records_count
                    if not fits or records >= CLEANER_ROUND_RECORDS_MAX:
                        return
                self._bytes_read += size
                yield Progress(size)
            # Behind the last batch of a segment offsets may be missing.
            self._map.latest_offset = self._end_of(i) - 1

    def _map_batch(
        self, header: BatchHeader, batch: memoryview, transactions: CleanedTransactions
    ) -> Generator[Step, None, bool]:
        """Take the keys of a batch; whether there was space for them."""
        if header.is_control:
            pass_control(transactions, header, batch)
        elif not transactions.on_data(header.producer_id, header.last_offset, header.is_transactional):
            looked_at = 0
            for columns in columns_of(header, records_section(header, batch)):
                if not self._map.put_all(*self._dirty_keys(header, columns)):
                    if self._map.latest_offset < 0:
                        raise CleaningFailed(
                            f"log.cleaner.dedupe.buffer.size is too small for one batch in {self._directory}"
                        )
                    return False
                looked_at += len(columns.keys)
                if is_whole_slice(looked_at):
                    yield PAUSE
        if header.last_offset >= self._job.first_dirty_offset:
            self._map.latest_offset = header.last_offset
        return True

    def _dirty_keys(self, header: BatchHeader, columns: RecordColumns) -> tuple[Sequence[bytes], Sequence[int]]:
        """The keys of a slice with their offsets, without records that have none or are clean."""
        base_offset, start = header.base_offset, self._job.first_dirty_offset
        deltas = columns.offset_deltas
        if isinstance(deltas, range):
            offsets: Sequence[int] = range(base_offset + deltas.start, base_offset + deltas.stop)
        else:
            offsets = [base_offset + delta for delta in deltas]
        if not columns.keyless and base_offset >= start:
            return cast(Sequence[bytes], columns.keys), offsets
        dirty = [
            (key, offset)
            for key, offset in zip(columns.keys, offsets, strict=True)
            if key is not None and offset >= start
        ]
        return [key for key, _ in dirty], [offset for _, offset in dirty]

    def _chunks(self, segment: SourceSegment, position: int, skip: Skip = skip_nothing) -> Iterator[tuple[int, Chunk]]:
        return read_chunks(self._directory, segment, position, self._job.io_buffer_bytes, skip)

    def _end_of(self, i: int) -> int:
        segments = self._job.segments
        return segments[i + 1].base_offset if i + 1 < len(segments) else self._job.first_uncleanable_offset

    def _dirty_position(self, segment: SourceSegment) -> int:
        """Where to begin in the first dirty segment."""
        start = self._job.first_dirty_offset
        if start <= segment.base_offset:
            return 0
        path = self._directory / file_name(segment.base_offset, INDEX_SUFFIX)
        index = OffsetIndex.load(path, segment.base_offset, segment.size)
        return index.floor(start) if index is not None else 0

    def _aborted_transactions(self) -> list[AbortedTransaction]:
        """Those that touch the segments; their markers may lie behind them."""
        found = list(self._job.later_aborted)
        for segment in self._job.segments:
            found += TransactionIndex(self._directory / file_name(segment.base_offset, TXN_INDEX_SUFFIX)).entries
        return found

    # The segments -----------------------------------------------------------------------------------------------------

    def _clean(self) -> Iterator[Step]:
        job = self._job
        clean_offset = max(self._map.latest_offset + 1, job.first_dirty_offset)
        transactions = CleanedTransactions(self._aborted_transactions(), self._note_aborted)
        batch_filter = BatchFilter(
            self._map,
            transactions,
            job.producers,
            job.first_dirty_offset,
            job.first_uncleanable_offset,
            job.now_ms,
            job.delete_retention_ms,
        )
        for group in self._groups(clean_offset):
            yield from self._clean_group(group, batch_filter)
        stats = RoundStats(
            self._bytes_read, self._bytes_written, batch_filter.records_read, batch_filter.records_kept, self._map.size
        )
        yield RoundEnd(clean_offset, stats)

    def _note_aborted(self, transaction: AbortedTransaction) -> None:
        assert self._target is not None
        self._target.note_aborted(transaction)

    def _clean_group(self, group: list[SourceSegment], batch_filter: BatchFilter) -> Iterator[Step]:
        job = self._job
        target = CleanedSegment(self._directory, group[0].base_offset, job.index_interval_bytes, job.sync)
        self._target = target
        for segment in group:
            for size, chunk in self._chunks(segment, 0, batch_filter.is_superseded):
                kept = []
                for header, batch in chunk:
                    self._reading = segment.base_offset, header.base_offset
                    left = yield from batch_filter.filter(header, batch)
                    if left is not None:
                        kept.append(left)
                before = target.size
                if kept:
                    target.append(kept)
                self._bytes_read += size
                yield Progress(size + target.size - before)
        self._bytes_written += target.size
        target.finish(modified_like=self._directory / file_name(group[-1].base_offset))
        self._target = None
        yield CleanedGroup(target.base_offset, target.size, [segment.base_offset for segment in group])

    def _groups(self, clean_offset: int) -> Iterator[list[SourceSegment]]:
        """Neighbours that fit into one segment together, data and indexes, whatever is left of them.

        Unlike Kafka's, a group has a bounded number of members, so that its swap is short; the next round goes on.
        """
        job = self._job
        segments = [segment for segment in job.segments if segment.base_offset < clean_offset]
        group: list[SourceSegment] = []
        sizes = [0, 0, 0]
        for i, segment in enumerate(segments):
            added = [
                segment.size,
                self._index_size(segment, INDEX_SUFFIX),
                self._index_size(segment, TIME_INDEX_SUFFIX),
            ]
            together = [size + more for size, more in zip(sizes, added, strict=True)]
            if (
                group
                and len(group) < CLEANED_GROUP_SEGMENTS_MAX
                and together[0] <= job.segment_bytes
                and max(together[1:]) <= job.index_bytes_max
                and (segment.size == 0 or self._end_of(i) - 1 - group[0].base_offset <= RELATIVE_OFFSET_MAX)
            ):
                group.append(segment)
                sizes = together
                continue
            if group:
                yield group
            group, sizes = [segment], added
        if group:
            yield group

    def _index_size(self, segment: SourceSegment, suffix: str) -> int:
        try:
            return os_file.stat(self._directory / file_name(segment.base_offset, suffix)).st_size
        except FileNotFoundError:
            return 0
