"""Messages with random contents that are valid in a version.

The source of chance is a ``random.Random``, so that Hypothesis can drive it as well as a seed.
"""

from __future__ import annotations

from random import Random
from typing import Any, TypeVar

from pybroker_protocol.schema import Array, Field, Fixed, Nested, Struct, Variable, WireType, schema_of

StructT = TypeVar("StructT", bound=Struct)

INTEGER_RANGES = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
STRINGS = ("", "a", "grüße", "日本", "topic-1", "x" * 126, "x" * 127, "y" * 200)
ELEMENTS_MAX = 3


def random_message(random: Random, cls: type[StructT], version: int) -> StructT:
    """A struct whose fields are random where ``version`` has them, and at their default elsewhere."""
    return cls(**{f.name: _value(random, f, version) for f in schema_of(cls).fields if version in f.versions})


def _value(random: Random, field: Field, version: int) -> Any:
    if version in field.nullable and random.randrange(4) == 0:
        return None
    if field.is_tagged(version) and random.randrange(2) == 0 and field.default is not None:
        return [] if field.default == [] else field.default
    return _present(random, field.type, version)


def _present(random: Random, wire_type: WireType, version: int) -> Any:
    match wire_type:
        case Fixed(name):
            return _fixed(random, name)
        case Variable("string"):
            return STRINGS[random.randrange(len(STRINGS))]
        case Variable():
            return bytes([random.randrange(256)]) * (0, 1, 7, 127, 300)[random.randrange(5)]
        case Array(element):
            return [_present(random, element, version) for _ in range(random.randrange(ELEMENTS_MAX))]
        case Nested(struct):
            return random_message(random, struct, version)


def _fixed(random: Random, name: str) -> Any:
    match name:
        case "bool":
            return random.randrange(2) == 1
        case "uuid":
            return bytes([random.randrange(256)]) * 16
        case "float64":
            return random.randrange(-1000, 1000) / 8
    lowest, highest = INTEGER_RANGES[name]
    return (lowest, highest, 0, 1, -1 if lowest < 0 else 2, 100)[random.randrange(6)]
