"""Avro, by fastavro: a schema given, or from a file.

Owns which type of Spark's a type of Avro's is.  A UUID is text, a time of day the number that it is written as.  A
logical type that does not fit what it stands on counts for nothing, as the specification has it.  A value is Avro's
binary encoding, with or without the five bytes that serializers of a schema registry put in front
(`registry.without_header`); the schema's id in them is not looked up.

Bytes that are left over behind a value are an error: Avro's encoding has no marks, so that a value of another schema
often reads well up to there.
"""

import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from pyspark.sql import Column
from pyspark.sql import types as T

from pybroker.pipeline.converters.arrow_decoding import decoder_of, encoder_of
from pybroker.pipeline.converters.avro_fitting import Fitting
from pybroker.pipeline.converters.decoding import Decoder
from pybroker.pipeline.converters.registry import checked_header, without_header

Schema: TypeAlias = str | Mapping[str, Any] | Path

FILE_SUFFIX = ".avsc"

_RECORD, _FIELD = "_InRecord", "value"
_OUT_OF_RANGE = "an index that is out of range"
# As many negative ones as a byte has.
_INDEXES_REFUSED = 64
_SHOWN_MAX = 100
# Where a schema has others.
_WITH_SCHEMAS = ("type", "items", "values", "fields")

_PRIMITIVES: dict[str, T.DataType] = {
    "null": T.NullType(),
    "boolean": T.BooleanType(),
    "int": T.IntegerType(),
    "long": T.LongType(),
    "float": T.FloatType(),
    "double": T.DoubleType(),
    "bytes": T.BinaryType(),
    "string": T.StringType(),
}
# With the type that each stands on.
_LOGICAL: dict[tuple[str, str], T.DataType] = {
    ("int", "date"): T.DateType(),
    ("long", "timestamp-millis"): T.TimestampType(),
    ("long", "timestamp-micros"): T.TimestampType(),
    ("long", "local-timestamp-millis"): T.TimestampNTZType(),
    ("long", "local-timestamp-micros"): T.TimestampNTZType(),
}
_DECIMALS = ("bytes", "fixed")
_DECIMAL_DIGITS_MAX = 38


def avro_of(schema: Schema, *, reader: Schema | None = None, registry_header: bool | int = False) -> Decoder:
    """Values written by ``schema``, as ``reader`` (a newer or older one) would have them, where it is given.

    ``registry_header`` is the id in a schema registry that the values' header has to have, or True for any.  By True, a
    value of another version is read as if it were of this one, which may well succeed, with wrong fields.

    A schema is JSON, what JSON says, or the path of a file (``.avsc``).

    Raises ValueError for a schema that is none or has no type of Spark's, and OSError for a file that cannot be read.
    """
    written = _parsed(schema)
    wanted = written if reader is None else _parsed(reader)
    read = _Reader(json.dumps(written), None if reader is None else json.dumps(wanted), checked_header(registry_header))
    return decoder_of(read, spark_type(wanted))


def to_avro(schema: Schema) -> Callable[[Column], Column]:
    """An encoder: of a column of structs, their bytes; null stays null.

    What is not as the schema says ends the query with the name of the field: one that the schema does not name, that is
    missing and has no default, or that does not fit its type.
    """
    return encoder_of(_Writer(json.dumps(_parsed(schema))))


def spark_type(schema: Any) -> T.DataType:
    """The type of Spark's for a schema with full names (`_parsed`); raises ValueError where there is none."""
    return _type(schema, {})


class _Reader:
    """Pickled without what fastavro makes of the schemas."""

    def __init__(self, written: str, wanted: str | None, registry_header: bool | int) -> None:
        self._texts = (written, wanted)
        self._registry_header = registry_header
        self._schemas: tuple[Any, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_schemas": None}

    def __call__(self, value: bytes) -> Any:
        import fastavro

        if self._schemas is None:
            # In a record, which is written as its fields are: fastavro leaves schemas of those alone, once parsed.
            written, wanted = (
                fastavro.parse_schema(_in_record(json.loads(text))) if text else None for text in self._texts
            )
            _guard(written)
            self._schemas = (written, wanted)
        if self._registry_header is not False:
            value = without_header(value, self._registry_header)
        stream = io.BytesIO(value)
        found: Any = fastavro.schemaless_reader(stream, *self._schemas)
        if stream.tell() != len(value):
            raise ValueError(f"{len(value) - stream.tell()} bytes are left over behind the value")
        return found[_FIELD]


class _Writer:
    def __init__(self, schema: str) -> None:
        self._text = schema
        self._made: tuple[Any, Fitting] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": None}

    def __call__(self, value: Any) -> bytes:
        import fastavro

        if self._made is None:
            schema = fastavro.parse_schema(json.loads(self._text))
            self._made = (schema, Fitting(schema))
        schema, fitting = self._made
        fitting.check(value)
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, schema, value, strict_allow_default=True)
        return stream.getvalue()


class _Symbols(dict[int, str]):
    """Those of an enum, by their indexes."""

    def __missing__(self, index: int) -> str:
        raise ValueError(f"symbol {index} of an enum that has {len(self)}")


def _in_record(schema: Any) -> Any:
    return {"type": "record", "name": _RECORD, "fields": [{"name": _FIELD, "type": schema}]}


def _guard(schema: Any) -> None:
    """Has indexes that are out of range fail, where fastavro counts negative ones from the end.

    A union has to be a list, so its end is filled with what is no type.  That is enough for every negative index of one
    byte; those of two that lie just before the filling are still taken for the union's own types.  A longer filling
    costs time with each value.
    """
    if isinstance(schema, list):
        for kind in schema:
            _guard(kind)
        schema += [_OUT_OF_RANGE] * _INDEXES_REFUSED
    elif isinstance(schema, dict):
        if isinstance(schema.get("symbols"), list):
            schema["symbols"] = _Symbols(enumerate(schema["symbols"]))
        for inner in ("type", "items", "values"):
            _guard(schema.get(inner))
        for field in schema.get("fields", ()):
            _guard(field["type"])
        for kind in schema.get("__named_schemas", {}).values():
            _guard(kind)


def _parsed(schema: Schema) -> Any:
    """The schema, with full names in the place of short ones."""
    import fastavro

    if isinstance(schema, Path) or (isinstance(schema, str) and schema.strip().endswith(FILE_SUFFIX)):
        schema = Path(schema.strip() if isinstance(schema, str) else schema).read_text()
    found = _from_json(schema) if isinstance(schema, str) else schema
    try:
        parsed = fastavro.parse_schema(_plain(found))
    except (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType, KeyError, TypeError) as error:
        raise ValueError(f"no schema of Avro's: {type(error).__name__}: {error}") from error
    return _bare(parsed)


def _from_json(text: str) -> Any:
    if text.strip() in _PRIMITIVES:
        return text.strip()
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"neither JSON nor the path of an {FILE_SUFFIX} file: {text[:_SHOWN_MAX]!r}") from error


def _plain(schema: Any) -> Any:
    """Without logical types that have no type of Spark's, or do not fit: what they stand on counts."""
    if isinstance(schema, list):
        return [_plain(kind) for kind in schema]
    if not isinstance(schema, Mapping):
        return schema
    made = {name: _plain(inner) if name in _WITH_SCHEMAS else inner for name, inner in schema.items()}
    if "logicalType" in made and _logical_type(made) is None:
        del made["logicalType"]
    return made


def _bare(schema: Any) -> Any:
    """Without what fastavro notes in a schema for itself."""
    if not isinstance(schema, dict):
        return schema
    return {name: inner for name, inner in schema.items() if not name.startswith("__")}


def _logical_type(schema: Mapping[str, Any]) -> T.DataType | None:
    kind, logical = schema.get("type"), schema["logicalType"]
    if logical != "decimal":
        return _LOGICAL.get((kind, logical)) if isinstance(kind, str) and isinstance(logical, str) else None
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if kind not in _DECIMALS or not isinstance(precision, int) or not isinstance(scale, int):
        return None
    if not 0 <= scale <= precision or precision == 0:
        return None
    if precision > _DECIMAL_DIGITS_MAX:
        raise ValueError(f"a decimal of {precision} digits has no type of Spark's, whose have {_DECIMAL_DIGITS_MAX}")
    return T.DecimalType(precision, scale)


def _type(schema: Any, named: dict[str, T.DataType | None]) -> T.DataType:
    if isinstance(schema, list):
        kinds = [kind for kind in schema if kind != "null"]
        if len(kinds) != 1:
            raise ValueError(f"a union of {len(kinds)} types has no type of Spark's: {json.dumps(schema)}")
        return _type(kinds[0], named)
    if isinstance(schema, str):
        if schema not in _PRIMITIVES and schema not in named:
            raise ValueError(f"{schema} has no type of Spark's")
        found = _PRIMITIVES.get(schema) or named[schema]
        if found is None:
            raise ValueError(f"{schema} contains itself, which no type of Spark's does")
        return found
    if "logicalType" in schema and (logical := _logical_type(schema)) is not None:
        return _remembered(schema, logical, named)
    kind = schema["type"]
    if kind in ("record", "error"):
        named[schema["name"]] = None
        fields = [T.StructField(field["name"], _type(field["type"], named)) for field in schema["fields"]]
        return _remembered(schema, T.StructType(fields), named)
    if kind == "array":
        return T.ArrayType(_type(schema["items"], named))
    if kind == "map":
        return T.MapType(T.StringType(), _type(schema["values"], named))
    if kind == "enum":
        return _remembered(schema, T.StringType(), named)
    if kind == "fixed":
        return _remembered(schema, T.BinaryType(), named)
    return _type(kind, named)


def _remembered(schema: Mapping[str, Any], kind: T.DataType, named: dict[str, T.DataType | None]) -> T.DataType:
    if "name" in schema:
        named[schema["name"]] = kind
    return kind
