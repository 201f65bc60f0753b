"""Appending a leader's batches on a follower: offsets and epochs are the leader's, and every CRC is checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crc32c import crc32c

from pybroker.storage.log.log_rolling import make_room
from pybroker.storage.results import CORRUPT_MESSAGE, NONE, AppendResult
from pybroker_protocol.records import (
    ATTRIBUTES_AT,
    BASE_OFFSET,
    BATCH_LENGTH,
    CRC,
    HEADER,
    HEADER_BYTES,
    LAST_OFFSET_DELTA,
    LOG_OVERHEAD,
    MAGIC,
    MAX_TIMESTAMP,
    PARTITION_LEADER_EPOCH,
    PRODUCER_ID,
    HeaderFields,
)

if TYPE_CHECKING:
    from pybroker.storage.log.log_state import LogState


def append_as_follower(log: LogState, records: memoryview) -> AppendResult:
    """Append the leader's batches as they are, with their offsets and epochs.

    Nothing is appended from the first batch on that is corrupt or does not lie past the log's end; the result's
    ``last_offset`` says how far it went (-1: nowhere).
    """
    if log.refusal:
        return log.storage_error()
    assert not log.queue.busy, "a follower's writes are made on the loop"
    position, first, last, epoch = 0, -1, -1, -1
    while position + HEADER_BYTES <= len(records):
        header = HEADER.unpack_from(records, position)
        base_offset, length, leader_epoch = header[BASE_OFFSET], header[BATCH_LENGTH], header[PARTITION_LEADER_EPOCH]
        size = length + LOG_OVERHEAD
        batch = records[position : position + size]
        if len(batch) != size or size < HEADER_BYTES:
            break  # A leader may cut the last batch; the next fetch brings it whole.
        if base_offset < log.next_offset or crc32c(batch[ATTRIBUTES_AT:]) != header[CRC] or header[MAGIC] != 2:
            return AppendResult(CORRUPT_MESSAGE, first, last, -1, log.log_start_offset, epoch)
        last_offset = base_offset + header[LAST_OFFSET_DELTA]
        refused = _append_batch(log, batch, header)
        if refused is not None:
            refused.base_offset, refused.last_offset = first, last
            return refused
        first, last, epoch = (first if first >= 0 else base_offset), last_offset, leader_epoch
        position += size
    return AppendResult(NONE, first, last, -1, log.log_start_offset, epoch)


def _append_batch(log: LogState, batch: memoryview, header: HeaderFields) -> AppendResult | None:
    """Append one of the leader's batches as it is; returns why it could not be."""
    base_offset, size, max_timestamp = header[BASE_OFFSET], len(batch), header[MAX_TIMESTAMP]
    last_offset = base_offset + header[LAST_OFFSET_DELTA]
    if log.active.must_roll(size, last_offset, max_timestamp):
        # Kafka names a segment after its first offset, which in a compacted log may lie past the log's end.
        refused = make_room(log, 0, base_offset)
        if refused is not None:
            return refused
    if base_offset != log.log_end_offset:
        log.active.forget_tail()
    if header[PARTITION_LEADER_EPOCH] > log.leader_epochs.latest_epoch:
        log.assign_epoch(header[PARTITION_LEADER_EPOCH], base_offset)
    try:
        log.active.append(batch, ((log.active.size, size, base_offset, last_offset, max_timestamp),))
    except OSError as error:
        log.write_failed(error)
        return log.storage_error()
    log.appended(last_offset + 1)
    if header[PRODUCER_ID] >= 0:
        log.note_producer(header, base_offset, batch)
    log.write_back_if_due()
    return None
