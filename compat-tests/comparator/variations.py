"""One ordinary request, changed in one place at a time: the ends of each field's type, and what no field may hold.

Owns: which values are tried for which type, and the names of the changes (``topics[0].partitions[0].partition: -1``).
A change is a path and a value, so that it can be made to a request that was made anew, with other names in it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from comparator.encoding import Tree, field_value
from pybroker_protocol.schema import Array, Field, Fixed, Nested, Request, Struct, Variable, WireType, schema_of

UNKNOWN_ID = b"\x01" * 16
LONGEST_STRING = 0x7FFF  # bytes that a length of 16 bits can say; a compact length can say more
_INTEGER_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}

Path = tuple[str | int, ...]
Strings = Mapping[str, str]


class Change(NamedTuple):
    """What is put where; ``value`` makes the new value from the one that is there."""

    path: Path
    what: str
    value: Callable[[Tree], Tree]

    @property
    def place(self) -> str:
        """The path as notes and lists of exceptions spell it."""
        parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.path)
        return "".join(parts).removeprefix(".")

    @property
    def note(self) -> str:
        return f"{self.place}: {self.what}"

    def made_to(self, fields: Tree) -> Tree:
        """A copy of the request with this change."""
        changed = copy.deepcopy(fields)
        *parents, last = self.path
        holder = changed
        for part in parents:
            holder = holder[part] if isinstance(part, int) else holder.setdefault(part, {})
        holder[last] = self.value(holder[last] if isinstance(last, int) else holder.get(last))
        return changed


def changes(cls: type[Request], version: int, fields: Tree, of: str = "anybody") -> Iterator[Change]:
    """Every change to a request with these fields; of an array's elements the first one is changed.

    ``of`` goes into the names that are put there: what one kind of request creates under them, no other finds.
    """
    is_flexible = version in cls.__declaration__.flexible
    yield from _struct_changes(cls, version, strings_of(of, is_flexible), fields, ())


def strings_of(of: str, is_flexible: bool) -> dict[str, str]:
    """What is put in the place of strings."""
    longest = f"{of}-".ljust(LONGEST_STRING, "x")
    strings = {"empty": "", "unknown": f"nowhere-to-be-found-by-{of}", "longest": longest}
    return strings | {"too long": f"{longest}x"} if is_flexible else strings


def _struct_changes(cls: type[Struct], version: int, strings: Strings, fields: Tree, path: Path) -> Iterator[Change]:
    for field in schema_of(cls).fields:
        if version in field.versions:
            yield from _field_changes(field, version, strings, field_value(field, fields), (*path, field.name))


def _field_changes(field: Field, version: int, strings: Strings, value: Tree, path: Path) -> Iterator[Change]:
    null_is_encodable = not isinstance(field.type, Fixed) and (
        not isinstance(field.type, Nested) or version in field.nullable
    )
    if value is not None and null_is_encodable:
        yield Change(path, "null", lambda _: None)
    yield from _value_changes(field.type, version, strings, value, path)


def _value_changes(wire_type: WireType, version: int, strings: Strings, value: Tree, path: Path) -> Iterator[Change]:
    match wire_type:
        case Fixed():
            yield from _other_values(path, value, _ends(wire_type))
        case Variable("string"):
            yield from _other_values(path, value, strings)
        case Variable():
            yield from _other_values(path, value, {"empty": b""})
        case Nested() if value is not None:
            yield from _struct_changes(wire_type.struct, version, strings, value, path)
        case Array() if value:
            yield Change(path, "empty", lambda _: [])
            yield Change(path, "twice", lambda elements: elements + copy.deepcopy(elements))
            yield from _value_changes(wire_type.element, version, strings, value[0], (*path, 0))
        case Array():
            yield from _other_values(path, value, {"empty": []})


def _ends(wire_type: Fixed) -> dict[str, Tree]:
    """The values of a type of fixed size that stand at its ends, or stand for none or for anything."""
    if wire_type.name == "bool":
        return {"false": False, "true": True}
    if wire_type.name == "uuid":
        return {"zero": bytes(16), "unknown": UNKNOWN_ID}
    bits = _INTEGER_BITS.get(wire_type.name, 0)
    return {"0": 0, "-1": -1, "min": -(1 << bits - 1), "max": (1 << bits - 1) - 1} if bits else {}


def _other_values(path: Path, current: Tree, values: Mapping[str, Tree]) -> Iterator[Change]:
    for what, value in values.items():
        if value != current or type(value) is not type(current):
            yield Change(path, what, lambda _, value=value: value)  # type: ignore[misc]
