"""How a batch changes producer state, end markers of transactions included.

Owns the format of the end-of-transaction marker's record (key: int16 version, int16 type; value: int16 version, int32
coordinator epoch), which is written uncompressed and alone in its batch.
"""

from __future__ import annotations

from struct import Struct

from pybroker.storage.producer_state import ProducerStateManager
from pybroker.storage.transaction_index import AbortedTransaction
from pybroker.storage.validator import CONTROL_FLAG, HEADER_BYTES, TRANSACTIONAL_FLAG, BatchHeader

ABORT = 0
COMMIT = 1
_KEY = Struct(">hh")
_VALUE = Struct(">hi")


class EndTransactionMarker:
    """What a marker says: commit or abort, and by which coordinator epoch."""

    __slots__ = ("control_type", "coordinator_epoch", "timestamp")

    def __init__(self, control_type: int, coordinator_epoch: int, timestamp: int) -> None:
        self.control_type = control_type
        self.coordinator_epoch = coordinator_epoch
        self.timestamp = timestamp


def _varint(data: bytes, position: int) -> tuple[int, int]:
    shift = value = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7


def read_end_marker(batch: bytes, base_timestamp: int) -> EndTransactionMarker | None:
    """The marker in a control batch, ``None`` for other control records and for an emptied batch."""
    if len(batch) <= HEADER_BYTES:
        return None
    _, position = _varint(batch, HEADER_BYTES)
    timestamp_delta, position = _varint(batch, position + 1)
    _, position = _varint(batch, position)
    _, position = _varint(batch, position)
    _, control_type = _KEY.unpack_from(batch, position)
    if control_type not in {ABORT, COMMIT}:
        return None
    _, position = _varint(batch, position + _KEY.size)
    _, coordinator_epoch = _VALUE.unpack_from(batch, position)
    return EndTransactionMarker(control_type, coordinator_epoch, base_timestamp + timestamp_delta)


def replay_batch(
    producers: ProducerStateManager, header: BatchHeader, base_offset: int, batch: memoryview
) -> AbortedTransaction | None:
    """Take any stored batch of a producer into account; returns the transaction that it aborts, if it does.

    ``batch`` is looked into only for control batches.
    """
    attributes, last_offset_delta, max_timestamp = header[5], header[6], header[8]
    producer_id, producer_epoch, base_sequence = header[9], header[10], header[11]
    if producer_id < 0:
        return None
    if not attributes & CONTROL_FLAG:
        producers.update(
            producer_id,
            producer_epoch,
            base_sequence,
            base_offset,
            base_offset + last_offset_delta,
            max_timestamp,
            bool(attributes & TRANSACTIONAL_FLAG),
        )
        return None
    marker = read_end_marker(bytes(batch), header[7])
    if marker is None:
        return None
    completed = producers.complete_transaction(
        producer_id, producer_epoch, marker.coordinator_epoch, base_offset, marker.timestamp
    )
    if completed is None or marker.control_type != ABORT:
        return None
    first_offset, last_stable_offset = completed
    return AbortedTransaction(producer_id, first_offset, base_offset, last_stable_offset)
