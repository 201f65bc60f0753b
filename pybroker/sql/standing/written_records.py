"""What a row of a standing query is as a record: its key as text, and its value as JSON, Avro or Protobuf.

A key of one column is its text, and a key of several a JSON object.  The value has all columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import AtomicType, StructType

from pybroker.pipeline.converters.avro import spark_type as avro_type
from pybroker.pipeline.converters.avro import to_avro
from pybroker.pipeline.converters.protobuf import spark_type as protobuf_type
from pybroker.pipeline.converters.protobuf import to_protobuf
from pybroker.sql.relations.catalog import Format
from pybroker.sql.relations.format_options import descriptors
from pybroker.sql.standing.standing_plans import WrittenValue
from pybroker.values.avro_values import parsed
from pybroker.values.protobuf_values import Definition

_OPTIONS: Final = {"timestampFormat": "yyyy-MM-dd HH:mm:ss.SSS", "ignoreNullFields": "false"}


def records_of(rows: DataFrame, key: tuple[str, ...], written: WrittenValue) -> DataFrame:
    """Rows as records; without key columns the key is null.  Raises ValueError for what the schema does not take."""
    columns = {name: F.col(f"`{name}`") for name in rows.columns}
    own_key = key_of({name: columns[name] for name in key})
    return rows.select(own_key.alias("key"), value_of(columns, key, written).alias("value"))


def key_of(columns: Mapping[str, Column]) -> Column:
    """The key of a record, of a row's columns by their names."""
    if not columns:
        return F.lit(None).cast("string")
    if len(columns) == 1:
        return next(iter(columns.values())).cast("string")
    return F.to_json(F.struct(*(column.alias(name) for name, column in columns.items())), _OPTIONS)


def value_of(
    columns: Mapping[str, Column], key: tuple[str, ...], written: WrittenValue, *, is_there: Column | None = None
) -> Column:
    """The value of a record, of a row's columns by their names; ValueError for what the schema does not take.

    By a schema its names and plain types count, and a column of the key need not be among its fields.  ``is_there``:
    where it does not hold the value is null.  Encoders are called for every row, whatever CASE stands around them.
    """

    def row(fields: list[Column]) -> Column:
        found = F.struct(*fields)
        return found if is_there is None else F.when(is_there, found)

    if written.format is Format.JSON:
        return F.to_json(row([column.alias(name) for name, column in columns.items()]), _OPTIONS)
    schema = written.options["schema"]
    if written.format is Format.AVRO:
        kind, encoder = avro_type(parsed(schema)), to_avro(schema)
    else:
        source = (descriptors(schema), written.options["message"])
        kind, encoder = protobuf_type(Definition(source).descriptor()), to_protobuf(source)
    if not isinstance(kind, StructType):
        raise ValueError(f"a row is no value of a schema of {kind.simpleString()}")
    fields = {each.name.lower(): each for each in kind.fields}
    found = []
    for name, column in columns.items():
        field = fields.get(name.lower())
        if field is None and name not in key:
            raise ValueError(f"the schema has no field {name}: it has {', '.join(kind.names)}")
        if field is not None:
            is_plain = isinstance(field.dataType, AtomicType)
            found.append((column.cast(field.dataType) if is_plain else column).alias(field.name))
    return encoder(row(found))
