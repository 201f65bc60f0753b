"""A standing query as a job of the pipeline: its topics as views, Spark's SQL over them, and records out of rows.

Owns what a record of the new topic is, and has the pipeline join streams with tables.  A key of one column is its text,
and a key of several a JSON object.  The value has all columns: a JSON object, or what a schema of Avro or Protobuf
makes of them.  Runs and is tested as each job is (``pybroker.pipeline.streams.jobs``).
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import AtomicType, DataType, IntegralType, StructType, _parse_datatype_string

from pybroker.pipeline.converters.avro import avro_of, to_avro
from pybroker.pipeline.converters.avro import spark_type as avro_type
from pybroker.pipeline.converters.decoding import Decoder, decode, readable
from pybroker.pipeline.converters.json_values import json_of, raw, text
from pybroker.pipeline.converters.protobuf import protobuf_of, to_protobuf
from pybroker.pipeline.converters.protobuf import spark_type as protobuf_type
from pybroker.pipeline.streams.jobs import Job, Output, Topics
from pybroker.pipeline.streams.stream_table_join import join_stream_table
from pybroker.sql.relations.catalog import PSEUDO_COLUMNS, Format
from pybroker.sql.relations.format_options import descriptors, registry_header
from pybroker.sql.standing.standing_plans import SourcePlan, SparkPlan, WrittenValue
from pybroker.values.avro_values import parsed
from pybroker.values.protobuf_values import Definition

_TIMES: Final = "yyyy-MM-dd HH:mm:ss.SSS"


def standing_job(plan: SparkPlan, topic: str, tables: Topics | None = None) -> Job:
    """The job that writes ``topic``; raises ValueError for a format that it does not read.

    ``tables`` is where tables are read, which begin at the beginning wherever streams do.
    """

    def job(topics: Topics) -> dict[str, Output]:
        if plan.joins:
            _joined(plan, topics, tables or topics).createOrReplaceTempView(plan.sources[0].view)
        for source in () if plan.joins else plan.sources:
            view_of(topics.stream(source.topic), source).createOrReplaceTempView(source.view)
        spark = topics.stream(plan.sources[0].topic).sparkSession
        rows = spark.sql(plan.sql)
        return {topic: Output(records_of(rows, plan.key, plan.value), "update" if plan.mode == "update" else "append")}

    return job


def records_of(rows: DataFrame, key: tuple[str, ...], written: WrittenValue) -> DataFrame:
    """Rows as records; without key columns the key is null.  Raises ValueError for what the schema does not take."""
    options = {"timestampFormat": _TIMES, "ignoreNullFields": "false"}
    if written.format is Format.JSON:
        value = F.to_json(F.struct(*(F.col(f"`{name}`") for name in rows.columns)), options)
    else:
        value = _by_schema(rows, key, written)
    return rows.select(_key(key, options).alias("key"), value.alias("value"))


def _by_schema(rows: DataFrame, key: tuple[str, ...], written: WrittenValue) -> Column:
    """Encoded by a schema, whose names and plain types count; a key's column need not be among its fields."""
    schema = written.options["schema"]
    if written.format is Format.AVRO:
        kind, encoder = avro_type(parsed(schema)), to_avro(schema)
    else:
        source = (descriptors(schema), written.options["message"])
        kind, encoder = protobuf_type(Definition(source).descriptor()), to_protobuf(source)
    if not isinstance(kind, StructType):
        raise ValueError(f"a row is no value of a schema of {kind.simpleString()}")
    fields = {each.name.lower(): each for each in kind.fields}
    columns = []
    for name in rows.columns:
        field = fields.get(name.lower())
        if field is None and name not in key:
            raise ValueError(f"the schema has no field {name}: it has {', '.join(kind.names)}")
        if field is not None:
            column = F.col(f"`{name}`")
            is_plain = isinstance(field.dataType, AtomicType)
            columns.append((column.cast(field.dataType) if is_plain else column).alias(field.name))
    return encoder(F.struct(*columns))


def _key(key: tuple[str, ...], options: dict[str, str]) -> Column:
    if not key:
        return F.lit(None).cast("string")
    if len(key) == 1:
        return F.col(f"`{key[0]}`").cast("string")
    return F.to_json(F.struct(*(F.col(f"`{name}`") for name in key)), options)


def _joined(plan: SparkPlan, topics: Topics, tables: Topics) -> DataFrame:
    """A stream's records beside the rows of tables that they meet: a column for each, with the row as a struct."""
    stream, *others = plan.sources
    place = ("timestamp", "partition", "offset")
    found = _read(topics.stream(stream.topic), stream).where("value is not null")
    rows = found.select(_row(stream).alias(stream.alias), *place)
    for join, source in zip(plan.joins, others, strict=True):
        of_table = _read(tables.stream(source.topic), source)
        value = F.when(F.col("value").isNotNull(), _row(source)).alias("value")
        # A key that is no text is none of those that the query can name.
        table = of_table.where(F.is_valid_utf8("key")).select("key", value, *place)
        wanted = rows.select(F.expr(join.key).alias("key")).schema["key"].dataType
        if not _same_text(wanted, _parse_datatype_string(join.key_type)):
            told = f"{wanted.simpleString()} with a key, which is {join.key_type}"
            raise ValueError(f"ON {join.key} = … compares {told}: CAST it")
        keyed = rows.withColumn("key", F.expr(join.key).cast("string"))
        rows = join_stream_table(keyed, table, how=join.how, into=source.alias).drop("key")
    return rows.select(*(F.col(f"`{each.alias}`") for each in plan.sources))


def _same_text(one: DataType, other: DataType) -> bool:
    """Whether equal values have equal texts: keys are compared as texts."""
    return one == other or (isinstance(one, IntegralType) and isinstance(other, IntegralType))


def _row(source: SourcePlan) -> Column:
    return F.struct(*(_column(source, column.name).alias(column.name) for column in source.columns))


def _read(records: DataFrame, source: SourcePlan) -> DataFrame:
    return readable(decode(records, _decoder(source)))


def view_of(records: DataFrame, source: SourcePlan) -> DataFrame:
    """A topic's records as rows of a plan's view; raises ValueError for a format that it does not read."""
    shown = _read(records, source).select(
        *(_column(source, column.name).alias(column.name) for column in source.columns)
    )
    return shown if source.grace_ms is None else shown.withWatermark("_timestamp", f"{source.grace_ms} milliseconds")


def _column(source: SourcePlan, name: str) -> Column:
    column = next(each for each in source.columns if each.name == name)
    if name in PSEUDO_COLUMNS and not column.field:
        return F.col(name.removeprefix("_"))
    if column.is_key:
        return F.col("key").cast(column.type)
    if source.format in (Format.TEXT, Format.BYTES):
        return F.col("value").cast(column.type)
    return F.col("value").getField(column.field).cast(column.type)


def _decoder(source: SourcePlan) -> Decoder:
    of_value = [each for each in source.columns if each.field and not each.is_key]
    match source.format:
        case Format.JSON:
            return json_of(", ".join(f"`{each.field}` {each.type}" for each in of_value)) if of_value else raw()
        case Format.TEXT:
            return text()
        case Format.BYTES:
            return raw()
        case Format.AVRO:
            return avro_of(source.options["schema"], registry_header=registry_header(source.options))
        case Format.PROTOBUF:
            return protobuf_of(
                (descriptors(source.options["schema"]), source.options["message"]),
                registry_header=registry_header(source.options),
            )
    raise ValueError(f"a standing query reads no {source.format}; a stream of JSON made from it can be read")
