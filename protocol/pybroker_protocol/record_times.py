"""The largest timestamp of a batch's records, at the least price that tells it for certain.

Owns: the walk over a records section that reads of each record its length and its time and nothing else.
``record_walk`` looks at everything in a record, ``record_search`` finds the first one that is late enough.

Invariants:
- A section whose records' lengths do not fill it with as many as the header counts is a ``ProtocolError``.
- What is inside of a record behind its time is not looked at.
- What is held of a section that comes in pieces is a piece.

A record's place is known only once the record before it was read, so that Python takes some 0.1 µs for each.  Of
records that are equally long many are looked at together, in a tenth of that.

Kafka counterpart: the maximum that LogValidator takes from the records of each batch.
"""

from collections.abc import Generator, Iterator

from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.primitives import read_varint, read_varlong
from pybroker_protocol.records import RECORD_BYTES_MIN
from pybroker_protocol.schema import Buffer

# Length, attributes and time of a record, as long as varints may be.
_HEAD_BYTES_MAX = 5 + 1 + 10
_TWICE_BODY_BYTES_MIN = 2 * (RECORD_BYTES_MIN - 1)
# Fewer records in all are not worth being looked at together, nor are fewer that are alike.  Where they are no more, so
# many are read one by one before the next try, twice as many behind each further one.
_ALIKE_WORTH = 200
_ALIKE_MIN = 16
_ONE_BY_ONE_MIN = 64
_ONE_BY_ONE_MAX = 2_000  # in a few hundred microseconds
_WINDOW_BYTES = 64 * 1024  # bytes that are copied to be walked through, which is quicker than through a view

# Larger records than this are looked at in place; it costs less to copy smaller ones first.
_LARGE_RECORD_BYTES = 500

_NONE = -1 << 66  # less than any delta
_NOWHERE = 1 << 66  # behind the end of any section
# By the first byte of a record's length, how far the next record is; where a second byte follows, 64 times that more.
_STEPS = tuple(
    _NOWHERE if byte & 1 or byte < _TWICE_BODY_BYTES_MIN else 1 + (byte >> 1) if byte < 0x80 else 2 + (byte - 0x80 >> 1)
    for byte in range(256)
)
_NEGATIVE = bytes(range(1, 256, 2))  # first bytes of varints that stand for negative numbers


def largest_delta(section: Buffer, count: int) -> int:
    """The largest timestamp delta (ms) of the ``count`` records of a section that is not compressed, all at once.

    Raises ProtocolError where these are not as many, or not as long, as is said.
    """
    if len(section) <= _WINDOW_BYTES:
        section = bytes(section)
        if count < _ALIKE_WORTH or not _begins_alike(section):
            pos, left, twice = _walk(section, 0, len(section), count, _NONE)
            _check_end(left, len(section) - pos)
            return twice >> 1
    small = len(section) < _LARGE_RECORD_BYTES * count
    step = _WINDOW_BYTES if small else len(section)
    steps = walk_times((section[at : at + step] for at in range(0, len(section), step)), count)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            largest: int = end.value
            return largest


def walk_times(pieces: Iterator[Buffer], count: int) -> Generator[None, None, int]:
    """The same of a section that comes in pieces, with a pause for each piece and every few hundred microseconds.

    Raises ProtocolError, as do the pieces, which are read to their end: that tells whether they are sound.
    """
    data: Buffer = b""
    pos, left, twice, one_by_one = 0, count, _NONE, _ONE_BY_ONE_MIN
    for piece in pieces:
        rest = bytes(data[pos:])
        pos = max(pos - len(data), 0)
        data = rest + bytes(piece) if rest else piece if len(piece) > _WINDOW_BYTES else bytes(piece)
        stop = len(data) - _HEAD_BYTES_MAX
        while left and pos < stop:
            before = left
            pos, left, twice = _walk_alike(data, pos, stop, left, twice)
            if left != before:
                one_by_one = _ONE_BY_ONE_MIN
                continue
            window = bytes(data[pos : pos + _WINDOW_BYTES])
            portion = min(left, one_by_one)
            behind, unread, twice = _walk(window, 0, len(window) - _HEAD_BYTES_MAX, portion, twice)
            pos += behind
            left -= portion - unread
            one_by_one = min(2 * one_by_one, _ONE_BY_ONE_MAX)
            yield
        yield
    if left and pos < len(data):  # heads in the last bytes, none of which are missing any more
        pos, left, twice = _walk(bytes(data), pos, len(data), left, twice)
    _check_end(left, len(data) - pos)
    return twice >> 1


def _check_end(records_left: int, bytes_left: int) -> None:
    if records_left or bytes_left < 0:
        raise ProtocolError("the records end too early")
    if bytes_left:
        raise ProtocolError(f"{bytes_left} bytes after the last record")


def _begins_alike(data: bytes) -> bool:
    """Whether the first three records are equally long, as far as the first byte of that tells."""
    if len(data) < _ALIKE_MIN:
        return False
    first = data[0]
    size = _STEPS[first] if first < 0x80 else _STEPS[first] + (data[1] << 6)
    return 2 * size < len(data) and data[size] == data[2 * size] == first


# All time goes here.  Varints of one and two bytes, nearly all, are read inline, and none is unfolded: even numbers
# stand for twice their value, odd ones are negative.
def _walk(data: bytes, pos: int, stop: int, count: int, largest: int) -> tuple[int, int, int]:
    """The place behind the next ``count`` records, or of the first at or past ``stop``; how many are left there.

    ``largest`` is twice the largest delta so far.
    """
    steps = _STEPS
    limit = min(largest, 0x7F)  # first bytes of deltas up to it are of no interest
    try:
        for left in range(count, 0, -1):
            if pos >= stop:
                return pos, left, largest
            first = data[pos]
            if first < 0x80:
                at = pos + 2
                pos += steps[first]
            else:
                second = data[pos + 1]
                if second < 0x80:
                    at = pos + 3
                    pos += steps[first] + (second << 6)
                else:
                    length, at = read_varint(data, pos)
                    pos = at + length if length > 0 else _NOWHERE
                    at += 1
            delta = data[at]
            if delta > limit:
                if delta > 0x7F:
                    if data[at + 1] < 0x80:
                        delta = delta & 0x7F | data[at + 1] << 7
                    else:
                        delta = 2 * read_varlong(data, at)[0]
                if delta & 1:
                    delta = -delta - 1
                if delta > largest:
                    largest = delta
                    limit = delta if delta < 0x7F else 0x7F
    except IndexError as error:
        raise ProtocolError("the records end too early") from error
    return pos, 0, largest


def _walk_alike(data: Buffer, pos: int, stop: int, count: int, largest: int) -> tuple[int, int, int]:
    """The same of as many records as are as long as the first one, where these are many; else nothing has changed.

    The same byte of all of them is one slice then.
    """
    length, at = data[pos], pos + 2
    if length >= 0x80:
        length = length & 0x7F | data[pos + 1] << 7
        at = pos + 3
    size = at - 1 - pos + (length >> 1)
    alike = min(count, 1 + (stop - 1 - pos) // size)
    if alike < _ALIKE_MIN or length & 1 or not _TWICE_BODY_BYTES_MIN <= length < 1 << 14:
        return pos, count, largest
    end = pos + alike * size
    for place in range(pos, at - 1):
        column = bytes(data[place:end:size])
        alike = len(column) - len(column.lstrip(column[:1]))
        if alike < _ALIKE_MIN:
            return pos, count, largest
        end = pos + alike * size
    times = bytes(data[at:end:size])
    if not times.isascii():  # of two bytes each, or of different widths
        behind = bytes(data[at + 1 : end : size])
        if min(times) < 0x80 or not behind.isascii() or times.translate(None, _NEGATIVE) != times:
            return pos, count, largest
        high, low = max(zip(behind, times, strict=True))
        return end, count - alike, max(largest, high << 7 | low & 0x7F)
    positive = times.translate(None, _NEGATIVE)
    largest = max(largest, max(positive) if positive else -min(times) - 1)
    return end, count - alike, largest
