"""Requests as bytes, naively: the declared schema walked once per request, with nothing compiled.

Owns: the encoding of a tree as a request of a version, also of a tree that no version can express: null is written
wherever the tree has None, and a string of any length that its length field can hold.  It shares the declarations with
pybroker's own codec and no code, so that a mistake there cannot hide here.

Kafka counterpart: the generated message classes' ``write``.
"""

from __future__ import annotations

import struct
from typing import Any

from pybroker_protocol.schema import Array, Field, Fixed, Nested, Request, Struct, Variable, WireType, schema_of

Tree = Any


def encode_request(cls: type[Request], version: int, fields: Tree) -> bytes:
    """The body; fields that are left out have their defaults, and those that the version lacks are dropped.

    ``ValueError`` for a name that the request does not have, or that one of its structs does not have.
    """
    return _struct(cls, version, version in cls.__declaration__.flexible, fields)


def field_value(field: Field, fields: Tree) -> Tree:
    """What the tree says of a field, or the field's default."""
    return fields[field.name] if field.name in fields else plain_default(field.default)


def plain_default(default: Any) -> Tree:
    """A default as a tree; a struct's stands for all of its fields' defaults."""
    return {} if isinstance(default, Struct) else default


def _struct(cls: type[Struct], version: int, flexible: bool, fields: Tree) -> bytes:
    declared = schema_of(cls).fields
    unknown = set(fields) - {field.name for field in declared}
    if unknown:
        names = sorted(field.name for field in declared)
        raise ValueError(f"{cls.__name__} has no {sorted(unknown)}; it has {names}")
    present = [field for field in declared if version in field.versions]
    encoded = b"".join(
        _field(field, version, flexible, field_value(field, fields))
        for field in present
        if not field.is_tagged(version)
    )
    return encoded + (_tagged_fields(present, version, fields) if flexible else b"")


def _tagged_fields(present: list[Field], version: int, fields: Tree) -> bytes:
    """The tagged fields that differ from their defaults, as Kafka's clients write them, behind their count."""
    chosen = [
        (field.tag, _field(field, version, True, fields[field.name]))
        for field in present
        if field.is_tagged(version) and fields.get(field.name, field.default) not in (field.default, {})
    ]
    encoded = [_varint(tag or 0) + _varint(len(value)) + value for tag, value in sorted(chosen)]
    return _varint(len(encoded)) + b"".join(encoded)


def _field(field: Field, version: int, flexible: bool, value: Tree) -> bytes:
    if isinstance(field.type, Nested) and version in field.nullable:
        # A byte stands before a struct that may be null.
        return b"\xff" if value is None else b"\x01" + _value(field.type, version, flexible, value)
    return _value(field.type, version, flexible and version in field.flexible, value)


def _value(wire_type: WireType, version: int, flexible: bool, value: Tree) -> bytes:
    match wire_type:
        case Fixed():
            return struct.pack(">" + wire_type.format, value)
        case Nested():
            return _struct(wire_type.struct, version, flexible, value)
        case Variable():
            content = value.encode() if isinstance(value, str) else value
            return _measured(wire_type, flexible, None if value is None else len(content)) + (content or b"")
        case Array():
            elements = [_value(wire_type.element, version, flexible, element) for element in value or ()]
            return _measured(wire_type, flexible, None if value is None else len(value)) + b"".join(elements)


def _measured(wire_type: Variable | Array, flexible: bool, length: int | None) -> bytes:
    """The length or count in front; null is zero where lengths are compact, and -1 where they are not."""
    if flexible:
        return _varint(0 if length is None else length + 1)
    is_string = isinstance(wire_type, Variable) and wire_type.name == "string"
    return struct.pack(">h" if is_string else ">i", -1 if length is None else length)


def _varint(value: int) -> bytes:
    """Seven bits to a byte, lowest first."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
