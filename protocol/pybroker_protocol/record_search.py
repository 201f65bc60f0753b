"""Finding the first record of a batch that is late enough, in portions.

Owns: the walk over a records section that reads of each record no more than its length and its time, decompressing
only as far as it goes.  ``record_codec`` decodes records whole, ``record_columns`` tells where they lie.

Invariant: the portion bounds what is done between two yields and what is held in memory, whatever a header or a
compressed section claims. A block of snappy's is excepted (see ``compression.decompressed_pieces``).

Kafka counterpart: DefaultRecordBatch's iterator under FileRecords.searchForTimestamp.
"""

from collections.abc import Generator
from typing import NamedTuple

from pybroker_protocol.compression import DECOMPRESSED_BYTES_MAX, decompressed_pieces
from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.primitives import read_varint, read_varlong
from pybroker_protocol.records import CURRENT_MAGIC, HEADER_BYTES, read_batch_header
from pybroker_protocol.schema import Buffer

# Length, attributes, time and offset of a record, as long as varints may be.
_RECORD_HEAD_BYTES_MAX = 5 + 1 + 10 + 5
# Attributes, time, offset, the lengths of key and value, and the count of headers, twice: lengths are folded.
_TWICE_RECORD_BYTES_MIN = 12


_ANY_TIME = -(1 << 63)


class FoundRecord(NamedTuple):
    """Where a record is."""

    offset: int
    timestamp_ms: int


def first_record_since(
    batch: Buffer,
    timestamp_ms: int,
    from_offset: int,
    records_max: int,
    piece_bytes: int,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> Generator[int, None, FoundRecord | None]:
    """The first record of the batch at or past both; ``None`` if there is none.

    Yields how many records are left behind every ``records_max`` of them and about every ``piece_bytes`` of
    decompressed data, but not before that.  Raises ProtocolError where the bytes up to the record are not what the
    header says; what lies behind a record's offset is not looked at, nor is the checksum.
    """
    header = read_batch_header(batch)
    if header.magic != CURRENT_MAGIC or not HEADER_BYTES <= header.size_bytes <= len(batch):
        raise ProtocolError("not a whole record batch of magic 2")
    if header.is_log_append_time and header.max_timestamp < timestamp_ms:
        return None
    walk = _Walk(
        header.records_count,
        _ANY_TIME if header.is_log_append_time else timestamp_ms - header.base_timestamp,
        from_offset - header.base_offset,
        records_max,
    )
    section = memoryview(batch)[HEADER_BYTES : header.size_bytes]
    is_first = True
    for piece in decompressed_pieces(header.compression, section, piece_bytes, decompressed_bytes_max):
        if not (is_first and piece):
            yield walk.left
        is_first = False
        walk.add(piece)
        while walk.goes_on(_RECORD_HEAD_BYTES_MAX):
            yield walk.left
        if walk.found is not None:
            break
    while walk.goes_on(0):
        yield walk.left
    if walk.found is None:
        walk.check_end()
        return None
    time_delta, offset_delta = walk.found
    time = header.max_timestamp if header.is_log_append_time else header.base_timestamp + time_delta
    return FoundRecord(header.base_offset + offset_delta, time)


class _Walk:
    """The records of a section that comes piece by piece; ``found`` are a record's deltas of time and offset."""

    __slots__ = ("_data", "_offset_since", "_pos", "_records_max", "_time_since", "found", "left")

    def __init__(self, count: int, time_since: int, offset_since: int, records_max: int) -> None:
        self.left = count
        self.found: tuple[int, int] | None = None
        self._time_since = time_since
        self._offset_since = offset_since
        self._records_max = records_max
        self._data = b""
        self._pos = 0

    def add(self, piece: Buffer) -> None:
        """Take the next piece behind what is left of the last, which is no more than a head that may be cut."""
        unread = self._data[self._pos :]
        self._pos = max(self._pos - len(self._data), 0)
        self._data = unread + bytes(piece) if unread else bytes(piece)

    def goes_on(self, margin_bytes: int) -> bool:
        """Look at the next records whose heads are not in the margin at the end; whether there are more of them."""
        stop = len(self._data) - margin_bytes
        if self.found is not None or self.left <= 0 or self._pos >= stop:
            return False
        count = min(self.left, self._records_max)
        try:
            self._pos, unread, self.found = _walk(
                self._data, self._pos, stop, count, self._time_since, self._offset_since
            )
        except IndexError as error:
            raise ProtocolError("the records end too early") from error
        self.left -= count - unread
        return self.found is None and self.left > 0 and self._pos < stop

    def check_end(self) -> None:
        """Raise ProtocolError unless the records ended where the data did."""
        if self.left > 0 or self._pos != len(self._data):
            raise ProtocolError("the records are not as many, or not as long, as the header says")


def _walk(
    data: bytes, pos: int, stop: int, count: int, time_since: int, offset_since: int
) -> tuple[int, int, tuple[int, int] | None]:
    """Where the next record is, how many of ``count`` are left, and the deltas of the one that was looked for.

    Calls cost more than all the rest: varints of one or two bytes, nearly all, are read inline, and are not unfolded.
    Even numbers stand for twice their value, odd ones are negative.
    """
    time_least = max(2 * time_since, 0)
    for unread in range(count, 0, -1):
        if pos >= stop:
            return pos, unread, None
        length = data[pos]
        if length < 0x80:
            at = pos + 1
        elif data[pos + 1] < 0x80:
            length = length & 0x7F | data[pos + 1] << 7
            at = pos + 2
        else:
            length, at = read_varint(data, pos)
            length *= 2
        if length & 1 or length < _TWICE_RECORD_BYTES_MIN:
            raise ProtocolError("a record that is too short")
        pos = at + (length >> 1)
        time = data[at + 1]
        if time > 0x7F:
            time = time & 0x7F | data[at + 2] << 7 if data[at + 2] < 0x80 else time_least
        if time >= time_least:  # it may be late enough
            time, at = read_varlong(data, at + 1)
            if time >= time_since:
                offset = read_varint(data, at)[0]
                if offset >= offset_since:
                    return pos, unread - 1, (time, offset)
    return pos, 0, None
