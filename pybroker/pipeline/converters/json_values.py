"""Decoders by Spark's own functions: JSON by a schema, text, bytes.

Owns the reason why a value does not fit.  Fields that the schema does not name are left out; fields that it names and a
value has not are null, and an error where the schema says that they may not be.  That holds within structs as well; of
an array or a map in which something does not fit, the field alone is told.
"""

from collections.abc import Iterator

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StringType, StructField, StructType, _parse_datatype_string

from pybroker.pipeline.converters.decoding import ERROR_SUFFIX, Decoder

_CORRUPT = "_corrupt"
# Spark's parsers stop behind the first value.  Where this comes next in an array with the value, there is no other one.
_NEXT = "9b6f0a5e-next"
_WITH_VALUES = (ArrayType, MapType, StructType)


def json_of(schema: StructType | str) -> Decoder:
    """Objects of JSON, as structs of ``schema``: a type of Spark's, or DDL (``id bigint not null, name string``)."""
    wanted = _parse_datatype_string(schema) if isinstance(schema, str) else schema
    if not isinstance(wanted, StructType):
        raise ValueError(f"a schema of JSON objects has fields; {wanted.simpleString()} has none")
    with_corrupt = StructType([*wanted.fields, StructField(_CORRUPT, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}

    def decoder(frame: DataFrame, name: str) -> DataFrame:
        text, read = f"{name}_text", f"{name}_read"
        found = frame.withColumn(text, F.col(name).cast("string"))
        found = found.withColumn(read, F.from_json(F.col(text), with_corrupt, options))
        fields = {field.name: F.col(read).getField(field.name) for field in wanted.fields}
        error = _json_error(F.col(text), F.col(read), wanted)
        found = found.withColumn(f"{name}{ERROR_SUFFIX}", error)
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
    misfits = F.concat_ws(", ", *_misfits(said, read, wanted))
    inside = [field.name for field in wanted.fields if isinstance(field.dataType, _WITH_VALUES)]
    unknown = f"a value in {' or '.join(inside)}" if inside else "a value"
    missing = list(_missing(F.lit(True), read, wanted))
    return (
        F.when(said.isNull(), None)
        .when(~F.is_valid_utf8(said), F.lit("is no UTF-8"))
        .when(~_is_one_value(said), F.lit("is no JSON"))
        .when(read.isNull() | ~F.startswith(F.trim(said), F.lit("{")), F.lit("is no JSON object"))
        .when(
            read.getField(_CORRUPT).isNotNull(),
            F.concat(F.lit("does not fit the schema: "), F.when(misfits != "", misfits).otherwise(unknown)),
        )
        .when(F.concat_ws("", *missing) != "", F.concat_ws(", ", *missing))
    )


def _is_one_value(said: Column) -> Column:
    array = F.try_parse_json(F.concat(F.lit("["), said, F.lit(f',"{_NEXT}"]')))
    return F.try_variant_get(array, "$[1]", "string").eqNullSafe(F.lit(_NEXT))


def _misfits(said: Column, read: Column, wanted: StructType, path: tuple[str, ...] = ()) -> Iterator[Column]:
    """What is there and could not be read: null, or the field and its type."""
    for field in wanted.fields:
        inner = (*path, field.name)
        found = read.getField(field.name)
        is_there = F.get_json_object(said, "$" + "".join(f"['{name}']" for name in inner)).isNotNull()
        yield F.when(is_there & found.isNull(), F.lit(f"{'.'.join(inner)} is no {field.dataType.simpleString()}"))
        if isinstance(field.dataType, StructType):
            yield from _misfits(said, found, field.dataType, inner)


def _missing(is_read: Column, read: Column, wanted: StructType, path: tuple[str, ...] = ()) -> Iterator[Column]:
    """What the schema wants and is not there, of what is read: null, or the field."""
    for field in wanted.fields:
        inner = (*path, field.name)
        found = read.getField(field.name)
        if not field.nullable:
            yield F.when(is_read & found.isNull(), F.lit(f"{'.'.join(inner)} is missing"))
        if isinstance(field.dataType, StructType):
            yield from _missing(is_read & found.isNotNull(), found, field.dataType, inner)
