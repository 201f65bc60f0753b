"""The records of __transaction_state."""

from pybroker_protocol.schema import DataRecord, Int8, Int16, Int32, Int64, String, Struct, field, since


class TransactionLogKey(DataRecord, key=0, kind="key", versions="0"):
    transactional_id: String


class PartitionsSchema(Struct):
    topic: String
    partition_ids: list[Int32]


class TransactionLogValue(DataRecord, key=0, kind="value", versions="0-1", flexible="1+"):
    producer_id: Int64
    previous_producer_id: Int64 = since(1, tag=0, default=-1)
    next_producer_id: Int64 = since(1, tag=1, default=-1)
    producer_epoch: Int16
    next_producer_epoch: Int16 = since(1, tag=3, default=-1)
    transaction_timeout_ms: Int32
    transaction_status: Int8
    transaction_partitions: list[PartitionsSchema] | None = field(default=[])
    transaction_last_update_timestamp_ms: Int64
    transaction_start_timestamp_ms: Int64
    client_transaction_version: Int16 = since(1, tag=2)
