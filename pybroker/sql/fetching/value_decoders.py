"""Values of Avro and Protobuf as columns, by a schema that lies in a file.

Owns the options of a declaration: ``schema``, ``message``, ``registry_header``.  The reading is ``pybroker.values``'.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from pybroker.sql.fetching.short_queries import ValueDecoder, connection_values
from pybroker.sql.relations.catalog import Column, Format, Relation
from pybroker.sql.relations.format_options import (
    descriptors,
    header_read,
    missing_library,
    registry_header,
    registry_of,
)
from pybroker.sql.sql_errors import SqlError
from pybroker.values.registry_header import Header
from pybroker.values.schema_registry import RegistryAway, SchemaRegistry

# The only column of values that have no fields.
_VALUE = "value"
# Of a schema that stands in its declaration.
_SHOWN_MAX = 80


def schema_columns(relation: Relation) -> tuple[Column, ...]:
    """The columns of a relation's schema, with the types that DuckDB has for them; raises ``SqlError``."""
    _, kind = _reading(relation)
    empty = pa.Table.from_arrays([pa.array([], field.type) for field in kind], names=[field.name for field in kind])
    rows = connection_values("SELECT column_name, column_type FROM (DESCRIBE t)", t=empty)
    return tuple(Column(name, text, name) for name, text in rows)


def value_decoder(relation: Relation, columns: Sequence[Column]) -> ValueDecoder:
    """What decodes the values of a relation of Avro or Protobuf; raises ``SqlError`` for a schema that is none."""
    from pybroker.values.arrow_values import read_values

    read, kind = _reading(relation)

    def decode(values: pa.Array) -> tuple[list[pa.Array], pa.Array]:
        try:
            found, reasons = read_values(read, values, kind)
        except RegistryAway as error:
            raise SqlError(f"{relation.name}: {error}") from error
        # Flattened, so that a null value has null fields.
        fields = found.flatten()
        return [fields[kind.get_field_index(column.field)] for column in columns], reasons

    return decode


def _reading(relation: Relation) -> tuple[Callable[[bytes], Any], pa.StructType]:
    schema = relation.options.get("schema")
    if schema is None:
        raise SqlError(f"{relation.name}: format {relation.format} needs schema='FILE'")
    try:
        if relation.format is Format.AVRO:
            return _avro(schema, registry_header(relation.options), registry_of(relation.options))
        message = relation.options.get("message")
        if message is None:
            raise SqlError(f"{relation.name}: format protobuf needs message='NAME', by its full name")
        return _protobuf(schema, message, header_read(relation.options))
    except ModuleNotFoundError as error:
        raise missing_library(relation.format, error) from error
    except (ValueError, OSError) as error:
        raise SqlError(f"{relation.name}: schema {schema[:_SHOWN_MAX]}: {error}") from error


def _avro(
    schema: str, header: Header | None, registry: SchemaRegistry | None
) -> tuple[Callable[[bytes], Any], pa.StructType]:
    from pybroker.values.avro_values import Reader, arrow_type, parsed

    written = parsed(schema)
    read = Reader(json.dumps(written), None, header, registry)
    kind = arrow_type(written)
    if pa.types.is_struct(kind):
        return read, kind
    return lambda value: {_VALUE: read(value)}, pa.struct([(_VALUE, kind)])


def _protobuf(schema: str, message: str, header: Header | None) -> tuple[Callable[[bytes], Any], pa.StructType]:
    from google.protobuf.message import DecodeError

    from pybroker.values.protobuf_values import Definition, Reader, arrow_type

    try:
        definition = Definition((descriptors(schema), message))
        return Reader(definition, header), arrow_type(definition.descriptor())
    except (DecodeError, TypeError) as error:
        raise ValueError("is no file of descriptors; protoc --include_imports -o FILE makes one") from error
