"""The maximum timestamp of a client's batch, which its header may tell wrongly.  Kafka's LogValidator.

Owns: that the header of what is stored has the largest timestamp of its records, because retention, the time index, a
search by time and followers go by it.  KafkaJS computes it over some of the records, and older versions of sarama not
at all.  Judges no record: what is out of its range, damaged or long is ``record_validator``'s to look at.

Invariant: a batch's bytes and checksum change only where its maximum does.

Every batch is looked at, whatever client it comes from. One record's time is two comparisons, and many records take a
tenth of a microsecond each, less where they are equally long (``record_times``). What that costs in all stands in
``storage/README.md``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker.storage_limits import INLINE_DECODE_BYTES_MAX
from pybroker_protocol.compression import decompress
from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.record_times import largest_delta
from pybroker_protocol.records import (
    BASE_TIMESTAMP,
    COMPRESSION_MASK,
    HEADER,
    HEADER_BYTES,
    MAX_TIMESTAMP,
    MAX_TIMESTAMP_AT,
    NO_TIMESTAMP,
    HeaderFields,
    set_crc,
)
from pybroker_protocol.schema import Buffer

if TYPE_CHECKING:
    from pybroker.storage.rules.validator import AppendRules

# Where only the largest timestamp is looked for, in records that are not compressed, so many are looked at by the loop.
INLINE_TIMES_RECORDS_MAX = 10_000

# A record whose body has fewer bytes than this has a length of one byte, or of two.
_ONE_BYTE_LENGTH = 1 << 6
_TWO_BYTE_LENGTH = 1 << 13
_INT64_END = 1 << 63


def true_header(records: memoryview, header: HeaderFields, rules: AppendRules, now_ms: int) -> HeaderFields | None:
    """The header of a batch that ``validate`` takes, with its records' largest timestamp, as its bytes have it then.

    ``None`` where that is too long a look for the loop, or where the records are not as they should be.
    """
    _, _, _, _, _, attributes, _, base_timestamp, max_timestamp, _, _, _, count = header
    codec = attributes & COMPRESSION_MASK
    if count == 1 and not codec and base_timestamp == max_timestamp >= NO_TIMESTAMP:
        # A single record has the delta 0 as a rule: it is that if its length fills the section and its time is 0.
        body = len(records) - HEADER_BYTES - 1
        if body < _ONE_BYTE_LENGTH:
            if records[HEADER_BYTES] == body << 1 and not records[HEADER_BYTES + 2]:
                return header
        elif (
            body <= _TWO_BYTE_LENGTH
            and records[HEADER_BYTES] == ((body - 1) << 1 & 0x7F | 0x80)
            and records[HEADER_BYTES + 1] == (body - 1) >> 6
            and not records[HEADER_BYTES + 3]
        ):
            return header
    if count > INLINE_TIMES_RECORDS_MAX or (codec and len(records) > INLINE_DECODE_BYTES_MAX):
        return None
    try:
        section: Buffer = records[HEADER_BYTES:]
        if codec:
            section = decompress(codec, section, INLINE_DECODE_BYTES_MAX)
        delta_ms = largest_delta(section, count)
    except ProtocolError:
        return None
    return with_largest_delta(records, header, delta_ms, rules, now_ms)


def with_largest_delta(
    records: memoryview, header: HeaderFields, delta_ms: int, rules: AppendRules, now_ms: int
) -> HeaderFields | None:
    """The header with the maximum that the largest delta makes; ``None`` where each record has to be looked at.

    So it is with times out of range, and with sums that 64 bits may not hold: the largest delta is not the latest time
    then.
    """
    base_timestamp = header[BASE_TIMESTAMP]
    largest = base_timestamp + delta_ms
    if base_timestamp < 0 or largest >= _INT64_END or largest - now_ms > rules.timestamp_after_max_ms:
        return None
    return with_maximum(records, header, max(largest, NO_TIMESTAMP))


def with_maximum(records: memoryview, header: HeaderFields, max_timestamp: int) -> HeaderFields:
    """The header with this maximum (ms); where it had another one the batch is written anew, with its checksum."""
    if max_timestamp == header[MAX_TIMESTAMP]:
        return header
    records[MAX_TIMESTAMP_AT : MAX_TIMESTAMP_AT + 8] = max_timestamp.to_bytes(8, "big", signed=True)
    set_crc(records)
    return HEADER.unpack_from(records)
