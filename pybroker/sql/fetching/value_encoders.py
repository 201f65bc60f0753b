"""Rows as values of Avro and Protobuf, by the schema of a declaration.

Owns that a value has a schema registry's header where the declaration says so.  The writing is ``pybroker.values``'.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pybroker.sql.relations.catalog import Format, Relation
from pybroker.sql.relations.format_options import descriptors, header_written, missing_library
from pybroker.sql.sql_errors import SqlError


def value_encoder(relation: Relation) -> Callable[[dict[str, Any]], bytes]:
    """What writes rows of a relation; raises ``SqlError``, as the encoder does for a row that does not fit."""
    try:
        write, front = _writer(relation)
    except ModuleNotFoundError as error:
        raise missing_library(relation.format, error) from error

    def encode(row: dict[str, Any]) -> bytes:
        try:
            return front + write(row)
        except ValueError as error:
            raise SqlError(f"{relation.name}: {error}") from error

    return encode


def _writer(relation: Relation) -> tuple[Callable[[dict[str, Any]], bytes], bytes]:
    """And what stands in front of each value."""
    if relation.format is Format.AVRO:
        from pybroker.values.avro_values import parsed
        from pybroker.values.avro_writing import Writer as AvroWriter

        return AvroWriter(json.dumps(parsed(relation.options["schema"]))), header_written(relation.options)
    from pybroker.values.protobuf_values import Definition, indexes_of
    from pybroker.values.protobuf_writing import Writer as ProtobufWriter

    definition = Definition((descriptors(relation.options["schema"]), relation.options["message"]))
    return ProtobufWriter(definition), header_written(relation.options, indexes_of(definition.descriptor()))
