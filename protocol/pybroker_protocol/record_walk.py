"""Whether the records of a batch are what its header says, without taking one of them out.

Owns: the walk over a records section that looks at every length and number in it. It notes for the judge of the records
the largest timestamp, and which records have no key or another time than they may. ``record_columns`` tells where
records lie, ``record_codec`` decodes them.

Invariants:
- The walk never leaves the bytes it was given, and makes no object for a record that is in order.
- The walk holds one piece of the section at a time, however large the section or a record is.
- Damaged records, and offsets that are not 0, 1, 2 and so on, are a ``ProtocolError``.

Kafka counterpart: the iterators of org.apache.kafka.common.record.DefaultRecordBatch, as LogValidator uses them.
"""

from collections.abc import Callable, Generator, Iterator

from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.primitives import read_varint, read_varlong
from pybroker_protocol.record_columns import as_int64
from pybroker_protocol.records import NO_TIMESTAMP, RECORD_BYTES_MIN
from pybroker_protocol.schema import Buffer

# Looked at between two pauses: a few hundred microseconds.
_RECORDS_AT_ONCE = 500
_HEADERS_AT_ONCE = 1_000

_ENDS_BEHIND = "a record's key, value or header ends behind the record"
_NOT_IN_ORDER = "the offsets of the records are not 0, 1, 2 and so on"
_SHORTEST_BODY = 2 * (RECORD_BYTES_MIN - 1)  # as a varint that is not unfolded


class WalkNotes:
    """What a walk is to look for, and what it has found.

    ``faults`` are the first ``faults_max`` records at fault, as (index, timestamp), with None for the timestamp where
    the key is missing; ``faults_count`` counts all of them.  ``largest_timestamp`` is -1 where none is larger.
    """

    __slots__ = (
        "_base_timestamp",
        "_earliest",
        "_latest",
        "any_untimely",
        "faults",
        "faults_count",
        "faults_max",
        "keys_wanted",
        "largest_timestamp",
    )

    def __init__(self, *, keys_wanted: bool, base_timestamp: int, earliest: int, latest: int, faults_max: int) -> None:
        """Timestamps (ms) from ``earliest`` to ``latest`` are in order, and the absence of one."""
        self.keys_wanted = keys_wanted
        self.faults_max = faults_max
        self.largest_timestamp = NO_TIMESTAMP
        self.faults: list[tuple[int, int | None]] = []
        self.faults_count = 0
        self.any_untimely = False
        self._base_timestamp = base_timestamp
        self._earliest = earliest
        self._latest = latest

    def is_timely(self, delta: int) -> bool:
        """Look at a timestamp delta; whether it may stand there."""
        timestamp = as_int64(self._base_timestamp + delta)
        self.largest_timestamp = max(self.largest_timestamp, timestamp)
        return self._earliest <= timestamp <= self._latest or timestamp == NO_TIMESTAMP

    def note_keyless(self, index: int) -> None:
        self._note(index, None)

    def note_untimely(self, index: int, delta: int) -> None:
        self.any_untimely = True
        self._note(index, as_int64(self._base_timestamp + delta))

    def _note(self, index: int, timestamp: int | None) -> None:
        self.faults_count += 1
        if len(self.faults) < self.faults_max:
            self.faults.append((index, timestamp))


def walk_section(section: bytes, count: int, notes: WalkNotes) -> None:
    """Look at all of an uncompressed section at once.  Raises ProtocolError."""
    index, pos = _walk_whole(section, 0, 0, count, notes)
    if index < count:
        raise ProtocolError("the records end too early")
    if pos != len(section):
        raise ProtocolError(f"{len(section) - pos} bytes after the last record")


def walk_pieces(pieces: Iterator[Buffer], count: int, notes: WalkNotes) -> Iterator[None]:
    """Look at a section that comes in pieces, with a pause every few hundred microseconds, and for each piece.

    Raises ProtocolError, as do the pieces.
    """
    source = _Source(pieces)
    index = 0
    while index < count:
        before = index
        index, source.pos = _walk_whole(source.data, source.pos, index, min(count, index + _RECORDS_AT_ONCE), notes)
        if index == before:
            yield from _walk_over_borders(source, index, notes)
            index += 1
        else:
            yield
    behind = len(source.data) - source.pos
    for piece in pieces:  # to their end, which tells whether they are sound
        behind += len(piece)
        yield
    if behind:
        raise ProtocolError(f"{behind} bytes after the last record")


# All time goes here, and calls cost more than all the rest: varints of one and two bytes, nearly all, are read inline.
# None is unfolded: even numbers stand for twice their value, odd ones are negative.
def _walk_whole(data: bytes, pos: int, index: int, stop: int, notes: WalkNotes) -> tuple[int, int]:
    """The records from ``pos`` on that lie whole in ``data``, up to that of index ``stop``; how far that went."""
    last = len(data) - RECORD_BYTES_MIN
    keys_wanted = notes.keys_wanted
    timely = -1  # the last delta that was found in order, and is the next record's as a rule
    try:
        while index < stop and pos <= last:
            length = data[pos]
            if length < 0x80:
                at = pos + 1
            elif data[pos + 1] < 0x80:
                length = length & 0x7F | data[pos + 1] << 7
                at = pos + 2
            else:
                length, at = _long_number(data, pos)
            if length & 1 or length < _SHORTEST_BODY:
                raise ProtocolError("a record of no such length")
            end = at + (length >> 1)
            if end > len(data):
                break
            at += 1  # one byte of attributes, of which none is in use
            delta = data[at]
            if delta < 0x80:
                at += 1
            elif data[at + 1] < 0x80:
                delta = delta & 0x7F | data[at + 1] << 7
                at += 2
            else:
                delta, at = _long_number(data, at, read_varlong)
            if delta != timely:
                timely = delta if notes.is_timely(_unfolded(delta)) else -1
            offset = data[at]
            if offset < 0x80:
                at += 1
            elif data[at + 1] < 0x80:
                offset = offset & 0x7F | data[at + 1] << 7
                at += 2
            else:
                offset, at = _long_number(data, at)
            if offset != 2 * index:
                raise ProtocolError(_NOT_IN_ORDER)
            length = data[at]
            if length < 0x80:
                at += 1
            else:
                length, at = _long_number(data, at)
            if length & 1 and keys_wanted:
                notes.note_keyless(index)
            elif timely < 0:
                notes.note_untimely(index, _unfolded(delta))
            if not length & 1:
                at += length >> 1
            length = data[at]
            if length < 0x80:
                at += 1
            elif data[at + 1] < 0x80:
                length = length & 0x7F | data[at + 1] << 7
                at += 2
            else:
                length, at = _long_number(data, at)
            if not length & 1:
                at += length >> 1
            at = _skip_headers(data, at, end) if data[at] else at + 1
            if at != end:
                raise ProtocolError("a record is not as long as it says")
            pos = end
            index += 1
    except IndexError as error:
        raise ProtocolError(_ENDS_BEHIND) from error
    return index, pos


def _long_number(data: bytes, at: int, read: Callable[[bytes, int], tuple[int, int]] = read_varint) -> tuple[int, int]:
    """A varint that is not unfolded, and its end."""
    value, at = read(data, at)
    return 2 * value if value >= 0 else -2 * value - 1, at


def _unfolded(number: int) -> int:
    return (number >> 1) ^ -(number & 1)


def _skip_headers(data: bytes, at: int, end: int) -> int:
    """Where the headers of a record end that ends at ``end``."""
    count, at = read_varint(data, at)
    _check_headers_count(count, end - at)
    count, at = _walk_headers(data, at, count, end)
    if count:
        raise ProtocolError(_ENDS_BEHIND)
    return at


def _check_headers_count(count: int, bytes_left: int) -> None:
    if not 0 <= count <= bytes_left // 2:  # a header takes two bytes at least
        raise ProtocolError(f"a record with {count} headers")


def _walk_headers(data: bytes, at: int, count: int, end: int) -> tuple[int, int]:
    """Headers that end by ``end``, at most ``count``: how many are left, and where.

    It stops at one that is damaged, or that does not end by then.
    """
    try:
        while count:
            length = data[at]
            pos = at + 1
            if length >= 0x80:
                length, pos = _long_number(data, at)
            if length & 1:
                break  # without a key
            pos += length >> 1
            length = data[pos]
            if length < 0x80:
                pos += 1
            else:
                length, pos = _long_number(data, pos)
            if not length & 1:
                pos += length >> 1
            if pos > end:
                break
            at = pos
            count -= 1
    except (IndexError, ProtocolError):
        pass
    return count, at


class _Source:
    """A section, piece by piece: ``data`` is the present one, and ``pos`` the place in it."""

    __slots__ = ("_before", "_pieces", "data", "pos")

    def __init__(self, pieces: Iterator[Buffer]) -> None:
        self._pieces = pieces
        self._before = 0
        self.data = b""
        self.pos = 0

    @property
    def position(self) -> int:
        """How many bytes of the section lie in front."""
        return self._before + self.pos

    def next_piece(self) -> None:
        self._before += len(self.data)
        self.data, self.pos = b"", 0
        try:
            self.data = bytes(next(self._pieces))
        except StopIteration:
            raise ProtocolError("the records end too early") from None

    def number(self, *, long: bool = False) -> int:
        """A varint, or varlong, which may lie across pieces."""
        encoded = bytearray()
        while len(encoded) < 10:
            while self.pos >= len(self.data):
                self.next_piece()
            byte = self.data[self.pos]
            self.pos += 1
            encoded.append(byte)
            if byte < 0x80:
                break
        return (read_varlong if long else read_varint)(encoded, 0)[0]

    def skip(self, count: int, end: int) -> Iterator[None]:
        """Go past ``count`` bytes of a record that ends at ``end``; a pause for each piece."""
        if self.position + count > end:
            raise ProtocolError(_ENDS_BEHIND)
        self.pos += max(count, 0)
        while self.pos > len(self.data):
            beyond = self.pos - len(self.data)
            self.pos = len(self.data)
            yield
            self.next_piece()
            self.pos = beyond


def _walk_over_borders(source: _Source, index: int, notes: WalkNotes) -> Generator[None, None, None]:
    """One record that does not lie whole in the present piece, or is the section's damaged end."""
    length = source.number()
    if 2 * length < _SHORTEST_BODY:
        raise ProtocolError(f"a record of {length} bytes")
    end = source.position + length
    yield from source.skip(1, end)
    delta = source.number(long=True)
    untimely = not notes.is_timely(delta)
    if source.number() != index:
        raise ProtocolError(_NOT_IN_ORDER)
    key_bytes = source.number()
    if key_bytes < 0 and notes.keys_wanted:
        notes.note_keyless(index)
    elif untimely:
        notes.note_untimely(index, delta)
    yield from source.skip(key_bytes, end)
    yield from source.skip(source.number(), end)
    yield from _skip_headers_over_borders(source, end)
    if source.position != end:
        raise ProtocolError("a record is not as long as it says")


def _skip_headers_over_borders(source: _Source, end: int) -> Iterator[None]:
    left = source.number()
    _check_headers_count(left, end - source.position)
    while left:
        beyond = min(end - source.position + source.pos, len(source.data))
        portion = min(left, _HEADERS_AT_ONCE)
        rest, source.pos = _walk_headers(source.data, source.pos, portion, beyond)
        left -= portion - rest
        if rest == portion:
            yield from _skip_header(source, end)
            left -= 1
        else:
            yield


def _skip_header(source: _Source, end: int) -> Iterator[None]:
    key_bytes = source.number()
    if key_bytes < 0:
        raise ProtocolError("a record header without a key")
    yield from source.skip(key_bytes, end)
    yield from source.skip(source.number(), end)
