"""The rules of an append that only a batch's records can answer, and the rewriting of a batch.

Owns keys on compacted topics, the records' own timestamps, and the change of codec that ``compression.type`` asks for.
Loaded at first need: an ordinary topic never decodes a record.
"""

from __future__ import annotations

from collections.abc import Iterator

from pybroker.storage.results import INVALID_RECORD, INVALID_TIMESTAMP
from pybroker.storage.validator import AppendRules, HeaderFields, Rejection
from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.record_codec import decode_records, rebuild_batch
from pybroker_protocol.records import COMPRESSION_MASK, HEADER, NO_TIMESTAMP, BatchHeader


def check_records(records: memoryview, rules: AppendRules, now_ms: int) -> Rejection | None:
    """Why the batch's records are refused, ``None`` if they are not.  All records at fault are named."""
    errors: list[tuple[int, str]] = []
    code = INVALID_RECORD
    try:
        for index, record in enumerate(decode_records(records)):
            if rules.compacted and record.key is None:
                errors.append((index, "A compacted topic does not accept records without a key"))
                continue
            if not rules.log_append_time and record.timestamp_ms != NO_TIMESTAMP:
                message = _timestamp_error(record.timestamp_ms, rules, now_ms)
                if message is not None:
                    errors.append((index, message))
                    code = INVALID_TIMESTAMP
    except ProtocolError as error:
        return Rejection(INVALID_RECORD, f"The records of the batch are damaged: {error}")
    if not errors:
        return None
    return Rejection(code, f"{len(errors)} records of the batch were rejected", errors)


def _timestamp_error(timestamp: int, rules: AppendRules, now_ms: int) -> str | None:
    earliest, latest = now_ms - rules.timestamp_before_max_ms, now_ms + rules.timestamp_after_max_ms
    if earliest <= timestamp <= latest:
        return None
    return f"The timestamp {timestamp} is not within [{earliest}, {latest}]"


def prepare_records(
    records: memoryview, header: HeaderFields, rules: AppendRules, now_ms: int
) -> tuple[memoryview, HeaderFields] | Rejection:
    """The batch as it is to be written, in the topic's codec, with its header; or why it is refused."""
    rejection = check_records(records, rules, now_ms)
    if rejection is not None:
        return rejection
    attributes = header[5]
    if rules.codec < 0 or attributes & COMPRESSION_MASK == rules.codec:
        return records, header
    target = BatchHeader._make(header)._replace(attributes=attributes & ~COMPRESSION_MASK | rules.codec)
    rebuilt = memoryview(bytearray(rebuild_batch(target, list(decode_records(records)))))
    return rebuilt, HEADER.unpack_from(rebuilt)


def record_timestamps(batch: memoryview) -> Iterator[tuple[int, int]]:
    """(offset, timestamp in ms) of a stored batch's records."""
    for record in decode_records(batch):
        yield record.offset, record.timestamp_ms
