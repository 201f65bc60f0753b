"""What a topic's records are as rows of Spark's: a view's columns, or one struct with all of them.

Owns how a column of a plan is read from a record, and which records do not fit: they end the query, or are left out
and counted (``left_out``).  Values are decoded by the pipeline's converters.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, IntegralType, StructField, StructType, _parse_datatype_string

from pybroker.pipeline.converters.avro import avro_behind
from pybroker.pipeline.converters.csv_lines import csv_of
from pybroker.pipeline.converters.decoding import ERROR_SUFFIX, Decoder, decode, readable
from pybroker.pipeline.converters.json_values import json_of, raw, text
from pybroker.pipeline.converters.protobuf import protobuf_behind
from pybroker.sql.relations.catalog import PSEUDO_COLUMNS, Format
from pybroker.sql.relations.catalog import Column as PlanColumn
from pybroker.sql.relations.event_times import PATTERN, TimeKind, kind_of, time_column
from pybroker.sql.relations.format_options import descriptors, header_read, registry_header, registry_of
from pybroker.sql.standing.left_out import counted, stopped_by_one
from pybroker.sql.standing.standing_plans import WIDTH, SourcePlan, TableJoin
from pybroker.sql.standing.text_types import has_misfit, of_json, of_text, time_of_ms, type_in_json
from pybroker.values.registry_header import HEADER_BYTES


def view_of(records: DataFrame, source: SourcePlan) -> DataFrame:
    """A topic's records as rows of a plan's view; raises ValueError for a format that it does not read."""
    shown = decoded(records, source).select(
        *(_column(source, column.name).alias(column.name) for column in source.columns)
    )
    return shown if source.grace_ms is None else shown.withWatermark("_timestamp", f"{source.grace_ms} milliseconds")


def table_of(records: DataFrame, source: SourcePlan) -> DataFrame:
    """A topic's records as a table (`pybroker.pipeline.streams.columns`) of its rows; keys are texts.

    A record without a key does not fit, nor one whose key is no text: no query can name it.
    """
    value = F.when(F.col("value").isNotNull(), row_of(source)).alias("value")
    found = decoded(records, source, is_table=True)
    return found.select(F.col("key").cast("string"), value, "timestamp", "partition", "offset")


def decoded(records: DataFrame, source: SourcePlan, *, is_table: bool = False) -> DataFrame:
    """The records that fit: with values of the plan's columns, and a key of its column's type."""
    found = decode(records, _decoder(source))
    wrong = [F.col("error"), *_wrong_texts(source)]
    time = time_column(source.columns, source.options)
    if time is not None:
        found, is_none = found.withColumn("event_time", _time(source, time)), F.col("value").isNull()
        said = F.concat(
            F.lit(f"value: {time.name} is no time: "),
            F.coalesce(_column(source, time.name).cast("string"), F.lit("null")),
        )
        wrong.append(F.when(~is_none & F.col("event_time").isNull(), said))
        found = found.withColumn("timestamp", F.when(is_none, F.col("timestamp")).otherwise(F.col("event_time")))
    if is_table:
        wrong.append(F.when(F.col("key").isNull(), "key: a row of a table has one"))
        wrong.append(F.when(~F.is_valid_utf8("raw_key"), "key: it is no text"))
    found = found.withColumn("error", F.coalesce(*wrong)).drop("event_time")
    return readable(stopped_by_one(found) if source.stops else counted(found, source.view))


def _time(source: SourcePlan, column: PlanColumn) -> Column:
    """The time that a column says; null where it says none."""
    found, pattern = _column(source, column.name), source.options.get(PATTERN)
    match kind_of(column):
        case TimeKind.NUMBER:
            return time_of_ms(found)
        case TimeKind.TEXT if pattern is not None:
            return F.try_to_timestamp(found, F.lit(pattern))
        case _:
            return found.try_cast("timestamp")


def _wrong_texts(source: SourcePlan) -> Iterator[Column]:
    """For each column that is made of a text, or has some in JSON, why one is none of its type; null where all are."""
    for column in source.columns:
        text = _text_of(source, column)
        if text is not None:
            what = "key" if column.is_key else f"value: {column.name}"
            said = F.concat(F.lit(f"{what}: "), text, F.lit(f" is no {column.type}"))
            yield F.when(text.isNotNull() & of_text(text, _kind(column)).isNull(), said)
        elif source.format is Format.JSON and column.field:
            wrong = has_misfit(F.col("value").getField(column.field), _kind(column))
            if wrong is not None:
                yield F.when(wrong, F.lit(f"value: {column.name} is no {column.type}"))


def _kind(column: PlanColumn) -> DataType:
    return _parse_datatype_string(column.type)


def _text_of(source: SourcePlan, column: PlanColumn) -> Column | None:
    """The text of a decoded record of which a column is made; None for one that has a type already."""
    if column.is_key:
        return F.col("key")
    if not column.field:
        return None
    if source.format is Format.CSV:
        return F.col("value").getField(column.field)
    return F.col("value") if source.format is Format.TEXT else None


def row_of(source: SourcePlan) -> Column:
    """A record that is decoded, as a struct of the plan's columns."""
    return F.struct(*(_column(source, column.name).alias(column.name) for column in source.columns))


def joined_key(frame: DataFrame, join: TableJoin) -> Column:
    """What a frame's row names of a table's keys, as their text; raises ValueError where its type is another one.

    Keys are compared as texts, so that equal values have to have equal texts.
    """
    wanted = frame.select(F.expr(join.key).alias("key")).schema["key"].dataType
    if not _same_text(wanted, _parse_datatype_string(join.key_type)):
        told = f"{wanted.simpleString()} with a key, which is {join.key_type}"
        raise ValueError(f"ON {join.key} = … compares {told}: CAST it")
    return F.expr(join.key).cast("string")


def _same_text(one: DataType, other: DataType) -> bool:
    return one == other or (isinstance(one, IntegralType) and isinstance(other, IntegralType))


def _column(source: SourcePlan, name: str) -> Column:
    column = next(each for each in source.columns if each.name == name)
    if name in PSEUDO_COLUMNS and not column.field:
        return F.col(name.removeprefix("_"))
    if (text := _text_of(source, column)) is not None:
        return of_text(text, _kind(column))
    if source.format is Format.BYTES:
        return F.col("value").cast(column.type)
    if source.format is Format.JSON:
        return of_json(F.col("value").getField(column.field), _kind(column))
    return F.col("value").getField(column.field).cast(column.type)


def _decoder(source: SourcePlan) -> Decoder:
    of_value = [each for each in source.columns if each.field and not each.is_key]
    match source.format:
        case Format.JSON:
            fields = StructType([StructField(each.field, type_in_json(_kind(each))) for each in of_value])
            return _behind_header(json_of(fields), source) if of_value else raw()
        case Format.CSV:
            return csv_of(int(source.options[WIDTH]), source.options.get("delimiter", ","))
        case Format.TEXT:
            return text()
        case Format.BYTES:
            return raw()
        case Format.AVRO:
            header, registry = registry_header(source.options), registry_of(source.options)
            return avro_behind(header, source.options["schema"], registry=registry)
        case Format.PROTOBUF:
            message = (descriptors(source.options["schema"]), source.options["message"])
            return protobuf_behind(header_read(source.options), message)


def _behind_header(decoder: Decoder, source: SourcePlan) -> Decoder:
    """Of values that have a schema registry's header in front, where the source says so."""
    wanted = header_read(source.options)
    if wanted is None:
        return decoder
    front = wanted.front

    def decode_behind(frame: DataFrame, name: str) -> DataFrame:
        value, error = F.col(name), F.col(f"{name}{ERROR_SUFFIX}")
        has_header = (F.length(value) >= HEADER_BYTES) & value.startswith(F.lit(front))
        behind = frame.withColumn("has_header", has_header)
        behind = behind.withColumn(name, F.when(has_header, value.substr(F.lit(HEADER_BYTES + 1), F.length(value))))
        said = F.when(~F.col("has_header"), F.lit("does not begin as a schema registry's serializers have it"))
        return decoder(behind, name).withColumn(f"{name}{ERROR_SUFFIX}", F.coalesce(said, error)).drop("has_header")

    return decode_behind
