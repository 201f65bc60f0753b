"""Rows of Spark's into a table that a transaction of PostgreSQL has for itself, by COPY.

The table goes with the transaction, so that nothing is left behind by one that fails, no other session sees it, and
PostgreSQL logs none of it.  The rows become lines of text by Spark's SQL, and go from Spark's tasks to the driver's JVM
and from there to the database: Python touches none of them.  A piece of some megabytes is in memory at a time.

COPY takes a fifth of what the same rows take as INSERT, which is all that Spark's own writer knows.

Owns the types of the table's columns and their text.  A value that PostgreSQL has no text or room for ends the
transaction; ``lacks`` says which ones these are.
"""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, DateType, DecimalType, StringType, TimestampNTZType, TimestampType

from pybroker.pipeline.postgres_database import Transaction
from pybroker.pipeline.postgres_text import quoted
from pybroker.pipeline.spark_names import spark_name

# Bytes of text that the driver has in memory at a time; with Java's own objects it is some three times that.
PIECE_BYTES: Final = 16 << 20

_TYPES: Final = {
    "string": "text",
    "int": "integer",
    "bigint": "bigint",
    "smallint": "smallint",
    "tinyint": "smallint",
    "double": "double precision",
    "float": "real",
    "boolean": "boolean",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
    "date": "date",
    "binary": "bytea",
}
# What the text form of COPY has other characters for; the first one has to be replaced first.
_ESCAPES: Final = (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))
_NULL: Final = "\\N"
_NO_TEXT: Final = "\0"
# The first day that PostgreSQL has, its day 0, and the last one of a date; its last timestamp is behind Spark's.
_FIRST_DAY: Final = "-4713-11-24"
_LAST_DAY: Final = "+5874897-12-31"


def postgres_type(kind: DataType) -> str:
    """PostgreSQL's type for what Spark has; text for what has no counterpart."""
    if isinstance(kind, DecimalType):
        return f"numeric({kind.precision},{kind.scale})"
    return _TYPES.get(kind.simpleString(), "text")


def copy_into(transaction: Transaction, table: str, rows: DataFrame) -> None:
    """Make the transaction's own table of this name, and fill it.  Raises what PostgreSQL or a task of Spark's says."""
    columns = ", ".join(f"{quoted(field.name)} {postgres_type(field.dataType)}" for field in rows.schema)
    transaction.execute(f"CREATE TEMPORARY TABLE {quoted(table)} ({columns}) ON COMMIT DROP")
    # Kept, because how many pieces there are is known behind the last line.
    lines = rows.select(_line(rows).alias("line")).persist()
    try:
        _copy(transaction, table, lines)
    finally:
        lines.unpersist()


def _copy(transaction: Transaction, table: str, lines: DataFrame) -> None:
    (size,) = lines.agg(F.sum(F.octet_length("line"))).collect()[0]
    pieces = -(-(size or 0) // PIECE_BYTES)
    if pieces > 1:
        lines = lines.repartition(pieces)
    jvm: Any = lines.sparkSession._jvm
    gateway: Any = lines.sparkSession.sparkContext._gateway
    texts = getattr(lines._jdf, "as")(jvm.org.apache.spark.sql.Encoders.STRING()).toJavaRDD()
    every = range(texts.getNumPartitions())
    for group in [[each] for each in every] if pieces > 1 else [every]:
        numbers = gateway.new_array(jvm.int, len(group))
        for at, number in enumerate(group):
            numbers[at] = number
        # py4j would bring an array of bytes to Python, so none may be returned.
        piece = jvm.org.apache.commons.io.output.ByteArrayOutputStream()
        for found in texts.collectPartitions(numbers):
            jvm.org.apache.commons.io.IOUtils.writeLines(found, "\n", piece, "UTF-8")
        transaction.copy(f"COPY {quoted(table)} FROM STDIN", piece.toInputStream())


def lacks(name: str, kind: DataType) -> tuple[Column, str] | None:
    """Which values of a column PostgreSQL has not, and the reason in words; None where it has all."""
    column = F.col(spark_name(name))
    if isinstance(kind, StringType):
        return F.contains(column, F.lit(_NO_TEXT)), "a text has the character U+0000, which PostgreSQL has not"
    before = "a timestamp is before 24 November 4714 BC, where PostgreSQL begins"
    if isinstance(kind, TimestampType):
        return column < F.expr(f"timestamp'{_FIRST_DAY}T00:00:00Z'"), before
    if isinstance(kind, TimestampNTZType):
        return column < F.expr(f"timestamp_ntz'{_FIRST_DAY}'"), before
    if isinstance(kind, DateType):
        is_within = column.between(F.expr(f"date'{_FIRST_DAY}'"), F.expr(f"date'{_LAST_DAY}'"))
        return ~is_within, "a date is not within those of PostgreSQL, 24 November 4714 BC to 5874897"
    return None


def _line(rows: DataFrame) -> Column:
    return F.concat_ws("\t", *(F.coalesce(_text(field.name, field.dataType), F.lit(_NULL)) for field in rows.schema))


def _text(name: str, kind: DataType) -> Column:
    column = F.col(spark_name(name))
    if isinstance(kind, BinaryType):
        return F.concat(F.lit("\\\\x"), F.hex(column))
    if isinstance(kind, TimestampType):
        # The text has the offset, so that no time zone of a session counts.
        return F.ltrim(F.date_format(column, "yyyy-MM-dd HH:mm:ss.SSSSSSXXXXX G"), F.lit("+"))
    if isinstance(kind, (DateType, TimestampNTZType)):
        return _without_zone(column)
    if kind.simpleString() in _TYPES and not isinstance(kind, StringType):
        return column.cast("string")
    text = column.cast("string")
    for character, escaped in _ESCAPES:
        text = F.replace(text, F.lit(character), F.lit(escaped))
    return text


def _without_zone(column: Column) -> Column:
    """A date, or a timestamp without a time zone; Spark signs years beyond 9999, and counts those BC from 0 down."""
    text, year = column.cast("string"), F.year(column)
    told = (1 - year).cast("string")
    padded = F.lpad(told, F.greatest(F.length(told), F.lit(4)), F.lit("0"))
    behind_year = F.regexp_extract(text, r"^[+-]?\d+(-.*)$", 1)
    return F.when(year > 0, F.ltrim(text, F.lit("+"))).otherwise(F.concat(padded, behind_year, F.lit(" BC")))
