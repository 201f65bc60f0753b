"""Where the records of a batch lie, with their keys: what who drops some and copies the others has to know.

Owns: the walk over an uncompressed records section that tells each record's place, offset and key and whether it has a
value, column by column and in slices of bounded length, and the shifting of records in time.  ``record_codec`` decodes
records whole.

Invariant: the walk never leaves the bytes it was given; damaged bytes, and offsets that do not ascend, are a
``ProtocolError``.  What a walk costs and holds at a time goes by the slice, not by the count that a header claims.

Kafka counterpart: the skipping iterator of org.apache.kafka.common.record.DefaultRecordBatch.
"""

from collections.abc import Iterator
from itertools import repeat
from typing import NamedTuple

from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.primitives import read_varint, read_varlong, varint


class RecordColumns(NamedTuple):
    """Some records in a row.  ``keyless`` and ``valueless`` are the places of those without a key, or a value."""

    starts: list[int]
    end: int
    offset_deltas: list[int]
    keys: list[bytes | None]
    keyless: list[int]
    valueless: list[int]


def record_columns(data: bytes, count: int, last_offset_delta: int, records_max: int) -> Iterator[RecordColumns]:
    """The ``count`` records that ``data``, a decompressed records section, consists of, ``records_max`` at a time.

    Raises ProtocolError, possibly after some slices, where the bytes or their offsets are not what the header says.
    """
    pos, last = 0, -1
    for first in range(0, count, records_max):
        try:
            columns = _columns(data, pos, min(records_max, count - first), last)
        except IndexError as error:
            raise ProtocolError("the records end too early") from error
        pos, last = columns.end, columns.offset_deltas[-1]
        if last > last_offset_delta or pos > len(data):
            raise ProtocolError("a record ends behind its batch")
        yield columns
    if pos != len(data):
        raise ProtocolError(f"{len(data) - pos} bytes after the last record")


def _columns(data: bytes, pos: int, count: int, last_offset_delta: int) -> RecordColumns:
    """The cleaner's time is spent here.  Calls cost more than all the rest: short varints, nearly all, are read inline.

    Varints that were read inline are not unfolded: even numbers stand for twice their value, odd ones are negative.
    """
    starts: list[int] = []
    offset_deltas: list[int] = []
    keys: list[bytes | None] = []
    keyless: list[int] = []
    valueless: list[int] = []
    add_start, add_offset_delta, add_key = starts.append, offset_deltas.append, keys.append
    previous = 2 * last_offset_delta
    for _ in repeat(None, count):
        add_start(pos)
        length = data[pos]
        if length < 0x80:
            pos += 1
        elif data[pos + 1] < 0x80:
            length = length & 0x7F | data[pos + 1] << 7
            pos += 2
        else:
            length, pos = read_varint(data, pos)
            length *= 2
        if length & 1 or length < 0:
            raise ProtocolError("a record of negative length")
        at = pos + 1  # one byte of attributes, of which none is in use
        pos += length >> 1
        if data[at] < 0x80:  # the timestamp delta is not needed
            at += 1
        elif data[at + 1] < 0x80:
            at += 2
        elif data[at + 2] < 0x80:
            at += 3
        else:
            _, at = read_varlong(data, at)
        offset_delta = data[at]
        if offset_delta < 0x80:
            at += 1
        elif data[at + 1] < 0x80:
            offset_delta = offset_delta & 0x7F | data[at + 1] << 7
            at += 2
        else:
            offset_delta, at = read_varint(data, at)
            offset_delta *= 2
        if offset_delta & 1 or offset_delta <= previous:
            raise ProtocolError("the offsets of the records do not ascend")
        add_offset_delta(offset_delta >> 1)
        previous = offset_delta
        length = data[at]
        if length < 0x80:
            at += 1
        else:
            length, at = read_varint(data, at)
            length *= 2
            if length < 0:
                length = -1
        if length & 1:
            keyless.append(len(keys))
            add_key(None)
        else:
            key_end = at + (length >> 1)
            add_key(data[at:key_end])
            at = key_end
        if at >= pos:
            raise ProtocolError("a record's key ends behind the record")
        if data[at] & 1:
            valueless.append(len(keys) - 1)
    return RecordColumns(starts, pos, offset_deltas, keys, keyless, valueless)


def timestamp_deltas(data: bytes, pos: int, count: int) -> tuple[list[int], int]:
    """The timestamp deltas (ms) of ``count`` records from ``pos`` on, which a walk has found sound; and their end."""
    deltas: list[int] = []
    for _ in repeat(None, count):
        length = data[pos]
        if length < 0x80:
            length, body = length >> 1, pos + 1
        elif data[pos + 1] < 0x80:
            length, body = (length & 0x7F | data[pos + 1] << 7) >> 1, pos + 2
        else:
            length, body = read_varint(data, pos)
        delta = data[body + 1]
        deltas.append(read_varlong(data, body + 1)[0] if delta & 0x81 else delta >> 1)
        pos = body + length
    return deltas, pos


def move_in_time(data: bytes, pos: int, count: int, by_ms: int | None) -> tuple[bytes, int]:
    """These records with timestamp deltas ``by_ms`` larger, or of 0; and where they end in ``data``."""
    parts: list[bytes] = []
    for _ in repeat(None, count):
        length, body = read_varint(data, pos)
        pos = body + length
        delta, rest = read_varlong(data, body + 1)
        moved = varint(0 if by_ms is None else as_int64(delta + by_ms))
        parts += (varint(1 + len(moved) + pos - rest), data[body : body + 1], moved, data[rest:pos])
    return b"".join(parts), pos


def as_int64(number: int) -> int:
    """What is left of a number in 64 bits, as in Kafka: timestamps that lie may add up to more."""
    return (number + (1 << 63) & (1 << 64) - 1) - (1 << 63)
