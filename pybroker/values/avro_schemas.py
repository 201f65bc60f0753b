"""Schemas of Avro for columns of Arrow: what `avro_values` reads back with the same names.

Owns which type of Avro's a type of Arrow's is.  Each field may be null, and is null where a later version leaves it
out, so that a column that is added breaks no reader.
"""

from __future__ import annotations

import re
from typing import Any, Final

import pyarrow as pa

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FULL_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_PRIMITIVES: Final[dict[pa.DataType, Any]] = {
    pa.bool_(): "boolean",
    **dict.fromkeys((pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16()), "int"),
    **dict.fromkeys((pa.int64(), pa.uint32()), "long"),
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
    pa.uint64(): {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 0},
}
_TIMESTAMP: Final = {"type": "long", "logicalType": "timestamp-micros"}


def checked_name(name: str) -> str:
    """A field's name; raises ValueError for one that schemas do not take."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a field, which has letters, digits and _")
    return name


def name_of_record(text: str) -> str:
    """A name for a record or a message, as near to ``text`` as it can be."""
    found = re.sub(r"[^A-Za-z0-9_]", "_", text)
    return f"_{found}" if found[:1].isdigit() else found


def avro_schema(columns: pa.Schema, name: str, full_name: str | None = None) -> dict[str, Any]:
    """The schema of a record with a field per column, whose name is near to ``name``, or is the ``full_name``.

    Raises ValueError for a column that Avro has no type for, and for a full name that is none.
    """
    if full_name is not None and not _FULL_NAME.fullmatch(full_name):
        raise ValueError(f"{full_name!r} is no full name of a schema, which has names with points between")
    return _record(list(columns), full_name or name_of_record(name), set())


def free_name(name: str, taken: set[str]) -> str:
    """A name that is not taken, as near to ``name`` as it can be; it is taken then."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _record(fields: list[pa.Field], name: str, taken: set[str]) -> dict[str, Any]:
    """``taken`` are the names of the schema's records, each of which there is once."""
    name = free_name(name, taken)
    made = [
        {"name": checked_name(each.name), "type": ["null", _type(each, f"{name}_{each.name}", taken)], "default": None}
        for each in fields
    ]
    return {"type": "record", "name": name, "fields": made}


def _type(field: pa.Field, name: str, taken: set[str]) -> Any:
    kind = field.type
    if pa.types.is_timestamp(kind):
        return _TIMESTAMP
    if pa.types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if pa.types.is_struct(kind):
        return _record(list(kind), name, taken)
    if pa.types.is_list(kind):
        return {"type": "array", "items": ["null", _type(kind.value_field.with_name(field.name), name, taken)]}
    if pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        return {"type": "map", "values": ["null", _type(kind.item_field.with_name(field.name), name, taken)]}
    found = _PRIMITIVES.get(kind)
    if found is None:
        raise ValueError(f"{field.name}: Avro has no type for {kind}; CAST it to another one")
    return found
