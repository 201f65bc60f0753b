"""Descriptors of Protobuf for columns of Arrow: a message that `protobuf_values` reads back with the same names.

Owns which type of Protobuf's a type of Arrow's is.  Fields are ``optional``, so that null can be told from 0, but for
lists and maps, which Protobuf has no null for: a null list is an empty one.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
from google.protobuf import descriptor_pb2, timestamp_pb2

from pybroker.values.avro_schemas import checked_name, free_name, name_of_record

_Field = descriptor_pb2.FieldDescriptorProto
_PRIMITIVES: Final[dict[pa.DataType, Any]] = {
    pa.bool_(): _Field.TYPE_BOOL,
    **dict.fromkeys((pa.int8(), pa.int16(), pa.int32()), _Field.TYPE_INT32),
    **dict.fromkeys((pa.int64(), pa.uint8(), pa.uint16(), pa.uint32()), _Field.TYPE_INT64),
    pa.uint64(): _Field.TYPE_UINT64,
    pa.float32(): _Field.TYPE_FLOAT,
    pa.float64(): _Field.TYPE_DOUBLE,
    pa.string(): _Field.TYPE_STRING,
    pa.binary(): _Field.TYPE_BYTES,
}
_TIMESTAMP: Final = ".google.protobuf.Timestamp"
_OF_KEYS: Final = frozenset(
    (_Field.TYPE_BOOL, _Field.TYPE_INT32, _Field.TYPE_INT64, _Field.TYPE_UINT64, _Field.TYPE_STRING)
)


def protobuf_schema(columns: pa.Schema, name: str) -> tuple[bytes, str]:
    """Descriptors of a message with a field per column, as protoc writes them, and the message's full name.

    Raises ValueError for a column that Protobuf has no type for.
    """
    found = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(found.file.add())
    message = name_of_record(name)
    made = found.file.add(name=f"{message}.proto", syntax="proto3", dependency=[found.file[0].name])
    _fill(made.message_type.add(name=message), list(columns), f".{message}")
    return found.SerializeToString(deterministic=True), message


def _fill(message: Any, columns: list[pa.Field], path: str) -> None:
    taken = {column.name for column in columns}  # fields, messages and choices share their names
    for number, column in enumerate(columns, 1):
        field = message.field.add(name=checked_name(column.name), number=number, label=_Field.LABEL_OPTIONAL)
        kind = column.type
        if pa.types.is_map(kind):
            _fill_map(message, field, column, path, taken)
        elif pa.types.is_list(kind):
            field.label = _Field.LABEL_REPEATED
            _fill_type(message, field, kind.value_type, path, taken)
        else:
            _fill_type(message, field, kind, path, taken)
            # How descriptors say ``optional``: each such field is the only one of a choice.
            field.proto3_optional = True
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=free_name(f"_{column.name}", taken))


def _fill_type(message: Any, field: Any, kind: pa.DataType, path: str, taken: set[str]) -> None:
    if pa.types.is_timestamp(kind):
        field.type, field.type_name = _Field.TYPE_MESSAGE, _TIMESTAMP
    elif pa.types.is_struct(kind):
        inner = message.nested_type.add(name=free_name(f"{field.name}_struct", taken))
        field.type, field.type_name = _Field.TYPE_MESSAGE, f"{path}.{inner.name}"
        _fill(inner, list(kind), field.type_name)
    elif kind in _PRIMITIVES:
        field.type = _PRIMITIVES[kind]
    else:
        raise ValueError(f"{field.name}: Protobuf has no type for {kind}; CAST it to another one")


def _fill_map(message: Any, field: Any, column: pa.Field, path: str, taken: set[str]) -> None:
    # protoc's own name of such a message, which readers derive from the field's.
    name = "".join(part[:1].upper() + part[1:] for part in column.name.split("_")) + "Entry"
    taken.add(name)
    entry = message.nested_type.add(name=name)
    entry.options.map_entry = True
    for number, (part, kind) in enumerate((("key", column.type.key_type), ("value", column.type.item_type)), 1):
        inner = entry.field.add(name=part, number=number, label=_Field.LABEL_OPTIONAL)
        _fill_type(entry, inner, kind, f"{path}.{name}", {"key", "value"})
    if entry.field[0].type not in _OF_KEYS:
        raise ValueError(f"{column.name}: Protobuf has no keys of {column.type.key_type}; CAST them to another type")
    field.label, field.type, field.type_name = _Field.LABEL_REPEATED, _Field.TYPE_MESSAGE, f"{path}.{name}"
