"""Variable-length numbers, and tagged fields that are not known.

Owns: the unsigned varints of flexible versions and the zigzag varints of records. Readers take any byte buffer and a
position and return the value and the position behind it. They raise ``ProtocolError`` where the bytes end too early, a
number is too long, or a length points behind the end.

Kafka counterpart: org.apache.kafka.common.utils.ByteUtils.
"""

from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.schema import Buffer

# As Kafka 4.4 does for requests: nobody sends so many, and each costs time even when it is skipped.
TAGGED_FIELDS_MAX = 10_000

STRING_BYTES_MAX = 0x7FFF
_INT32_MAX = 0x7FFF_FFFF


def read_uvarint(data: Buffer, pos: int) -> tuple[int, int]:
    """Read an unsigned varint of at most 31 bits (lengths, counts and tags have no more)."""
    try:
        first = data[pos]
    except IndexError:
        raise ProtocolError("the data ends inside of a varint") from None
    pos += 1
    return (first, pos) if first < 0x80 else continue_uvarint(data, pos, first)


def continue_uvarint(data: Buffer, pos: int, first: int) -> tuple[int, int]:
    """Read the rest of an unsigned varint, of which ``first``, a byte with the high bit, was read."""
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        try:
            byte = data[pos]
        except IndexError:
            raise ProtocolError("the data ends inside of a varint") from None
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > _INT32_MAX:
                break
            return value, pos
    raise ProtocolError("a varint is too long")


def continue_string_length(data: Buffer, pos: int, first: int) -> tuple[int, int]:
    """``continue_uvarint`` for the length (plus one) of a string, which is an int16 in all but its encoding."""
    value, pos = continue_uvarint(data, pos, first)
    if value > STRING_BYTES_MAX + 1:
        raise ProtocolError(f"a string of {value - 1} bytes")
    return value, pos


def uvarint(value: int) -> bytes:
    """Encode an unsigned varint; ValueError for a negative value."""
    if value < 0:
        raise ValueError(f"{value} is negative")
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def string_length(length: int) -> bytes:
    """Encode the length (plus one) of a string; ValueError if the string is too long."""
    if length > STRING_BYTES_MAX + 1:
        raise ValueError(f"a string of {length - 1} bytes is too long")
    return uvarint(length)


def read_varint(data: Buffer, pos: int) -> tuple[int, int]:
    """Read a zigzag varint of at most 32 bits."""
    return _read_zigzag(data, pos, 5, 0xFFFF_FFFF)


def read_varlong(data: Buffer, pos: int) -> tuple[int, int]:
    """Read a zigzag varint of at most 64 bits."""
    return _read_zigzag(data, pos, 10, 0xFFFF_FFFF_FFFF_FFFF)


def _read_zigzag(data: Buffer, pos: int, bytes_max: int, value_max: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 7 * bytes_max, 7):
        try:
            byte = data[pos]
        except IndexError:
            raise ProtocolError("the data ends inside of a varint") from None
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > value_max:
                break
            return (value >> 1) ^ -(value & 1), pos
    raise ProtocolError("a varint is too long")


def varint(value: int) -> bytes:
    """Encode a zigzag varint of up to 64 bits."""
    return uvarint(value << 1 if value >= 0 else (-value << 1) - 1)


def skip_tagged_fields(data: Buffer, pos: int) -> int:
    """Skip a tagged-fields section (its count included); return the position behind it."""
    count, pos = read_uvarint(data, pos)
    return skip_counted_tagged_fields(data, pos, count, TAGGED_FIELDS_MAX)


def skip_counted_tagged_fields(data: Buffer, pos: int, count: int, count_max: int) -> int:
    """Skip ``count`` tagged fields; return the position behind them."""
    if count > count_max:
        raise ProtocolError(f"{count} tagged fields")
    for _ in range(count):
        _, pos = read_uvarint(data, pos)
        length, pos = read_uvarint(data, pos)
        pos += length
        if pos > len(data):
            raise ProtocolError("the data ends inside of a tagged field")
    return pos
