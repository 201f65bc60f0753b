"""How a stored batch changes producer state, end markers of transactions included."""

from __future__ import annotations

from pybroker.storage.results import AbortedTransaction
from pybroker.storage.rules.producer_state import ProducerStateManager
from pybroker_protocol.records import (
    ATTRIBUTES,
    BASE_SEQUENCE,
    CONTROL_FLAG,
    LAST_OFFSET_DELTA,
    MAX_TIMESTAMP,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    TRANSACTIONAL_FLAG,
    HeaderFields,
)


def replay_batch(
    producers: ProducerStateManager, header: HeaderFields, base_offset: int, batch: memoryview
) -> AbortedTransaction | None:
    """Take any stored batch of a producer into account; returns the transaction that it aborts, if it does.

    ``batch`` is looked into only for control batches.
    """
    attributes, last_offset_delta, max_timestamp = header[ATTRIBUTES], header[LAST_OFFSET_DELTA], header[MAX_TIMESTAMP]
    producer_id, producer_epoch, base_sequence = header[PRODUCER_ID], header[PRODUCER_EPOCH], header[BASE_SEQUENCE]
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
    return _replay_marker(producers, producer_id, producer_epoch, base_offset, batch)


def _replay_marker(
    producers: ProducerStateManager, producer_id: int, producer_epoch: int, marker_offset: int, batch: memoryview
) -> AbortedTransaction | None:
    from pybroker_protocol.record_codec import ControlRecordType, control_type, decode_records, end_transaction_marker

    record = next(decode_records(batch), None)
    if record is None:  # The cleaner has emptied it: the whole transaction is gone.
        return None
    kind = control_type(record.key)
    if kind not in {ControlRecordType.ABORT, ControlRecordType.COMMIT}:
        return None
    completed = producers.complete_transaction(
        producer_id, producer_epoch, end_transaction_marker(record.value), marker_offset, record.timestamp_ms
    )
    if completed is None or kind == ControlRecordType.COMMIT:
        return None
    first_offset, last_stable_offset = completed
    return AbortedTransaction(producer_id, first_offset, marker_offset, last_stable_offset)
