"""Where the records of a batch lie, with their keys: what who drops some and copies the others has to know.

Owns: the walk over an uncompressed records section that tells each record's place, offset and key and whether it has a
value. It goes column by column and in parts of bounded length. Owns the shifting of records in time, too.
``record_codec`` decodes records whole.

Invariants:
- Records that are alike are read many at a time, with the same result as a walk from one to the next.
- Where they may not be sound, the latter says so.
- The walk never leaves the bytes it was given.
- Damaged bytes, and offsets that do not ascend, are a ``ProtocolError``.
- What a walk costs and holds at a time goes by the part, not by the count that a header claims.

Kafka counterpart: the skipping iterator of org.apache.kafka.common.record.DefaultRecordBatch.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from itertools import pairwise, repeat, starmap
from operator import lt
from struct import Struct
from typing import NamedTuple

from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.primitives import read_varint, read_varlong, varint


class RecordColumns(NamedTuple):
    """Some records in a row.  ``keyless`` and ``valueless`` are the places of those without a key, or a value."""

    starts: Sequence[int]
    end: int
    offset_deltas: Sequence[int]
    keys: Sequence[bytes | None]
    keyless: Sequence[int]
    valueless: Sequence[int]


# Fewer records than this are not worth being looked at together.  Where that did not help, so many are read one by one
# before the next try, twice as many behind each further one.
_ALIKE_MIN = 16
_ONE_BY_ONE_MIN = 128


def record_columns(data: bytes, count: int, last_offset_delta: int, records_max: int) -> Iterator[RecordColumns]:
    """The ``count`` records that ``data``, a decompressed records section, consists of, in parts.

    Parts end at each multiple of ``records_max`` records at the latest.  Raises ProtocolError, possibly after some
    parts, where the bytes or their offsets are not what the header says.
    """
    pos, last, left = 0, -1, count
    one_by_one = _ONE_BY_ONE_MIN
    while left > 0:
        part_max = min(records_max - (count - left) % records_max, left)
        columns = _alike(data, pos, part_max, last)
        if columns is not None:
            one_by_one = _ONE_BY_ONE_MIN
        else:
            try:
                columns = _columns(data, pos, min(part_max, one_by_one), last)
            except IndexError as error:
                raise ProtocolError("the records end too early") from error
            one_by_one *= 2
        pos, last = columns.end, columns.offset_deltas[-1]
        left -= len(columns.keys)
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


# Records that are alike ----------------------------------------------------------------------------------------------

# Whether a varint goes on behind a byte, and whether one that begins with it stands for a negative number.
_GOES_ON = bytes(byte >> 7 for byte in range(256))
_IS_NEGATIVE = bytes(byte & 1 for byte in range(256))

# A timestamp delta of so many bytes is one of 64 bits whatever they are.
_TIMESTAMP_DELTA_BYTES_MAX = 9


class _Heads(NamedTuple):
    """Records from behind their length up to the first byte of the value's length; all heads are equally long."""

    starts: Sequence[int]
    end: int
    joined: bytes


def _alike(data: bytes, pos: int, count: int, last_offset_delta: int) -> RecordColumns | None:
    """The next records, as many as have the same layout as the first one: each field up to the value is as long.

    The same byte of all heads is one slice then. A few calls do for all records what ``_columns`` does for each, in a
    third to a tenth of the time. ``None`` where there are few, or anything is unusual or damaged: ``_columns`` judges.
    """
    if count < _ALIKE_MIN:
        return None
    try:
        length, body = read_varint(data, pos)
        _, delta_at = read_varlong(data, body + 1)
        _, length_at = read_varint(data, delta_at)
        key_length, key_at = read_varint(data, length_at)
    except ProtocolError:
        return None
    value_at = key_at + max(key_length, 0)
    width = value_at + 1 - body
    if width > length or delta_at > body + 1 + _TIMESTAMP_DELTA_BYTES_MAX:
        return None
    heads = _heads_of_same_length(data, pos, count, body, length, width)
    if heads is None:
        heads = _heads_of_any_length(data, pos, count, width, length_at - body, data[length_at])
    joined, count = heads.joined, len(heads.starts)
    if count < _ALIKE_MIN or len(joined) != count * width:
        return None

    for at in range(length_at - body, key_at - body):
        count = _same(joined[at : count * width : width])
    for at in range(1, length_at - body):
        count = _same(joined[at : count * width : width].translate(_GOES_ON))
    if count < _ALIKE_MIN:
        return None
    deltas = _ascending([joined[at : count * width : width] for at in range(delta_at - body, length_at - body)])
    if deltas is None or deltas[0] <= last_offset_delta:
        return None
    negative = joined[width - 1 : count * width : width].translate(_IS_NEGATIVE)
    return RecordColumns(
        starts=heads.starts[:count],
        end=heads.starts[count] if count < len(heads.starts) else heads.end,
        offset_deltas=deltas,
        keys=[None] * count if key_length < 0 else _pieces(key_at - body, key_length, 1, count).unpack_from(joined),
        keyless=range(count) if key_length < 0 else (),
        valueless=[i for i, is_negative in enumerate(negative) if is_negative] if 1 in negative else (),
    )


def _heads_of_same_length(data: bytes, pos: int, count: int, body: int, length: int, width: int) -> _Heads | None:
    """The heads of records that are as long as the first one; ``None`` where these are few."""
    before, size = body - pos, body - pos + length
    count = min(count, (len(data) - pos) // size)
    for at in range(pos, body):
        if count < _ALIKE_MIN:
            return None
        count = _same(data[at : pos + count * size : size])
    if count < _ALIKE_MIN:
        return None
    end = pos + count * size
    heads: tuple[bytes, ...] = _pieces(before, width, length - width, count).unpack_from(data, pos)
    return _Heads(range(pos, end, size), end, b"".join(heads))


def _heads_of_any_length(data: bytes, pos: int, count: int, width: int, key_length_at: int, key_length: int) -> _Heads:
    """The heads of records that have one of this width and, there, this first byte of the key's length."""
    starts: list[int] = []
    heads: list[bytes] = []
    with suppress(IndexError):  # the records may end here
        for _ in repeat(None, count):
            length, body = data[pos], pos + 1
            if length >= 0x80:
                length, body = length & 0x7F | data[body] << 7, pos + 2
            head = data[body : body + width]
            if head[key_length_at] != key_length or length & 1 or not width <= length >> 1 < 1 << 13:
                break
            starts.append(pos)
            heads.append(head)
            pos = body + (length >> 1)
    return _Heads(starts, pos, b"".join(heads))


def _same(column: bytes) -> int:
    """How many bytes, from the first one on, are like it."""
    return len(column) - len(column.lstrip(column[:1]))


def _ascending(columns: list[bytes]) -> Sequence[int] | None:
    """The numbers of which these are the varints, byte by byte; ``None`` where they are negative or do not ascend."""
    width, count = len(columns), len(columns[0])
    if 1 in columns[0].translate(_IS_NEGATIVE):
        return None
    first, _ = read_varint(bytes(column[0] for column in columns), 0)
    begin, varints = _varints().get(width, (0, b""))
    start, end = (first - begin) * width, (first - begin + count) * width
    if all(column == varints[start + i : end : width] for i, column in enumerate(columns)):
        return range(first, first + count)
    folded = [byte & 0x7F for byte in columns[0]]
    for i, column in enumerate(columns[1:], 1):
        folded = [number | (byte & 0x7F) << 7 * i for number, byte in zip(folded, column, strict=True)]
    return [number >> 1 for number in folded] if all(starmap(lt, pairwise(folded))) else None


@cache
def _varints() -> dict[int, tuple[int, bytes]]:
    """By width: the first number whose varint is so wide, and the varints of it and all others, in a row."""
    ranges = {1: range(64), 2: range(64, 8192)}
    return {width: (numbers.start, b"".join(map(varint, numbers))) for width, numbers in ranges.items()}


@lru_cache(maxsize=32)
def _pieces(before: int, length: int, behind: int, count: int) -> Struct:
    """What unpacks pieces of a length that lie at the same distance from each other."""
    return Struct(f"{before}x{length}s{behind}x" * count)


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
