"""What a row of a standing query is as a record: its key as text, and its value as JSON, Avro or Protobuf.

A key of one column is its text, and a key of several a JSON object.  The value has all columns.  In JSON a timestamp is
as a question shows it: with milliseconds, or with microseconds where it has some.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, AtomicType, DataType, MapType, StructType, TimestampNTZType, TimestampType

from pybroker.pipeline.converters.avro import spark_type as avro_type
from pybroker.pipeline.converters.avro import to_avro
from pybroker.pipeline.converters.protobuf import spark_type as protobuf_type
from pybroker.pipeline.converters.protobuf import to_protobuf
from pybroker.pipeline.spark_names import spark_name
from pybroker.sql.relations.catalog import Format
from pybroker.sql.relations.format_options import descriptors, header_written
from pybroker.sql.standing.standing_plans import RECORD_TIME, WrittenValue
from pybroker.values.avro_values import parsed
from pybroker.values.protobuf_values import Definition, indexes_of

_OPTIONS: Final = {"ignoreNullFields": "false"}
_SECONDS: Final = "yyyy-MM-dd HH:mm:ss"
_TIMES: Final = (TimestampType, TimestampNTZType)


def records_of(rows: DataFrame, key: tuple[str, ...], written: WrittenValue) -> DataFrame:
    """Rows as records; without key columns the key is null.  Raises ValueError for what the schema does not take.

    A row that has a time is written with it, unless brokers refuse it: a time before 1970, or to come.
    """
    columns = {name: F.col(spark_name(name)) for name in rows.columns}
    time = columns.pop(RECORD_TIME, None)
    own_key = key_of({name: columns[name] for name in key}, rows.schema)
    found = [own_key.alias("key"), value_of(columns, rows.schema, key, written).alias("value")]
    if time is not None:
        found.append(F.when(time.between(F.timestamp_millis(F.lit(0)), F.current_timestamp()), time).alias("timestamp"))
    return rows.select(*found)


def key_of(columns: Mapping[str, Column], kinds: StructType) -> Column:
    """The key of a record, of a row's columns by their names; ``kinds`` has their types."""
    if not columns:
        return F.lit(None).cast("string")
    if len(columns) == 1:
        return next(iter(columns.values())).cast("string")
    return F.to_json(F.struct(*_shown(columns, kinds)), _OPTIONS)


def _shown(columns: Mapping[str, Column], kinds: StructType) -> list[Column]:
    return [_times_as_text(column, kinds[name].dataType).alias(name) for name, column in columns.items()]


def _times_as_text(value: Column, kind: DataType) -> Column:
    """The value, where the timestamps in it are texts."""
    if not _has_times(kind):
        return value
    if isinstance(kind, StructType):
        fields = (_times_as_text(value.getField(each.name), each.dataType).alias(each.name) for each in kind.fields)
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(kind, ArrayType):
        return F.transform(value, lambda each: _times_as_text(each, kind.elementType))
    if isinstance(kind, MapType):
        return F.transform_values(value, lambda _, each: _times_as_text(each, kind.valueType))
    time = value.cast("timestamp")
    is_short = F.unix_micros(time) % 1_000 == 0
    texts = (F.date_format(time, f"{_SECONDS}.{digits}") for digits in ("SSS", "SSSSSS"))
    return F.when(is_short, next(texts)).otherwise(next(texts))


def _has_times(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_has_times(each.dataType) for each in kind.fields)
    if isinstance(kind, ArrayType):
        return _has_times(kind.elementType)
    return _has_times(kind.valueType) if isinstance(kind, MapType) else isinstance(kind, _TIMES)


def value_of(
    columns: Mapping[str, Column],
    kinds: StructType,
    key: tuple[str, ...],
    written: WrittenValue,
    *,
    is_there: Column | None = None,
) -> Column:
    """The value of a record, of a row's columns by their names; ValueError for what the schema does not take.

    By a schema its names and plain types count, and a column of the key need not be among its fields.  ``is_there``:
    where it does not hold the value is null.  Encoders are called for every row, whatever CASE stands around them.
    """

    def row(fields: list[Column]) -> Column:
        found = F.struct(*fields)
        return found if is_there is None else F.when(is_there, found)

    if written.format is Format.JSON:
        return F.to_json(row(_shown(columns, kinds)), _OPTIONS)
    schema = written.options["schema"]
    if written.format is Format.AVRO:
        kind, encoder = avro_type(parsed(schema)), to_avro(schema)
        front = header_written(written.options)
    else:
        source = (descriptors(schema), written.options["message"])
        message = Definition(source).descriptor()
        kind, encoder = protobuf_type(message), to_protobuf(source)
        front = header_written(written.options, indexes_of(message))
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
    return F.concat(F.lit(front), encoder(row(found))) if front else encoder(row(found))
