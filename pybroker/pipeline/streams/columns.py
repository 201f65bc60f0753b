"""The columns of streams and tables, and the form in which their values pass through state.

A table has ``key``, ``value`` and ``timestamp``. It has ``offset`` where that, and not times, tells the order of a
key's rows in a micro-batch, and ``partition`` where these may lie in several partitions.

Python's side of ``transformWithState`` gives a struct as a dict when it is input and as a tuple when it was state, and
times with a zone or without.  So values come to our processors as JSON text, which Spark writes and reads (`as_text`,
`from_text`), keys that they give or keep as well, and times as microseconds.

Neither JSON nor Python has a text that is no UTF-8, which Spark makes of bytes by a cast. `as_text` and `checked` end
the query there, since two of them would be one key.
"""

from collections.abc import Iterator

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

TABLE_COLUMNS = ("key", "value", "timestamp")

LEFT, RIGHT = "left", "right"

_VALUE = "value"
# Times in JSON with microseconds, of which Spark would else write milliseconds.
TIME_FORMATS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def check_table(table: DataFrame, what: str) -> None:
    """Raises ValueError where ``table`` is none."""
    missing = [name for name in TABLE_COLUMNS if name not in table.columns]
    if missing:
        raise ValueError(f"{what} has no column {', '.join(missing)}; a table has {', '.join(TABLE_COLUMNS)}")


def check_same_keys(left: DataType, right: DataType) -> None:
    """Raises ValueError where keys of two types meet, which Spark would make equal by its own rules.

    Whether there may be nulls, in the key or within it, is no matter.
    """
    if _nullable(left) != _nullable(right):
        raise ValueError(f"keys differ: one side has {left.simpleString()}, the other {right.simpleString()}")


def text_of(frame: DataFrame, name: str) -> Column:
    """A column as text, null for none."""
    return as_text(F.col(name), frame.schema[name].dataType, name)


def as_text(value: Column, kind: DataType, name: str) -> Column:
    """A value as text, null for none; ``name`` is what errors call it, "" for a struct of a row's columns."""
    return F.when(value.isNotNull(), F.to_json(F.struct(checked(value, kind, name).alias(_VALUE)), TIME_FORMATS))


def checked(value: Column, kind: DataType, name: str) -> Column:
    """The value; the query ends where a text in it is no UTF-8."""
    found = value
    for is_bad, where in _bad_texts(value, kind, name):
        reason = f"column {where} has a text that is no UTF-8: keep it binary, without a cast to string"
        found = F.when(is_bad, F.raise_error(F.lit(reason))).otherwise(found)
    return found


def from_text(text: Column, kind: DataType) -> Column:
    """The value that `as_text` has made text of."""
    return F.from_json(text, StructType([StructField(_VALUE, kind)]), TIME_FORMATS).getField(_VALUE)


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


def _bad_texts(value: Column, kind: DataType, name: str) -> Iterator[tuple[Column, str]]:
    """Whether there is a text that is no UTF-8 (null counts as no), and in which column, for all that may have one."""
    if isinstance(kind, StringType):
        yield ~F.is_valid_utf8(value), name
    elif isinstance(kind, StructType):
        for field in kind.fields:
            inner = f"{name}.{field.name}" if name else field.name
            yield from _bad_texts(value.getField(field.name), field.dataType, inner)
    elif isinstance(kind, MapType):
        yield from _bad_texts(F.map_keys(value), ArrayType(kind.keyType), name)
        yield from _bad_texts(F.map_values(value), ArrayType(kind.valueType), name)
    elif isinstance(kind, ArrayType) and _has_texts(kind.elementType):
        yield F.exists(value, lambda element: _any_is_bad(element, kind.elementType)), name


def _any_is_bad(value: Column, kind: DataType) -> Column:
    found = F.lit(False)
    for is_bad, _ in _bad_texts(value, kind, ""):
        found = found | F.coalesce(is_bad, F.lit(False))
    return found


def _has_texts(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_has_texts(field.dataType) for field in kind.fields)
    if isinstance(kind, MapType):
        return _has_texts(kind.keyType) or _has_texts(kind.valueType)
    return _has_texts(kind.elementType) if isinstance(kind, ArrayType) else isinstance(kind, StringType)


def _nullable(kind: DataType) -> DataType:
    if isinstance(kind, StructType):
        return StructType([StructField(field.name, _nullable(field.dataType)) for field in kind.fields])
    if isinstance(kind, MapType):
        return MapType(_nullable(kind.keyType), _nullable(kind.valueType))
    return ArrayType(_nullable(kind.elementType)) if isinstance(kind, ArrayType) else kind
