"""What compaction leaves of one batch.  Kafka: the RecordFilter of Cleaner, and MemoryRecords.filterTo.  Pure.

Owns the rules: which records stay, which batches stay without any, when a delete horizon is set (KIP-534), and the
rewriting of a batch in its own codec.

Invariants: offsets, sequence numbers and order never change; a batch that loses nothing and needs no horizon is handed
back as it is, byte for byte.
"""

from __future__ import annotations

from collections.abc import Mapping

from pybroker.storage.cleaner.cleaned_transactions import CleanedTransactions
from pybroker.storage.cleaner.offset_map import OffsetMap
from pybroker_protocol.compression import compress, decompress
from pybroker_protocol.record_codec import decode_records, rebuild_batch
from pybroker_protocol.record_spans import RecordSpan, record_spans
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

_EMPTY_KEEPS = TIMESTAMP_TYPE_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG


def spans_of(header: BatchHeader, batch: memoryview) -> tuple[bytes, list[RecordSpan]]:
    """The decompressed records of a whole batch and their spans.  Raises ProtocolError."""
    data = bytes(decompress(header.compression, batch[HEADER_BYTES:]))
    return data, record_spans(data, header.records_count)


class BatchFilter:
    """The filter of one round."""

    def __init__(
        self,
        offset_map: OffsetMap,
        transactions: CleanedTransactions,
        producers: Mapping[int, tuple[int, int]],
        round_end_offset: int,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._map = offset_map
        self._transactions = transactions
        self._producers = producers
        self._round_end_offset = round_end_offset
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms
        self.records_read = 0
        self.records_kept = 0

    def filter(self, header: BatchHeader, batch: memoryview) -> bytes | memoryview | None:
        """What stays of ``batch``; ``None``: nothing.  Raises ProtocolError where its records are damaged."""
        self.records_read += header.records_count
        if header.is_control:
            return self._filter_control(header, batch)
        aborted = self._transactions.on_data(header.producer_id, header.last_offset, header.is_transactional)
        if aborted or not header.records_count:
            return self._emptied(header)
        data, spans = spans_of(header, batch)
        kept = [span for span in spans if self._retains(header, span)]
        if not kept:
            return self._emptied(header)
        self.records_kept += len(kept)
        if header.delete_horizon_ms is None and not all(span[5] for span in kept):
            return self._with_horizon(header, batch, {header.base_offset + span[3] for span in kept})
        return batch if len(kept) == len(spans) else _without_the_others(header, data, kept)

    def _filter_control(self, header: BatchHeader, batch: memoryview) -> bytes | memoryview | None:
        record = next(decode_records(batch), None)
        discardable = self._transactions.on_control(
            header.producer_id, header.last_offset, None if record is None else record.key, record is None
        )
        horizon_ms = header.delete_horizon_ms
        if record is None or (discardable and horizon_ms is not None and horizon_ms <= self._now_ms):
            return self._emptied(header)
        self.records_kept += 1
        if discardable and horizon_ms is None:
            return self._with_horizon(header, batch, {record.offset})
        return batch

    def _retains(self, header: BatchHeader, span: RecordSpan) -> bool:
        offset = header.base_offset + span[3]
        if offset > self._map.latest_offset:
            return True
        key = span[4]
        if key is None or offset < self._map.get(key):
            return False
        horizon_ms = header.delete_horizon_ms
        return span[5] or horizon_ms is None or self._now_ms < horizon_ms

    def _emptied(self, header: BatchHeader) -> bytes | None:
        """A batch without records stays where a producer's last sequence or epoch, or the log's end, hangs on it."""
        if not self._is_last_of_producer(header) and header.next_offset != self._round_end_offset:
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

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self._producers.get(header.producer_id) if header.producer_id >= 0 else None
        if last is None:
            return False
        last_data_offset, producer_epoch = last
        if last_data_offset >= 0:
            return header.last_offset == last_data_offset
        return header.is_control and header.producer_epoch == producer_epoch

    def _with_horizon(self, header: BatchHeader, batch: memoryview, offsets: set[int]) -> bytes:
        """Only these records, and from when on tombstones and markers may go in the base timestamp's place."""
        target = header._replace(
            attributes=header.attributes | DELETE_HORIZON_FLAG,
            base_timestamp=self._now_ms + self._delete_retention_ms,
        )
        return rebuild_batch(target, [record for record in decode_records(batch) if record.offset in offsets])


def _without_the_others(header: BatchHeader, data: bytes, kept: list[RecordSpan]) -> bytes:
    """The batch with these records only.  Their bytes stay: base offset and base timestamp are as before."""
    section = b"".join([data[span[0] : span[1]] for span in kept])
    payload = compress(header.compression, section) if header.compression else section
    max_timestamp = header.max_timestamp
    if not header.is_log_append_time:
        max_timestamp = header.base_timestamp + max(span[2] for span in kept)
    reduced = header._replace(
        batch_length=HEADER_BYTES - LOG_OVERHEAD + len(payload), max_timestamp=max_timestamp, records_count=len(kept)
    )
    batch = bytearray(HEADER.pack(*reduced)) + payload
    set_crc(batch)
    return bytes(batch)
