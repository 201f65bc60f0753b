"""A schema of Avro or Protobuf that is made of a relation's columns, where none is given.

Owns which columns of DuckDB's it is made of; the schema itself is ``pybroker.values``'.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Final

from pybroker.sql.fetching.relation_decoding import quoted
from pybroker.sql.fetching.short_queries import connection_schema
from pybroker.sql.relations.catalog import Format, Relation
from pybroker.sql.relations.format_options import DESCRIPTORS, FULL_NAME

# DuckDB sums to this, and Spark to a BIGINT.
_HUGE: Final = re.compile(r"\bHUGEINT\b")


def made_schema(relation: Relation) -> dict[str, str]:
    """The options of a schema for the columns of the value; ValueError for one that the format has no type for."""
    kinds = ((each.name, _HUGE.sub("BIGINT", each.type)) for each in relation.columns if not each.is_key)
    chosen = ", ".join(f"CAST(NULL AS {kind}) AS {quoted(name)}" for name, kind in kinds)
    columns = connection_schema(f"SELECT {chosen} WHERE false")
    if relation.format is Format.AVRO:
        from pybroker.values.avro_schemas import avro_schema

        schema = avro_schema(columns, relation.name, relation.options.get(FULL_NAME))
        return {"schema": json.dumps(schema, separators=(",", ":"))}
    from pybroker.values.protobuf_schemas import protobuf_schema

    files, message = protobuf_schema(columns, relation.name)
    return {"schema": DESCRIPTORS + base64.b64encode(files).decode(), "message": message}
