"""A standing query as a job of the pipeline: its topics as views, Spark's SQL over them, and records out of rows.

Owns what a record of the new topic is.  A key of one column is its text, and a key of several a JSON object.  The value
is a JSON object of all columns.  Runs and is tested as each job is (``pybroker.pipeline.streams.jobs``).
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pybroker.pipeline.converters.avro import avro_of
from pybroker.pipeline.converters.decoding import Decoder, decode, readable
from pybroker.pipeline.converters.json_values import json_of, raw, text
from pybroker.pipeline.converters.protobuf import protobuf_of
from pybroker.pipeline.streams.jobs import Job, Output, Topics
from pybroker.sql.catalog import PSEUDO_COLUMNS, Format
from pybroker.sql.schema_options import descriptors, registry_header
from pybroker.sql.standing_plans import SourcePlan, SparkPlan

_TIMES: Final = "yyyy-MM-dd HH:mm:ss.SSS"


def standing_job(plan: SparkPlan, topic: str) -> Job:
    """The job that writes ``topic``; raises ValueError for a format that it does not read."""

    def job(topics: Topics) -> dict[str, Output]:
        for source in plan.sources:
            view_of(topics.stream(source.topic), source).createOrReplaceTempView(source.view)
        spark = topics.stream(plan.sources[0].topic).sparkSession
        rows = spark.sql(plan.sql)
        return {topic: Output(records_of(rows, plan.key), "update" if plan.mode == "update" else "append")}

    return job


def records_of(rows: DataFrame, key: tuple[str, ...]) -> DataFrame:
    """Rows as records; without key columns the key is null."""
    options = {"timestampFormat": _TIMES, "ignoreNullFields": "false"}
    value = F.to_json(F.struct(*(F.col(f"`{name}`") for name in rows.columns)), options)
    return rows.select(_key(key, options).alias("key"), value.alias("value"))


def _key(key: tuple[str, ...], options: dict[str, str]) -> Column:
    if not key:
        return F.lit(None).cast("string")
    if len(key) == 1:
        return F.col(f"`{key[0]}`").cast("string")
    return F.to_json(F.struct(*(F.col(f"`{name}`") for name in key)), options)


def view_of(records: DataFrame, source: SourcePlan) -> DataFrame:
    """A topic's records as rows of a plan's view; raises ValueError for a format that it does not read."""
    decoded = readable(decode(records, _decoder(source)))
    shown = decoded.select(*(_column(source, column.name).alias(column.name) for column in source.columns))
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
