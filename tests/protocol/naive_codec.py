"""The encoding of messages interpreted field by field, as slowly and plainly as possible.

An oracle for the compiled codec: it shares the declarations with it, and nothing else.
"""

from __future__ import annotations

import struct
from typing import Any, TypeVar

from pybroker_protocol.schema import Array, Field, Fixed, Message, Nested, Struct, Variable, WireType, schema_of

StructT = TypeVar("StructT", bound=Struct)


def naive_encode(message: Message, version: int) -> bytes:
    """The bytes of a message in a version."""
    return _Writer(version, version in type(message).__declaration__.flexible).struct(message)


def naive_decode(cls: type[StructT], version: int, data: bytes) -> StructT:
    """The message that ``data`` holds; tagged fields that are not declared are dropped."""
    reader = _Reader(data, version, version in cls.__declaration__.flexible)
    message = reader.struct(cls)
    assert reader.pos == len(data)
    return message


def _uvarint(value: int) -> bytes:
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + _uvarint(rest) if rest else bytes([low])


class _Writer:
    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible

    def struct(self, value: Struct) -> bytes:
        parts, tagged = [], {}
        for field in schema_of(type(value)).fields:
            content = getattr(value, field.name)
            if self.version not in field.versions:
                continue
            if self.version in field.tagged:
                if content != field.default:
                    tagged[field.tag or 0] = self.field(field, content)
            else:
                parts.append(self.field(field, content))
        if self.flexible:
            parts.append(_uvarint(len(tagged)))
            for tag in sorted(tagged):
                parts.append(_uvarint(tag) + _uvarint(len(tagged[tag])) + tagged[tag])
        return b"".join(parts)

    def field(self, field: Field, content: Any) -> bytes:
        flexible = self.flexible and self.version in field.flexible
        if isinstance(field.type, Nested) and self.version in field.nullable:
            # The presence of a struct is an int8, but an unsigned varint in a tagged field.
            null = b"\x00" if self.version in field.tagged else b"\xff"
            return null if content is None else b"\x01" + self.struct(content)
        return self.value(field.type, content, flexible)

    def value(self, wire_type: WireType, content: Any, flexible: bool) -> bytes:
        match wire_type:
            case Fixed():
                return struct.pack(">" + wire_type.format, content)
            case Nested():
                return self.struct(content)
            case Variable("string"):
                data = None if content is None else content.encode()
                return self.length(data, ">h", flexible) + (data or b"")
            case Variable():
                return self.length(content, ">i", flexible) + bytes(content or b"")
            case Array(element):
                elements = [self.value(element, item, flexible) for item in content or ()]
                return self.length(content, ">i", flexible) + b"".join(elements)

    def length(self, content: Any, form: str, flexible: bool) -> bytes:
        if flexible:
            return _uvarint(0 if content is None else len(content) + 1)
        return struct.pack(form, -1 if content is None else len(content))


class _Reader:
    def __init__(self, data: bytes, version: int, flexible: bool) -> None:
        self.data = data
        self.pos = 0
        self.version = version
        self.flexible = flexible

    def take(self, size: int) -> bytes:
        assert 0 <= size <= len(self.data) - self.pos
        self.pos += size
        return self.data[self.pos - size : self.pos]

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def struct(self, cls: type[StructT]) -> StructT:
        fields = schema_of(cls).fields
        values = {field.name: field.default for field in fields}
        tagged = {}
        for field in fields:
            if self.version in field.tagged:
                tagged[field.tag] = field
            elif self.version in field.versions:
                values[field.name] = self.field(field)
        if self.flexible:
            for _ in range(self.uvarint()):
                tag, size = self.uvarint(), self.uvarint()
                end = self.pos + size
                if tag in tagged:
                    values[tagged[tag].name] = self.field(tagged[tag])
                else:
                    self.take(size)
                assert self.pos == end
        return cls(**values)

    def field(self, field: Field) -> Any:
        flexible = self.flexible and self.version in field.flexible
        if isinstance(field.type, Nested) and self.version in field.nullable:
            present = self.take(1)
            null = b"\x00" if self.version in field.tagged else b"\xff"
            return None if present == null else self.struct(field.type.struct)
        return self.value(field.type, flexible)

    def value(self, wire_type: WireType, flexible: bool) -> Any:
        match wire_type:
            case Fixed():
                return struct.unpack(">" + wire_type.format, self.take(wire_type.size))[0]
            case Nested(cls):
                return self.struct(cls)
            case Variable("string"):
                length = self.length(">h", flexible)
                return None if length < 0 else self.take(length).decode()
            case Variable():
                length = self.length(">i", flexible)
                return None if length < 0 else self.take(length)
            case Array(element):
                length = self.length(">i", flexible)
                return None if length < 0 else [self.value(element, flexible) for _ in range(length)]

    def length(self, form: str, flexible: bool) -> int:
        if flexible:
            return self.uvarint() - 1
        length: int = struct.unpack(form, self.take(struct.calcsize(form)))[0]
        return length
