"""The columns of streams and tables, and the form in which their values pass through state.

A table has ``key``, ``value`` and ``timestamp``; ``offset`` where that, and not times, tells the order of a key's rows
in a micro-batch, and ``partition`` where these may lie in several partitions.

Python's side of ``transformWithState`` gives a struct as a dict when it is input and as a tuple when it was state, and
times with a zone or without.  So values come to our processors as JSON text, which Spark writes and reads (`as_text`,
`from_text`), keys that they give or keep as well, and times as microseconds.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType

TABLE_COLUMNS = ("key", "value", "timestamp")

LEFT, RIGHT = "left", "right"

_VALUE = "value"
_FORMATS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def check_table(table: DataFrame, what: str) -> None:
    """Raises ValueError where ``table`` is none."""
    missing = [name for name in TABLE_COLUMNS if name not in table.columns]
    if missing:
        raise ValueError(f"{what} has no column {', '.join(missing)}; a table has {', '.join(TABLE_COLUMNS)}")


def check_same_keys(left: DataType, right: DataType) -> None:
    """Raises ValueError where keys of two types meet, which Spark would make equal by its own rules."""
    if left != right:
        raise ValueError(f"keys differ: one side has {left.simpleString()}, the other {right.simpleString()}")


def as_text(value: Column) -> Column:
    """A value as text, null for none."""
    return F.when(value.isNotNull(), F.to_json(F.struct(value.alias(_VALUE)), _FORMATS))


def from_text(text: Column, kind: DataType) -> Column:
    """The value that `as_text` has made text of."""
    return F.from_json(text, StructType([StructField(_VALUE, kind)]), _FORMATS).getField(_VALUE)


def place(frame: DataFrame) -> list[Column]:
    """Of a row: ``at`` (µs since 1970), ``partition`` and ``offset``, null where the frame has none."""
    rest = [
        (F.col(name) if name in frame.columns else F.lit(None).cast(kind)).alias(name)
        for name, kind in (("partition", "int"), ("offset", "bigint"))
    ]
    return [F.unix_micros("timestamp").alias("at"), *rest]


def side_by_side(left: DataFrame, left_text: Column, right: DataFrame, right_text: Column) -> DataFrame:
    """The rows of both: ``key``, their places, ``side`` and ``text``."""
    sides = [
        frame.select("key", *place(frame), F.lit(side).alias("side"), text.alias("text"))
        for frame, side, text in ((left, LEFT, left_text), (right, RIGHT, right_text))
    ]
    return sides[0].unionByName(sides[1])


def as_table(joined: DataFrame, key: DataType, left: DataType, right: DataType) -> DataFrame:
    """A table of what a join gives: ``key``, ``left`` and ``right`` as texts, ``is_match``, ``at``."""
    match = F.struct(from_text(F.col(LEFT), left).alias(LEFT), from_text(F.col(RIGHT), right).alias(RIGHT))
    return joined.select(
        from_text(F.col("key"), key).alias("key"),
        F.when(F.col("is_match"), match).alias("value"),
        F.timestamp_micros("at").alias("timestamp"),
    )
