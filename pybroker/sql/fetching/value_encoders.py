"""Rows as values of Avro and Protobuf, by the schema of a declaration.

Owns the header of a schema registry, which a value has where the declaration says the schema's id.  The writing is
``pybroker.values``'.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pybroker.extras import how_to_install
from pybroker.sql.relations.catalog import Format, Relation
from pybroker.sql.relations.format_options import descriptors, registry_header
from pybroker.sql.sql_errors import SqlError


def value_encoder(relation: Relation) -> Callable[[dict[str, Any]], bytes]:
    """What writes rows of a relation; raises ``SqlError``, as the encoder does for a row that does not fit."""
    header = registry_header(relation.options)
    if header is True:
        raise SqlError(f"{relation.name} has a registry's header: registry_header=ID says which schema's is written")
    try:
        write, front = _writer(relation, header)
    except ModuleNotFoundError as error:
        raise SqlError(f"format {relation.format} needs {error.name}: {how_to_install('sql')}") from error

    def encode(row: dict[str, Any]) -> bytes:
        try:
            return front + write(row)
        except ValueError as error:
            raise SqlError(f"{relation.name}: {error}") from error

    return encode


def _writer(relation: Relation, header: bool | int) -> tuple[Callable[[dict[str, Any]], bytes], bytes]:
    """And what stands in front of each value."""
    from pybroker.values.registry_header import header_of

    if relation.format is Format.AVRO:
        from pybroker.values.avro_values import parsed
        from pybroker.values.avro_writing import Writer as AvroWriter

        front = b"" if header is False else header_of(header)
        return AvroWriter(json.dumps(parsed(relation.options["schema"]))), front
    from pybroker.values.protobuf_values import Definition, indexes_of
    from pybroker.values.protobuf_writing import Writer as ProtobufWriter

    definition = Definition((descriptors(relation.options["schema"]), relation.options["message"]))
    front = b"" if header is False else header_of(header, indexes_of(definition.descriptor()))
    return ProtobufWriter(definition), front
