"""The records of ``__transaction_state``, as bytes.

Owns: turning a transactional id and its metadata into a record and back, in Kafka's schema (``TransactionLogKey``,
``TransactionLogValue``), whose value has version 0 while transaction.version is 0, else 1.

Counterpart in Kafka: ``TransactionLog``.
"""

from __future__ import annotations

from struct import Struct

from pybroker.coordinators.result import Record
from pybroker.coordinators.transaction.transaction_metadata import NO_EPOCH, TransactionMetadata, TransactionState
from pybroker_protocol import codec
from pybroker_protocol.data_records import encode_key, encode_value
from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.messages.records_transaction import PartitionsSchema, TransactionLogKey, TransactionLogValue

TRANSACTION = 0
VALUE_VERSION_MAX = 1

_INT16 = Struct(">h")


def transaction_key(transactional_id: str) -> bytes:
    return encode_key(TransactionLogKey(transactional_id=transactional_id))


def transaction_record(txn: TransactionMetadata, transaction_version: int) -> tuple[bytes, bytes]:
    """Key and value of the record that brings ``txn`` back, but for ``last_producer_epoch``, which no record keeps."""
    version = min(transaction_version, VALUE_VERSION_MAX)
    value = TransactionLogValue(
        producer_id=txn.producer_id,
        producer_epoch=txn.producer_epoch,
        transaction_timeout_ms=txn.timeout_ms,
        transaction_status=int(txn.state),
        transaction_partitions=None if txn.state == TransactionState.EMPTY else _by_topic(txn),
        transaction_last_update_timestamp_ms=txn.last_update_ms,
        transaction_start_timestamp_ms=txn.start_timestamp_ms,
    )
    if version > 0:
        value.previous_producer_id = txn.previous_producer_id
        value.next_producer_id = txn.next_producer_id
        value.client_transaction_version = txn.client_version
    return transaction_key(txn.transactional_id), encode_value(value, version)


def _by_topic(txn: TransactionMetadata) -> list[PartitionsSchema]:
    return [PartitionsSchema(topic=topic, partition_ids=indexes) for topic, indexes in txn.partitions_by_topic()]


def tombstone(transactional_id: str) -> Record:
    return transaction_key(transactional_id), None


def read_transactional_id(key: bytes) -> str | None:
    """The id of a key; None for a key of a kind that is not known here."""
    if len(key) < _INT16.size or _INT16.unpack_from(key)[0] != TRANSACTION:
        return None
    decoded: TransactionLogKey = codec.decode(TransactionLogKey, 0, memoryview(key)[_INT16.size :])
    return decoded.transactional_id


def read_transaction(transactional_id: str, value: bytes) -> TransactionMetadata:
    """The metadata of a value; ProtocolError when it cannot be read."""
    version = _INT16.unpack_from(value)[0] if len(value) >= _INT16.size else -1
    if not 0 <= version <= VALUE_VERSION_MAX:
        raise ProtocolError(f"a transaction's value of version {version}")
    decoded: TransactionLogValue = codec.decode(TransactionLogValue, version, memoryview(value)[_INT16.size :])
    return TransactionMetadata(
        transactional_id,
        decoded.producer_id,
        decoded.previous_producer_id,
        decoded.next_producer_id,
        decoded.producer_epoch,
        NO_EPOCH,
        decoded.transaction_timeout_ms,
        TransactionState(decoded.transaction_status),
        frozenset(
            (topic.topic, index) for topic in decoded.transaction_partitions or () for index in topic.partition_ids
        ),
        decoded.transaction_start_timestamp_ms,
        decoded.transaction_last_update_timestamp_ms,
        decoded.client_transaction_version,
    )
