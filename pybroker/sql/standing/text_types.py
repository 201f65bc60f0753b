"""How Spark makes a column of a text, and of a value of JSON in which times are texts.

Owns which texts are of a type (`pybroker.values.text_spellings`), as questions have it.  A number is milliseconds to a
timestamp, and days to a date, as ksqlDB writes them; Spark's own parser of JSON takes seconds, and years.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pybroker.values.text_spellings import BOOLEAN, COUNT, DAY_MAX, DAY_MIN, DECIMAL, FLOAT, INTEGER
from pybroker.values.timestamps import TIMESTAMP_MS_MAX

_TIMES: Final = (DateType, TimestampType, TimestampNTZType)
# What DuckDB's whole numbers are that Spark has no type of so many digits for.
_WIDE: Final = (DecimalType(38, 0), DecimalType(20, 0))


def of_text(text: Column, kind: DataType) -> Column:
    """A text as a type; null where it is none."""
    if isinstance(kind, _TIMES):
        return F.when(_matches(text, COUNT), _of_count(text, kind)).otherwise(text.try_cast(kind))
    spelling = _spelling(kind)
    return text.try_cast(kind) if spelling is None else F.when(_matches(text, spelling), text.try_cast(kind))


def time_of_ms(number: Column) -> Column:
    """The time that is so many milliseconds from 1970 on; null for one that has no place in a timestamp."""
    return F.when(number.between(-TIMESTAMP_MS_MAX, TIMESTAMP_MS_MAX), F.timestamp_millis(number))


def type_in_json(kind: DataType) -> DataType:
    """The type that is read in place of a column's; `of_json` makes the column's of it."""
    if isinstance(kind, StructType):
        return StructType([StructField(each.name, type_in_json(each.dataType), each.nullable) for each in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(type_in_json(kind.elementType), kind.containsNull)
    if isinstance(kind, MapType):
        return MapType(kind.keyType, type_in_json(kind.valueType), kind.valueContainsNull)
    return StringType() if isinstance(kind, _TIMES) else kind


def of_json(value: Column, kind: DataType) -> Column:
    """What is read by `type_in_json`, as the type; null inside where a text is none."""
    if type_in_json(kind) == kind:
        return value
    if isinstance(kind, StructType):
        fields = (of_json(value.getField(each.name), each.dataType).alias(each.name) for each in kind.fields)
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(kind, ArrayType):
        return F.transform(value, lambda each: of_json(each, kind.elementType))
    if isinstance(kind, MapType):
        return F.transform_values(value, lambda _, each: of_json(each, kind.valueType))
    return of_text(value, kind)


def has_misfit(value: Column, kind: DataType) -> Column | None:
    """Whether `of_json` finds a text that is none; None for a type that has no times."""
    if type_in_json(kind) == kind:
        return None
    if isinstance(kind, StructType):
        inside = [has_misfit(value.getField(each.name), each.dataType) for each in kind.fields]
        return F.array_contains(F.array(*(each for each in inside if each is not None)), F.lit(True))
    if isinstance(kind, ArrayType):
        return F.exists(value, lambda each: _or_false(has_misfit(each, kind.elementType)))
    if isinstance(kind, MapType):
        return F.exists(F.map_values(value), lambda each: _or_false(has_misfit(each, kind.valueType)))
    return value.isNotNull() & of_text(value, kind).isNull()


def _or_false(found: Column | None) -> Column:
    return F.lit(False) if found is None else F.coalesce(found, F.lit(False))


def _of_count(text: Column, kind: DataType) -> Column:
    if isinstance(kind, DateType):
        days = text.try_cast("int")
        return F.when(days.between(DAY_MIN, DAY_MAX), F.date_from_unix_date(days))
    return time_of_ms(text.try_cast("bigint")).cast(kind)


def _spelling(kind: DataType) -> str | None:
    """The pattern of the texts that are of a type; None where the cast alone says it."""
    if isinstance(kind, IntegralType) or kind in _WIDE:
        return INTEGER
    if isinstance(kind, DecimalType):
        return DECIMAL
    if isinstance(kind, (DoubleType, FloatType)):
        return FLOAT
    return BOOLEAN if isinstance(kind, BooleanType) else None


def _matches(text: Column, pattern: str) -> Column:
    return F.rlike(text, F.lit(f"\\A(?:{pattern})\\z"))
