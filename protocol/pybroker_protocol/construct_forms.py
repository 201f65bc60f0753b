"""What lies on disk, described once more with ``construct``: for dump tools, and as an oracle in tests.

Owns: descriptions of a partition's files as Kafka writes them.  The broker never imports this module: it is
independent of ``records`` and ``record_codec`` on purpose, and slow.

Kafka counterpart: DefaultRecordBatch, DefaultRecord, OffsetIndex, TimeIndex, TransactionIndex, ProducerStateManager.
"""

from typing import Any

from construct import (
    Bytes,
    Const,
    Construct,
    FlagsEnum,
    GreedyRange,
    Int8sb,
    Int16sb,
    Int16ub,
    Int32sb,
    Int32ub,
    Int64sb,
    PascalString,
    Prefixed,
    PrefixedArray,
    Struct,
    Tell,
    ZigZag,
    this,
)


class _NullableBytes(Construct):  # type: ignore[misc]  # construct has no types
    """Bytes behind a zigzag length; a negative one stands for null."""

    def _parse(self, stream: Any, context: Any, path: str) -> bytes | None:
        length = ZigZag._parsereport(stream, context, path)
        return None if length < 0 else bytes(Bytes(length)._parsereport(stream, context, path))

    def _build(self, obj: bytes | None, stream: Any, context: Any, path: str) -> bytes | None:
        ZigZag._build(-1 if obj is None else len(obj), stream, context, path)
        if obj is not None:
            stream.write(obj)
        return obj


NULLABLE_BYTES = _NullableBytes()

BATCH_ATTRIBUTES = FlagsEnum(
    Int16ub,
    # Bits 0 to 2 are the number of the codec: 1 gzip, 2 snappy, 3 lz4, 4 zstd.
    codec_bit_0=1,
    codec_bit_1=2,
    codec_bit_2=4,
    log_append_time=8,
    transactional=16,
    control=32,
    delete_horizon=64,
)

BATCH_HEADER = Struct(
    "base_offset" / Int64sb,
    "batch_length" / Int32sb,
    "partition_leader_epoch" / Int32sb,
    "magic" / Const(2, Int8sb),
    "crc" / Int32ub,
    "attributes" / BATCH_ATTRIBUTES,
    "last_offset_delta" / Int32sb,
    "base_timestamp" / Int64sb,
    "max_timestamp" / Int64sb,
    "producer_id" / Int64sb,
    "producer_epoch" / Int16sb,
    "base_sequence" / Int32sb,
    "records_count" / Int32sb,
)

RECORD_HEADER = Struct("key" / PascalString(ZigZag, "utf8"), "value" / NULLABLE_BYTES)

RECORD = Prefixed(
    ZigZag,
    Struct(
        "attributes" / Int8sb,
        "timestamp_delta" / ZigZag,
        "offset_delta" / ZigZag,
        "key" / NULLABLE_BYTES,
        "value" / NULLABLE_BYTES,
        "headers" / PrefixedArray(ZigZag, RECORD_HEADER),
    ),
)

# A batch as it lies in a .log file; ``payload`` is the records section, compressed or not.
BATCH = Struct(
    "position" / Tell,
    "header" / BATCH_HEADER,
    "payload" / Bytes(this.header.batch_length - 49),
)
LOG_FILE = GreedyRange(BATCH)
UNCOMPRESSED_RECORDS = GreedyRange(RECORD)

OFFSET_INDEX_ENTRY = Struct("relative_offset" / Int32sb, "position" / Int32sb)
TIME_INDEX_ENTRY = Struct("timestamp" / Int64sb, "relative_offset" / Int32sb)
TRANSACTION_INDEX_ENTRY = Struct(
    "version" / Int16sb,
    "producer_id" / Int64sb,
    "first_offset" / Int64sb,
    "last_offset" / Int64sb,
    "last_stable_offset" / Int64sb,
)

PRODUCER_SNAPSHOT_ENTRY = Struct(
    "producer_id" / Int64sb,
    "producer_epoch" / Int16sb,
    "last_sequence" / Int32sb,
    "last_offset" / Int64sb,
    "offset_delta" / Int32sb,
    "timestamp" / Int64sb,
    "coordinator_epoch" / Int32sb,
    "current_txn_first_offset" / Int64sb,
)
# The checksum is a CRC-32C of everything behind it.
PRODUCER_SNAPSHOT_FILE = Struct(
    "version" / Const(1, Int16sb),
    "crc" / Int32ub,
    "producers" / PrefixedArray(Int32sb, PRODUCER_SNAPSHOT_ENTRY),
)

CONTROL_RECORD_KEY = Struct("version" / Int16sb, "type" / Int16sb)
END_TRANSACTION_MARKER = Struct("version" / Int16sb, "coordinator_epoch" / Int32sb)
