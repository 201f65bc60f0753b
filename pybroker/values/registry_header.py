"""What serializers of a schema registry put in front of a value: a zero byte, and the schema's id in four bytes.

With Protobuf comes which of the schema's messages it is: how many indexes, and those, as zigzag varints.  A zero alone
stands for the first message.

Owns what a value's header has to be: a `Header`, or None for values without one.
"""

from __future__ import annotations

from dataclasses import dataclass

HEADER_BYTES = 5

_MAGIC = b"\0"
_ID_MAX = 2**31 - 1
_VARINT_BYTES_MAX = 5
_INDEXES_MAX = 100


@dataclass(frozen=True, slots=True)
class Header:
    """What values have in front: the header of the schema of this id, or that of any one."""

    schema_id: int | None = None

    @property
    def front(self) -> bytes:
        """How each of them begins; raises ValueError for what can be no id."""
        return _MAGIC if self.schema_id is None else header_of(self.schema_id)


def header_wanted(registry_header: bool | int) -> Header | None:
    """The header of an option: that of an id, any one for True, none for False; raises ValueError for no id."""
    if isinstance(registry_header, bool):
        return Header() if registry_header else None
    return Header(_checked(registry_header))


def header_of(schema_id: int, indexes: tuple[int, ...] = ()) -> bytes:
    """What stands in front of a value, and of a message with which one it is; raises ValueError for no id."""
    front = _MAGIC + _checked(schema_id).to_bytes(HEADER_BYTES - 1, "big")
    if not indexes:
        return front
    return front + (b"\0" if indexes == (0,) else b"".join(map(_varint, (len(indexes), *indexes))))


def without_header(value: bytes, expected: Header) -> bytes:
    """The value behind its header; raises ValueError where that is another one than what is ``expected``."""
    found, behind = parted(value)
    if expected.schema_id not in (None, found):
        raise ValueError(f"schema {found} of the registry, expected {expected.schema_id}")
    return behind


def parted(value: bytes) -> tuple[int, bytes]:
    """The id in a value's header, and what is behind that; raises ValueError for a value without one."""
    if value[:1] != _MAGIC or len(value) < HEADER_BYTES:
        raise ValueError("does not begin as a schema registry's serializers have it")
    return int.from_bytes(value[1:HEADER_BYTES], "big"), value[HEADER_BYTES:]


def without_indexes(value: bytes, expected: tuple[int, ...]) -> bytes:
    """The message behind its indexes; raises ValueError where they are of another one than ``expected``."""
    count, at = _zigzag(value, 0)
    if not 0 <= count <= _INDEXES_MAX:
        raise ValueError(f"{count} message indexes")
    indexes = []
    for _ in range(count):
        index, at = _zigzag(value, at)
        indexes.append(index)
    if (found := tuple(indexes) or (0,)) != expected:
        raise ValueError(f"message {_shown(found)} of its schema, expected {_shown(expected)}")
    return value[at:]


def _checked(schema_id: int) -> int:
    if not 0 <= schema_id <= _ID_MAX:
        raise ValueError(f"no id of a schema registry: {schema_id}")
    return schema_id


def _varint(number: int) -> bytes:
    """A number from 0 on, as zigzag has it."""
    left, found = number << 1, bytearray()
    while left >= 0x80:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


def _zigzag(value: bytes, at: int) -> tuple[int, int]:
    """The number that begins at ``at``, and where it ends."""
    found = 0
    for i, byte in enumerate(value[at : at + _VARINT_BYTES_MAX]):
        found |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1), at + i + 1
    raise ValueError("ends within its message indexes")


def _shown(indexes: tuple[int, ...]) -> str:
    return ".".join(map(str, indexes))
