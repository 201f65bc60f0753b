"""What a version's encoding looks like, without encoding anything."""

from functools import cache
from struct import Struct as Format

from pybroker_protocol.schema import Array, Fixed, Nested, Struct, Variable, WireType, schema_of

# Lists of fewer numbers than this (replicas, mostly) have formats made beforehand.
SHORT_ARRAY = 9


@cache
def short_array_formats(element: str, count: str = "") -> tuple[Format, ...]:
    """The formats of lists of 0, 1, 2... elements, behind a count of format ``count`` if given."""
    return tuple(Format(f">{count}{elements}{element}") for elements in range(SHORT_ARRAY))


def contains_records(cls: type[Struct], version: int) -> bool:
    """Whether the struct has a ``records`` field anywhere in that version."""
    return any(_is_records(field.type, version) for field in schema_of(cls).fields if version in field.versions)


def _is_records(wire_type: WireType, version: int) -> bool:
    match wire_type:
        case Variable(name):
            return name == "records"
        case Array(element):
            return _is_records(element, version)
        case Nested(struct):
            return contains_records(struct, version)
        case _:
            return False


def least_size(wire_type: WireType, version: int, flexible: bool) -> int:
    """The fewest bytes that a value takes, null values and structs of defaults included; at least one.

    A decoder that knows it can refuse a count that the rest of its frame cannot hold.
    """
    match wire_type:
        case Fixed():
            return wire_type.size
        case Variable(name):
            return 1 if flexible else 2 if name == "string" else 4
        case Array():
            return 1 if flexible else 4
        case Nested(struct):
            return max(1, _least_struct_size(struct, version, flexible))


def _least_struct_size(struct: type[Struct], version: int, flexible: bool) -> int:
    size = 1 if flexible else 0  # the count of tagged fields
    for field in schema_of(struct).fields:
        if version in field.versions and not field.is_tagged(version):
            nullable_struct = isinstance(field.type, Nested) and version in field.nullable
            size += 1 if nullable_struct else least_size(field.type, version, flexible and version in field.flexible)
    return size
