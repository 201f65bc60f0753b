"""The schema that Kafka Connect's JsonConverter writes beside a value (``schemas.enable``), of Spark's types."""

from __future__ import annotations

from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StructType,
)

_SIMPLE: dict[type[DataType], str] = {
    BinaryType: "bytes",
    BooleanType: "boolean",
    ByteType: "int8",
    DoubleType: "double",
    FloatType: "float",
    IntegerType: "int32",
    LongType: "int64",
    ShortType: "int16",
}


def envelope_of(kind: DataType, *, is_optional: bool = True) -> dict[str, Any]:
    """The schema of a type.  Dates, times and decimals are strings, because the payload has them as texts."""
    if isinstance(kind, StructType):
        fields = [{**envelope_of(each.dataType, is_optional=each.nullable), "field": each.name} for each in kind.fields]
        return {"type": "struct", "fields": fields, "optional": is_optional}
    if isinstance(kind, ArrayType):
        return {"type": "array", "items": envelope_of(kind.elementType), "optional": is_optional}
    if isinstance(kind, MapType):
        values = envelope_of(kind.valueType)
        keys = {"type": "string", "optional": False}
        return {"type": "map", "keys": keys, "values": values, "optional": is_optional}
    return {"type": _SIMPLE.get(type(kind), "string"), "optional": is_optional}
