"""Where the records of a batch lie, without decoding more of them than their keys.

Owns: the walk over an uncompressed records section that tells each record's place, key and whether it has a value, for
who only drops records and copies the others as they are.  ``record_codec`` decodes them whole.

Invariant: the walk never leaves the bytes it was given; damaged bytes are a ``ProtocolError``.

Kafka counterpart: the skipping iterator of org.apache.kafka.common.record.DefaultRecordBatch.
"""

from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.primitives import read_varint, read_varlong

# (start, end, timestamp delta in ms, offset delta, key, whether there is a value)
RecordSpan = tuple[int, int, int, int, bytes | None, bool]


def record_spans(data: bytes, count: int) -> list[RecordSpan]:
    """The spans of the ``count`` records that ``data``, a decompressed records section, consists of."""
    spans: list[RecordSpan] = []
    add = spans.append
    pos = 0
    try:
        for _ in range(count):
            span = _record_span(data, pos)
            add(span)
            pos = span[1]
    except IndexError as error:
        raise ProtocolError("the records end too early") from error
    if pos != len(data):
        raise ProtocolError(f"{len(data) - pos} bytes after the last record")
    return spans


def _record_span(data: bytes, start: int) -> RecordSpan:
    """The record at ``start``.  Calls cost more than all the rest: nearly all varints are short, and read inline."""
    length = data[start]
    pos = start + 1
    if length >= 0x80:
        second = data[pos]
        if second < 0x80:
            length = length & 0x7F | second << 7
            pos += 1
        else:
            length, pos = read_varint(data, start)
            length *= 2  # as it stands in the other two cases; a negative one stays even and is refused below
    if length & 1 or length < 0:
        raise ProtocolError("a record of negative length")
    end = pos + (length >> 1)
    if end > len(data):
        raise ProtocolError("a record ends behind its batch")
    pos += 1  # one byte of attributes, of which none is in use
    if data[pos] & 0x81:
        timestamp_delta, pos = read_varlong(data, pos)
    else:
        timestamp_delta = data[pos] >> 1
        pos += 1
    if data[pos] & 0x81:
        offset_delta, pos = read_varint(data, pos)
    else:
        offset_delta = data[pos] >> 1
        pos += 1
    key_length = data[pos]
    if key_length & 0x81:
        key_length, pos = read_varint(data, pos)
    else:
        key_length >>= 1
        pos += 1
    key = None
    if key_length >= 0:
        key_end = pos + key_length
        if key_end >= end:
            raise ProtocolError("a record's key ends behind the record")
        key = data[pos:key_end]
        pos = key_end
    has_value = not data[pos] & 1  # zigzag: the lengths below zero are the odd numbers
    return start, end, timestamp_delta, offset_delta, key, has_value
