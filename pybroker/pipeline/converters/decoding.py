"""Records read by decoders, and the dead letters that are left over.

Owns the columns between both: a decoded record has ``key`` and ``value`` as they were read, ``raw_key`` and
``raw_value`` as they came, and ``error``, null where all could be read.  A null value (a tombstone) stays one.

A dead letter is the record as it came, with headers that say what is wrong with it, named as Kafka Streams names them
(KIP-1034).
"""

from collections.abc import Callable
from typing import TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pybroker.pipeline.topics.rows import HEADERS_TYPE

# From a frame and the name of a binary column, the frame with that column read and a column of that name and
# `ERROR_SUFFIX`.
Decoder: TypeAlias = Callable[[DataFrame, str], DataFrame]

ERROR_SUFFIX = "_error"
HEADERS_PREFIX = "__streams.errors."

_OWN_COLUMNS = ("raw_key", "raw_value", "error")
_ORIGIN = ("topic", "partition", "offset")


def once(column: Column) -> Column:
    """``column``, computed once per row: else Spark computes it for each use, and again in each filter that it moves.

    Spark moves and repeats nothing that is not deterministic, and as such the number of a task counts.
    """
    return F.when(F.spark_partition_id() >= 0, column)


def decode(records: DataFrame, value: Decoder, *, key: Decoder | None = None) -> DataFrame:
    """``records`` read: all of their columns, with ``raw_key``, ``raw_value`` and ``error``.

    Without a decoder the key is text, as UTF-8 or what comes near it.
    """
    found = records.withColumns({"raw_key": F.col("key"), "raw_value": F.col("value")})
    found = value(found, "value")
    errors = [_named("value", F.col(f"value{ERROR_SUFFIX}"))]
    if key is None:
        found = found.withColumn("key", F.col("key").cast("string"))
    else:
        found = key(found, "key")
        errors.insert(0, _named("key", F.col(f"key{ERROR_SUFFIX}")))
    found = found.withColumn("error", F.coalesce(*errors))
    return found.select(*records.columns, *_OWN_COLUMNS)


def readable(decoded: DataFrame) -> DataFrame:
    """What could be read."""
    return decoded.where("error is null").drop(*_OWN_COLUMNS)


def dead_letters(decoded: DataFrame) -> DataFrame:
    """What could not be read, as records for a dead-letter topic."""
    named = [_header("message", F.col("error")), *(_header(name, F.col(name).cast("string")) for name in _ORIGIN)]
    headers = F.array(*named)
    if "headers" in decoded.columns:
        headers = F.concat(F.coalesce(F.col("headers"), F.array().cast(HEADERS_TYPE)), headers)
    return decoded.where("error is not null").select(
        F.col("raw_key").alias("key"), F.col("raw_value").alias("value"), headers.cast(HEADERS_TYPE).alias("headers")
    )


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(HEADERS_PREFIX + name).alias("key"), value.cast("binary").alias("value"))


def _named(what: str, error: Column) -> Column:
    return F.when(error.isNotNull(), F.concat(F.lit(f"{what}: "), error))
