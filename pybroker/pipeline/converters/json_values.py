"""Decoders by Spark's own functions: JSON by a schema, text, bytes.

Owns the reason why a value does not fit. Fields that the schema does not name are left out. Fields that it names and a
value has not are null, and an error where the schema says that they may not be, within structs, arrays and maps, too.
Of an array or a map in which something is of another type, the message names the field alone.
"""

from collections.abc import Callable, Iterator
from typing import TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    _parse_datatype_string,
)

from pybroker.pipeline.converters.decoding import ERROR_SUFFIX, Decoder, once
from pybroker.values.timestamps import TIMESTAMP_S_MAX

_CORRUPT = "_corrupt"
# Spark's parsers stop behind the first value.  Where this comes next in an array with the value, there is no other one.
_NEXT = "9b6f0a5e-next"
_JSON_WHITESPACE = " \t\n\r"
# Without them Spark takes a number in a text for days or microseconds since 1970, and NaN for a number.
_STRICT = {"enableDateTimeParsingFallback": "false", "allowNonNumericNumbers": "false"}
# With so many digits at least Spark may wrap the seconds of a timestamp, in silence.
_MANY_DIGITS = f"[0-9]{{{len(str(TIMESTAMP_S_MAX))}}}"
# Half of a character, as an escape; the parser that looks at keys takes no half that is alone, and does not say so.
_SURROGATE = r"(?i)\\ud[89a-f]"
_TWICE_OR_HALF = "has half of a surrogate pair alone, or a key twice"
# What to say, and whether it is so.
_Flaw: TypeAlias = tuple[str, Callable[[Column], Column]]
_WITH_VALUES = (ArrayType, MapType, StructType)


def json_of(schema: StructType | str) -> Decoder:
    """Objects of JSON, as structs of ``schema``: a type of Spark's, or DDL (``id bigint not null, name string``)."""
    wanted = _parse_datatype_string(schema) if isinstance(schema, str) else schema
    if not isinstance(wanted, StructType):
        raise ValueError(f"a schema of JSON objects has fields; {wanted.simpleString()} has none")
    with_corrupt = StructType([*wanted.fields, StructField(_CORRUPT, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT, **_STRICT}

    def decoder(frame: DataFrame, name: str) -> DataFrame:
        text, read = f"{name}_text", f"{name}_read"
        found = frame.withColumn(text, F.col(name).cast("string"))
        found = found.withColumn(read, once(F.from_json(F.col(text), with_corrupt, options)))
        fields = {field.name: F.col(read).getField(field.name) for field in wanted.fields}
        error = _json_error(F.col(text), F.col(read), wanted)
        found = found.withColumn(f"{name}{ERROR_SUFFIX}", once(error))
        value = F.struct(*(column.alias(field) for field, column in fields.items()))
        is_read = F.col(name).isNotNull() & F.col(f"{name}{ERROR_SUFFIX}").isNull()
        return found.withColumn(name, F.when(is_read, value)).drop(text, read)

    return decoder


def text() -> Decoder:
    """UTF-8."""

    def decoder(frame: DataFrame, name: str) -> DataFrame:
        found = F.col(name).cast("string")
        is_text = F.is_valid_utf8(found)
        error = F.when(F.col(name).isNotNull() & ~is_text, F.lit("is no UTF-8"))
        return frame.withColumns({f"{name}{ERROR_SUFFIX}": error, name: F.when(is_text, found)})

    return decoder


def raw() -> Decoder:
    """Bytes as they are."""

    def decoder(frame: DataFrame, name: str) -> DataFrame:
        return frame.withColumn(f"{name}{ERROR_SUFFIX}", F.lit(None).cast("string"))

    return decoder


def _json_error(said: Column, read: Column, wanted: StructType) -> Column:
    mismatches = F.concat_ws(", ", *_mismatches(said, read, wanted))
    wrapped = F.concat_ws(", ", *_wrapped(said, wanted))
    inside = [field.name for field in wanted.fields if isinstance(field.dataType, _WITH_VALUES)]
    unknown = f"a value in {' or '.join(inside)}" if inside else "a value"
    flaws = [F.when(is_so(read), F.lit(said)) for said, is_so in _flaws(wanted)]
    refused = F.when(F.rlike(said, F.lit(_SURROGATE)), F.lit(_TWICE_OR_HALF)).otherwise(F.lit("has a key twice"))
    no_value = F.when(_is_one_but_for_keys(said), refused).otherwise("is no JSON")
    is_object = F.startswith(F.ltrim(said, F.lit(_JSON_WHITESPACE)), F.lit("{"))
    return (
        F.when(said.isNull(), None)
        .when(~F.is_valid_utf8(said), F.lit("is no UTF-8"))
        .when(~_is_one_value(said), no_value)
        .when(read.isNull() | ~is_object, F.lit("is no JSON object"))
        .when(
            read.getField(_CORRUPT).isNotNull(),
            F.concat(F.lit("does not fit the schema: "), F.when(mismatches != "", mismatches).otherwise(unknown)),
        )
        .when(
            F.rlike(said, F.lit(_MANY_DIGITS)) & (wrapped != ""), F.concat(F.lit("does not fit the schema: "), wrapped)
        )
        .when(F.concat_ws("", *flaws) != "", F.concat_ws(", ", *flaws))
    )


def _is_one_value(said: Column) -> Column:
    array = F.try_parse_json(F.concat(F.lit("["), said, F.lit(f',"{_NEXT}"]')))
    return F.try_variant_get(array, "$[1]", "string").eqNullSafe(F.lit(_NEXT))


def _is_one_but_for_keys(said: Column) -> Column:
    """Whether it is one value to the parser that does not look at its keys."""
    array = F.from_json(F.concat(F.lit("["), said, F.lit(f',"{_NEXT}"]')), "array<string>", _STRICT)
    return F.get(array, F.lit(1)).eqNullSafe(F.lit(_NEXT))


def _mismatches(said: Column, read: Column, wanted: StructType, path: tuple[str, ...] = ()) -> Iterator[Column]:
    """What is there and could not be read: null, or the field and its type."""
    for field in wanted.fields:
        inner = (*path, field.name)
        found = read.getField(field.name)
        is_there = F.get_json_object(said, "$" + "".join(f"['{name}']" for name in inner)).isNotNull()
        yield F.when(is_there & found.isNull(), F.lit(f"{'.'.join(inner)} is no {field.dataType.simpleString()}"))
        if isinstance(field.dataType, StructType):
            yield from _mismatches(said, found, field.dataType, inner)


def _wrapped(said: Column, wanted: StructType, path: tuple[str, ...] = ()) -> Iterator[Column]:
    """Numbers that are no timestamp, and were read as another one: null, or the field."""
    for field in wanted.fields:
        inner = (*path, field.name)
        if isinstance(field.dataType, TimestampType):
            number = F.get_json_object(said, "$" + "".join(f"['{name}']" for name in inner)).try_cast("decimal(20,0)")
            yield F.when(F.abs(number) > TIMESTAMP_S_MAX, F.lit(f"{'.'.join(inner)} is no timestamp"))
        elif isinstance(field.dataType, StructType):
            yield from _wrapped(said, field.dataType, inner)


def _flaws(kind: DataType, path: str = "") -> Iterator[_Flaw]:
    """What may be wrong with a value that could be read."""
    if isinstance(kind, StructType):
        for field in kind.fields:
            inner = f"{path}.{field.name}" if path else field.name
            for said, is_so in _flaws_of(field.dataType, inner, field.nullable):
                yield said, _of_field(field.name, is_so)
    elif isinstance(kind, ArrayType):
        for said, is_so in _flaws_of(kind.elementType, f"{path}[]", kind.containsNull):
            yield said, _of_any(lambda array: array, is_so)
    elif isinstance(kind, MapType):
        for said, is_so in _flaws_of(kind.valueType, f"{path}[]", kind.valueContainsNull):
            yield said, _of_any(F.map_values, is_so)
    elif isinstance(kind, (DoubleType, FloatType)):
        yield f"{path} is no {kind.simpleString()}", _is_no_number


def _flaws_of(kind: DataType, path: str, nullable: bool) -> Iterator[_Flaw]:
    """What may be wrong with what may be null."""
    if not nullable:
        yield f"{path} is missing", lambda found: found.isNull()
    for said, is_so in _flaws(kind, path):
        yield said, _if_there(is_so)


def _is_no_number(found: Column) -> Column:
    return F.isnan(found) | (F.abs(found) == float("inf"))


def _of_field(name: str, is_so: Callable[[Column], Column]) -> Callable[[Column], Column]:
    return lambda found: is_so(found.getField(name))


def _of_any(items: Callable[[Column], Column], is_so: Callable[[Column], Column]) -> Callable[[Column], Column]:
    return lambda found: F.exists(items(found), is_so)


def _if_there(is_so: Callable[[Column], Column]) -> Callable[[Column], Column]:
    return lambda found: found.isNotNull() & is_so(found)
