"""The rules of an append that only a batch's records can answer, and the rewriting of a batch.

Owns keys on compacted topics, the records' own timestamps, and the change of codec that ``compression.type`` asks for,
and which batches are too much for the loop: a few bytes may be a hundred megabytes once they are decompressed.
Loaded at first need: an ordinary topic never decodes a record.
"""

from __future__ import annotations

from collections.abc import Iterable

from pybroker.limits import INLINE_DECODE_BYTES_MAX, INLINE_DECODE_RECORDS_MAX
from pybroker.storage.results import INVALID_RECORD, INVALID_TIMESTAMP
from pybroker.storage.validator import (
    TIMESTAMP_TOO_LATE,
    AppendRules,
    HeaderFields,
    Rejection,
    is_too_late,
    too_large,
)
from pybroker_protocol.compression import DECOMPRESSED_BYTES_MAX
from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.record_codec import Record, decode_records, rebuild_batch
from pybroker_protocol.records import COMPRESSION_MASK, HEADER, NO_TIMESTAMP, BatchHeader

Prepared = tuple[memoryview, HeaderFields] | Rejection


def prepare_records(records: memoryview, header: HeaderFields, rules: AppendRules, now_ms: int) -> Prepared:
    """The batch as it is to be written, in the topic's codec, with its header; or why it is refused."""
    try:
        return _prepare(records, header, rules, now_ms, DECOMPRESSED_BYTES_MAX)
    except ProtocolError as error:
        return Rejection(INVALID_RECORD, f"The records of the batch are damaged: {error}")


def prepare_at_once(records: memoryview, header: HeaderFields, rules: AppendRules, now_ms: int) -> Prepared | None:
    """The same on the loop; ``None`` where it would hold the loop up: then it is a thread's."""
    if not looks_quick_to_decode(records, header):
        return None
    try:
        return _prepare(records, header, rules, now_ms, INLINE_DECODE_BYTES_MAX)
    except ProtocolError:
        return None  # large once it is decompressed, or damaged: the thread finds out which


def looks_quick_to_decode(batch: memoryview, header: HeaderFields) -> bool:
    """Whether the loop may try to decode the records; how large they are decompressed, only that shows."""
    return len(batch) <= INLINE_DECODE_BYTES_MAX and header[12] <= INLINE_DECODE_RECORDS_MAX


def _prepare(
    records: memoryview, header: HeaderFields, rules: AppendRules, now_ms: int, decompressed_bytes_max: int
) -> Prepared:
    """Raises ProtocolError for damaged records, and for more than ``decompressed_bytes_max`` of them."""
    rejection = _check_records(decode_records(records, decompressed_bytes_max), rules, now_ms)
    if rejection is not None:
        return rejection
    if is_too_late(header, rules, now_ms):
        return TIMESTAMP_TOO_LATE
    attributes = header[5]
    if rules.codec < 0 or attributes & COMPRESSION_MASK == rules.codec:
        return records, header
    target = BatchHeader._make(header)._replace(attributes=attributes & ~COMPRESSION_MASK | rules.codec)
    rebuilt = memoryview(bytearray(rebuild_batch(target, list(decode_records(records)))))
    if len(rebuilt) > rules.max_message_bytes:
        return too_large(rebuilt, rules)
    return rebuilt, HEADER.unpack_from(rebuilt)


def _check_records(records: Iterable[Record], rules: AppendRules, now_ms: int) -> Rejection | None:
    """Why the records are refused, ``None`` if they are not.  All records at fault are named."""
    errors: list[tuple[int, str]] = []
    code = INVALID_RECORD
    for index, record in enumerate(records):
        if rules.compacted and record.key is None:
            errors.append((index, "A compacted topic does not accept records without a key"))
            continue
        if not rules.log_append_time and record.timestamp_ms != NO_TIMESTAMP:
            message = _timestamp_error(record.timestamp_ms, rules, now_ms)
            if message is not None:
                errors.append((index, message))
                code = INVALID_TIMESTAMP
    if not errors:
        return None
    return Rejection(code, f"{len(errors)} records of the batch were rejected", errors)


def _timestamp_error(timestamp: int, rules: AppendRules, now_ms: int) -> str | None:
    earliest, latest = now_ms - rules.timestamp_before_max_ms, now_ms + rules.timestamp_after_max_ms
    if earliest <= timestamp <= latest:
        return None
    return f"The timestamp {timestamp} is not within [{earliest}, {latest}]"
