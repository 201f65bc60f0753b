"""What compaction leaves of one batch.  Kafka: the RecordFilter of Cleaner, and MemoryRecords.filterTo.  Pure.

Owns the rules: which records stay, which batches stay without any, when a delete horizon is set (KIP-534), and the
rewriting of a batch in its own codec.

Invariants: offsets, sequence numbers and order never change; a batch that loses nothing and needs no horizon is handed
back as it is, byte for byte.  Records are looked at in slices, with a pause behind each, so that a batch of millions
holds neither memory nor the thread for longer than others.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterator, Mapping, Sequence

from pybroker.config.schema import LONG_MAX
from pybroker.storage.cleaner.cleaned_transactions import CleanedTransactions
from pybroker.storage.cleaner.cleaner_jobs import Progress
from pybroker.storage.cleaner.offset_map import OffsetMap
from pybroker_protocol.compression import compress, decompress
from pybroker_protocol.record_columns import (
    RecordColumns,
    as_int64,
    move_in_time,
    record_columns,
    timestamp_deltas,
)
from pybroker_protocol.records import (
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    set_crc,
)

# The cleaner looks at so many records before it pauses: a thread that shares the interpreter works for 2 ms then, and
# what a slice needs in memory is small whatever a batch's header claims.
CLEANER_SLICE_RECORDS = 2_000

_EMPTY_KEEPS = TIMESTAMP_TYPE_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG

PAUSE = Progress(0)

# What is left of a batch, behind the pauses that finding it took; ``None``: nothing.
Filtering = Generator[Progress, None, bytes | memoryview | None]


def records_section(header: BatchHeader, batch: memoryview) -> bytes:
    """The decompressed records of a whole batch.  Raises ProtocolError."""
    return bytes(decompress(header.compression, batch[HEADER_BYTES:]))


def is_whole_slice(records: int) -> bool:
    """Whether a pause is due behind so many records of a batch: not for each small batch, whose chunk has its own."""
    return records % CLEANER_SLICE_RECORDS == 0


def columns_of(header: BatchHeader, section: bytes) -> Iterator[RecordColumns]:
    """Slices of a batch's records.  Raises ProtocolError."""
    return record_columns(section, header.records_count, header.last_offset_delta, CLEANER_SLICE_RECORDS)


def pass_control(transactions: CleanedTransactions, header: BatchHeader, batch: memoryview) -> tuple[bool, bool]:
    """Go past a control batch; whether its marker may be discarded, and whether it was emptied before."""
    columns = list(columns_of(header, records_section(header, batch)))
    key = columns[0].keys[0] if columns else None
    return transactions.on_control(header.producer_id, header.last_offset, key, not columns), not columns


class BatchFilter:
    """The filter of one round, whose map speaks for all from ``first_dirty_offset`` on."""

    def __init__(
        self,
        offset_map: OffsetMap,
        transactions: CleanedTransactions,
        producers: Mapping[int, tuple[tuple[int, ...], int]],
        first_dirty_offset: int,
        round_end_offset: int,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._map = offset_map
        self._last_offsets = offset_map.offsets_in_order()
        self._transactions = transactions
        self._producers = producers
        self._first_dirty_offset = first_dirty_offset
        self._round_end_offset = round_end_offset
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms
        self.records_read = 0
        self.records_kept = 0

    def filter(self, header: BatchHeader, batch: memoryview) -> Filtering:
        """What stays of ``batch``, which is empty where it is superseded.

        Raises ProtocolError where its records are damaged.
        """
        self.records_read += header.records_count
        if header.is_control:
            return (yield from self._filter_control(header, batch))
        aborted = self._transactions.on_data(header.producer_id, header.last_offset, header.is_transactional)
        if aborted or not header.records_count or not batch:
            return self._emptied(header)
        if header.base_offset > self._map.latest_offset:
            self.records_kept += header.records_count
            return batch
        return (yield from self._filter_data(header, batch))

    def is_superseded(self, header: BatchHeader) -> bool:
        """Whether the map, whose making has read the batch, tells by its offsets alone that no record of it stays."""
        return (
            not header.is_control
            and self._is_in_map(header)
            and not self._last_between(header.base_offset, header.last_offset)
        )

    def _is_in_map(self, header: BatchHeader) -> bool:
        """Whether all of a batch's records were put into the map, whose offsets can be asked for."""
        return (
            self._last_offsets is not None
            and header.base_offset >= self._first_dirty_offset
            and header.last_offset <= self._map.latest_offset
        )

    def _last_between(self, first: int, last: int) -> list[int]:
        offsets = self._last_offsets or []
        return offsets[bisect_left(offsets, first) : bisect_right(offsets, last)]

    def _filter_data(self, header: BatchHeader, batch: memoryview) -> Filtering:
        section = records_section(header, batch)
        kept: list[bytes] = []
        kept_count = 0
        any_tombstone = False
        looked_at = 0
        for columns in columns_of(header, section):
            retained = self._retained(header, columns)
            any_tombstone = any_tombstone or not {*columns.valueless}.isdisjoint(retained)
            kept_count += len(retained)
            if len(retained) == len(columns.keys):
                kept.append(section[columns.starts[0] : columns.end])
            else:
                starts = [*columns.starts, columns.end]
                kept += [section[starts[i] : starts[i + 1]] for i in retained]
            looked_at += len(columns.keys)
            if is_whole_slice(looked_at):
                yield PAUSE
        if not kept_count:
            return self._emptied(header)
        self.records_kept += kept_count
        needs_horizon = any_tombstone and header.delete_horizon_ms is None
        if kept_count == header.records_count and not needs_horizon:
            return batch
        reduced = header._replace(records_count=kept_count)
        if needs_horizon:
            return (yield from self._with_horizon(reduced, b"".join(kept)))
        return (yield from _reduced(reduced, b"".join(kept)))

    def _retained(self, header: BatchHeader, columns: RecordColumns) -> Sequence[int]:
        """Which records of a slice stay, by their places."""
        retained = self._not_superseded(header, columns)
        gone = {*columns.keyless}
        horizon_ms = header.delete_horizon_ms
        if horizon_ms is not None and horizon_ms <= self._now_ms:
            gone.update(columns.valueless)
        return [i for i in retained if i not in gone] if gone else retained

    def _not_superseded(self, header: BatchHeader, columns: RecordColumns) -> Sequence[int]:
        base_offset, deltas = header.base_offset, columns.offset_deltas
        if self._is_in_map(header):
            first = base_offset + deltas[0]
            last = self._last_between(first, base_offset + deltas[-1])
            if len(last) == len(deltas):
                return range(len(deltas))
            if isinstance(deltas, range):
                return [offset - first for offset in last]
            stays = {*last}
            return [i for i, delta in enumerate(deltas) if base_offset + delta in stays] if stays else []
        last_offsets = self._map.last_offsets(columns.keys)
        return [
            i
            for i, (delta, last_offset) in enumerate(zip(deltas, last_offsets, strict=True))
            if base_offset + delta >= last_offset
        ]

    def _filter_control(self, header: BatchHeader, batch: memoryview) -> Filtering:
        discardable, emptied = pass_control(self._transactions, header, batch)
        horizon_ms = header.delete_horizon_ms
        if emptied or (discardable and horizon_ms is not None and horizon_ms <= self._now_ms):
            return self._emptied(header)
        self.records_kept += header.records_count
        if discardable and horizon_ms is None:
            return (yield from self._with_horizon(header, records_section(header, batch)))
        return batch

    def _emptied(self, header: BatchHeader) -> bytes | None:
        """A batch without records stays where the log's end, or what is known of a producer, hangs on it."""
        if not self._is_one_of_the_last(header) and header.next_offset != self._round_end_offset:
            return None
        emptied = header._replace(
            batch_length=HEADER_BYTES - LOG_OVERHEAD,
            attributes=header.attributes & _EMPTY_KEEPS,
            base_timestamp=NO_TIMESTAMP,
            records_count=0,
        )
        batch = bytearray(HEADER.pack(*emptied))
        set_crc(batch)
        return bytes(batch)

    def _is_one_of_the_last(self, header: BatchHeader) -> bool:
        """Whether a producer's next batch, or a repeat of one that it had in flight, is recognized by this one.

        Kafka keeps the last alone.  After a crash the log is all that is known of producers: a repeat of one before it
        would get OUT_OF_ORDER_SEQUENCE_NUMBER.
        """
        last = self._producers.get(header.producer_id) if header.producer_id >= 0 else None
        if last is None:
            return False
        last_offsets, producer_epoch = last
        if last_offsets:
            return header.last_offset in last_offsets
        return header.is_control and header.producer_epoch == producer_epoch

    def _with_horizon(self, header: BatchHeader, section: bytes) -> Filtering:
        """Records with, in the base timestamp's place, from when on tombstones and markers may go."""
        horizon_ms = min(self._now_ms + self._delete_retention_ms, LONG_MAX)
        # Under LogAppendTime the records' own deltas say nothing: all share the batch's time.
        by_ms = None if header.is_log_append_time else header.base_timestamp - horizon_ms
        moved: list[bytes] = []
        pos, left = 0, header.records_count
        while left > 0:
            part, pos = move_in_time(section, pos, min(left, CLEANER_SLICE_RECORDS), by_ms)
            moved.append(part)
            left -= CLEANER_SLICE_RECORDS
            if left > 0:
                yield PAUSE
        target = header._replace(attributes=header.attributes | DELETE_HORIZON_FLAG, base_timestamp=horizon_ms)
        return (yield from _reduced(target, b"".join(moved)))


def _reduced(header: BatchHeader, section: bytes) -> Filtering:
    """The batch with these records only.  Their bytes stay: base offset and base timestamp are as before."""
    if not header.is_log_append_time:
        largest = -LONG_MAX
        pos, left = 0, header.records_count
        while left > 0:
            deltas, pos = timestamp_deltas(section, pos, min(left, CLEANER_SLICE_RECORDS))
            largest = max(largest, *deltas)
            left -= CLEANER_SLICE_RECORDS
            if left > 0:
                yield PAUSE
        header = header._replace(max_timestamp=as_int64(header.base_timestamp + largest))
    payload = compress(header.compression, section) if header.compression else section
    batch = bytearray(HEADER.pack(*header._replace(batch_length=HEADER_BYTES - LOG_OVERHEAD + len(payload)))) + payload
    set_crc(batch)
    return bytes(batch)
