"""What a client's record batch must be before it is appended.  Kafka's LogValidator and ProduceRequest.validateRecords.

Owns the rules of Produce: one batch of magic 2, sizes, CRC, counts, no control batch, compression, timestamps, and keys
on compacted topics. Also owns the rewriting that LogAppendTime and ``compression.type`` ask for. Producer ids' rules
are in ``producer_state.py``.

The batch header alone decides wherever it can. Of records the lengths and times are looked at, which tell whether the
header's count and maximum are true (``maximum_timestamp.py``). All of each is looked at (``record_validator.py``,
loaded at first need) only with ``pybroker.validate.records``, for a compacted topic's keys, or with a
``compression.type`` other than ``producer``. It is also looked at for ``message.timestamp.before.max.ms``, and where a
time is out of range (``TIMESTAMP_TOO_LATE``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pybroker.storage.results import (
    CORRUPT_MESSAGE,
    INVALID_RECORD,
    INVALID_TIMESTAMP,
    MESSAGE_TOO_LARGE,
    UNSUPPORTED_COMPRESSION_TYPE,
)
from pybroker_protocol.checksum import crc32c
from pybroker_protocol.compression import EXPANSION_MAX, Compression
from pybroker_protocol.records import (
    ATTRIBUTES,
    ATTRIBUTES_AT,
    COMPRESSION_MASK,
    CONTROL_FLAG,
    HEADER,
    HEADER_BYTES,
    LAST_OFFSET_DELTA,
    LOG_OVERHEAD,
    MAX_TIMESTAMP,
    PRODUCER_ID,
    RECORD_BYTES_MIN,
    RECORDS_COUNT,
    TIMESTAMP_TYPE_FLAG,
    HeaderFields,
    set_log_append_time,
)

if TYPE_CHECKING:
    from pybroker.config.log_config import LogConfig

ZSTD = int(Compression.ZSTD)
# By their names in ``compression.type``.
_CODECS = {codec.name.lower() if codec else "uncompressed": int(codec) for codec in Compression}

_FORBIDDEN_FLAGS = TIMESTAMP_TYPE_FLAG | CONTROL_FLAG
_ZSTD_PRODUCE_VERSION = 7
_NO_LIMIT = (1 << 63) - 1

_unpack_header = HEADER.unpack_from


class Rejection:
    """Why a batch is refused: Kafka's error code, a message, and the records at fault as (index, message)."""

    __slots__ = ("error_code", "message", "record_errors")

    def __init__(self, error_code: int, message: str, record_errors: Sequence[tuple[int, str]] = ()) -> None:
        self.error_code = error_code
        self.message = message
        self.record_errors = record_errors


# No verdict yet: ``record_validator`` finds the records at fault, or that the header lies, where it may take its time.
TIMESTAMP_TOO_LATE = Rejection(INVALID_TIMESTAMP, "The maximum timestamp of the batch is out of range")


class AppendRules:
    """A topic's settings, boiled down to what an append asks for."""

    __slots__ = (
        "codec",
        "compacted",
        "log_append_time",
        "max_message_bytes",
        "needs_records",
        "timestamp_after_max_ms",
        "timestamp_before_max_ms",
    )

    def __init__(self, config: LogConfig) -> None:
        self.max_message_bytes = config.max_message_bytes
        self.log_append_time = config.message_timestamp_type == "LogAppendTime"
        self.timestamp_before_max_ms = config.message_timestamp_before_max_ms
        self.timestamp_after_max_ms = config.message_timestamp_after_max_ms
        self.compacted = "compact" in config.cleanup_policy
        self.codec = _CODECS.get(config.compression_type, -1)  # -1: keep the producer's
        limits_past = not self.log_append_time and self.timestamp_before_max_ms != _NO_LIMIT
        self.needs_records = config.pybroker_validate_records or self.compacted or self.codec >= 0 or limits_past


def validate(records: memoryview, rules: AppendRules, now_ms: int, produce_version: int) -> HeaderFields | Rejection:
    """The header of an acceptable batch, or why it is none.  Reads the bytes, changes nothing.

    ``TIMESTAMP_TOO_LATE`` is to be answered only after a look at the records.
    """
    size = len(records)
    if size < HEADER_BYTES:
        return _reject(records, rules, now_ms, produce_version) or Rejection(CORRUPT_MESSAGE, "The batch is cut short")
    header = _unpack_header(records)
    (
        base_offset,
        length,
        _,
        magic,
        crc,
        attributes,
        last_offset_delta,
        _,
        max_timestamp,
        producer_id,
        _,
        sequence,
        count,
    ) = header
    if (
        length + LOG_OVERHEAD == size <= rules.max_message_bytes
        and magic == 2
        and base_offset == 0
        and count > 0
        and count == last_offset_delta + 1
        and not attributes & _FORBIDDEN_FLAGS
        and (producer_id < 0 or sequence >= 0)
        and (max_timestamp - now_ms <= rules.timestamp_after_max_ms or rules.log_append_time)
        and attributes & COMPRESSION_MASK < ZSTD
        and (count * RECORD_BYTES_MIN <= size - HEADER_BYTES or _can_hold(count, size, attributes))
        and crc32c(records[ATTRIBUTES_AT:]) == crc
    ):
        return header
    return _reject(records, rules, now_ms, produce_version) or header


def _reject(records: memoryview, rules: AppendRules, now_ms: int, produce_version: int) -> Rejection | None:
    """The first rule that the batch breaks, in Kafka's order; ``None`` if it breaks none."""
    return (
        _reject_shape(records, produce_version)
        or _reject_header(HEADER.unpack_from(records), records, rules)
        or _reject_timestamps(HEADER.unpack_from(records), rules, now_ms)
    )


def _reject_shape(records: memoryview, produce_version: int) -> Rejection | None:
    size = len(records)
    if size < LOG_OVERHEAD + 5:
        return Rejection(INVALID_RECORD, "A partition's records must hold exactly one record batch, there is none")
    length = int.from_bytes(records[8:12], "big", signed=True)
    magic = records[16]
    if length < 14:
        return Rejection(CORRUPT_MESSAGE, f"The record batch declares a length of {length} bytes")
    if magic > 2:
        return Rejection(CORRUPT_MESSAGE, f"The record batch has the unknown magic {magic}")
    if length + LOG_OVERHEAD > size:
        return Rejection(INVALID_RECORD, "A partition's records must hold exactly one record batch, it is cut short")
    if magic != 2:
        return Rejection(INVALID_RECORD, f"Record batches must have magic 2, this one has {magic}")
    if length + LOG_OVERHEAD < HEADER_BYTES:
        return Rejection(CORRUPT_MESSAGE, f"The record batch declares a length of {length} bytes")
    codec = records[22] & COMPRESSION_MASK
    if codec == ZSTD and produce_version < _ZSTD_PRODUCE_VERSION:
        return Rejection(
            UNSUPPORTED_COMPRESSION_TYPE, f"Produce version {produce_version} does not allow zstd compression"
        )
    if length + LOG_OVERHEAD != size:
        return Rejection(INVALID_RECORD, "A partition's records must hold exactly one record batch, there is more")
    return None


def _reject_header(header: HeaderFields, records: memoryview, rules: AppendRules) -> Rejection | None:
    base_offset, _, _, _, crc, attributes, last_offset_delta, _, _, producer_id, _, sequence, count = header
    if base_offset != 0:
        return Rejection(INVALID_RECORD, f"The base offset of a produced batch must be 0, it is {base_offset}")
    if len(records) > rules.max_message_bytes:
        return too_large(len(records), rules)
    if crc32c(records[ATTRIBUTES_AT:]) != crc:
        return Rejection(CORRUPT_MESSAGE, "The record batch does not match its CRC")
    if attributes & COMPRESSION_MASK > ZSTD:
        return Rejection(INVALID_RECORD, f"The record batch has the unknown codec {attributes & COMPRESSION_MASK}")
    if last_offset_delta < 0 or count <= 0 or count != last_offset_delta + 1:
        return Rejection(
            INVALID_RECORD, f"The record batch counts {count} records, its last offset delta is {last_offset_delta}"
        )
    if not _can_hold(count, len(records), attributes):
        return Rejection(INVALID_RECORD, f"The record batch is too short for the {count} records that it counts")
    if attributes & CONTROL_FLAG:
        return Rejection(INVALID_RECORD, "Clients may not write control batches")
    if producer_id >= 0 and sequence < 0:
        return Rejection(INVALID_RECORD, f"Producer {producer_id} sent the sequence number {sequence}")
    return None


def _can_hold(count: int, size: int, attributes: int) -> bool:
    """Whether so many of the shortest records can lie in the batch, compressed as well as its codec can."""
    return count * RECORD_BYTES_MIN <= (size - HEADER_BYTES) * EXPANSION_MAX[attributes & COMPRESSION_MASK]


def too_large(size: int, rules: AppendRules) -> Rejection:
    """The refusal of a batch that is larger than ``max.message.bytes``."""
    return Rejection(
        MESSAGE_TOO_LARGE,
        f"The record batch of {size} bytes exceeds max.message.bytes of {rules.max_message_bytes}",
    )


def _reject_timestamps(header: HeaderFields, rules: AppendRules, now_ms: int) -> Rejection | None:
    attributes = header[ATTRIBUTES]
    if attributes & TIMESTAMP_TYPE_FLAG:
        message = "A producer may not set the timestamp type LogAppendTime"
        return Rejection(INVALID_TIMESTAMP, message, [(i, message) for i in range(min(header[RECORDS_COUNT], 1))])
    is_too_late = not rules.log_append_time and header[MAX_TIMESTAMP] - now_ms > rules.timestamp_after_max_ms
    return TIMESTAMP_TOO_LATE if is_too_late and not rules.needs_records else None


def stamp_log_append_time(records: memoryview, header: HeaderFields, now_ms: int) -> HeaderFields:
    """Give the batch the timestamp type LogAppendTime, ``now_ms`` as its maximum and a new CRC; its new header."""
    set_log_append_time(records, now_ms)
    return (
        *header[:ATTRIBUTES],
        header[ATTRIBUTES] | TIMESTAMP_TYPE_FLAG,
        *header[LAST_OFFSET_DELTA:MAX_TIMESTAMP],
        now_ms,
        *header[PRODUCER_ID:],
    )
