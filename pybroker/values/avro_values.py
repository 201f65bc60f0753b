"""Avro, by fastavro: schemas, given or from a file, the values that they read, and the types of Arrow that these have.

Owns which type of Arrow's a type of Avro's is. A UUID is text, a time of day the number that it is written as. A
logical type that does not fit what it stands on counts for nothing, as the specification has it. A value is Avro's
binary encoding, with or without the five bytes that serializers of a schema registry put in front
(`registry_header`). The schema's id in them is looked up where a registry is given, and nowhere else.

Bytes that are left over behind a value are an error: Avro's encoding has no marks, so that a value of another schema
often reads well up to there.
"""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from pybroker.values.registry_header import Header, parted, without_header
from pybroker.values.schema_registry import RegisteredSchema, SchemaRegistry

Schema: TypeAlias = str | Mapping[str, Any] | Path

FILE_SUFFIX = ".avsc"

_RECORD, _FIELD = "_InRecord", "value"
_OUT_OF_RANGE = "an index that is out of range"
# As many negative ones as a byte has.
_INDEXES_REFUSED = 64
_SHOWN_MAX = 100
# Where a schema has others.
_WITH_SCHEMAS = ("type", "items", "values", "fields")

_PRIMITIVES: dict[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
# With the type that each stands on.
_LOGICAL: dict[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
_DECIMALS = ("bytes", "fixed")
_DECIMAL_DIGITS_MAX = 38


def arrow_type(schema: Any) -> pa.DataType:
    """The type of Arrow's for a schema with full names (`parsed`); raises ValueError where there is none."""
    return _type(schema, {})


class Reader:
    """Reads values; pickled without what fastavro makes of the schemas."""

    def __init__(
        self, written: str, wanted: str | None, header: Header | None, registry: SchemaRegistry | None = None
    ) -> None:
        """Schemas as JSON with full names: that which a value is written by, and as which it is wanted.

        With ``registry`` each value is written by the schema of the id in its header, which is looked up there once.
        Then ``header`` has the id of ``written``, if that is known.
        """
        self._texts = (written, wanted)
        self._header = header
        self._registry = registry
        self._schemas: dict[int | None, tuple[Any, Any]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_schemas": {}}

    def __call__(self, value: bytes) -> Any:
        import fastavro

        written_by = None
        if self._registry is not None:
            found_id, value = parted(value)
            written_by = None if self._header == Header(found_id) else found_id
        elif self._header is not None:
            value = without_header(value, self._header)
        schemas = self._schemas.get(written_by)
        if schemas is None:
            schemas = self._schemas[written_by] = self._read_by(written_by)
        stream = io.BytesIO(value)
        found: Any = fastavro.schemaless_reader(stream, *schemas)
        if stream.tell() != len(value):
            raise ValueError(f"{len(value) - stream.tell()} bytes are left over behind the value")
        return found[_FIELD]

    def _read_by(self, schema_id: int | None) -> tuple[Any, Any]:
        """The schemas of fastavro's for values of an id, or for those of the schema that was given."""
        import fastavro

        texts = self._texts
        if schema_id is not None and self._registry is not None:
            texts = (json.dumps(registered_schema(self._registry.by_id(schema_id))), texts[1] or texts[0])
        # In a record, which is written as its fields are: fastavro leaves schemas of those alone, once parsed.
        written, wanted = (fastavro.parse_schema(_in_record(json.loads(text))) if text else None for text in texts)
        _guard(written)
        return written, wanted


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


def parsed(schema: Schema) -> Any:
    """The schema, with full names in the place of short ones."""
    if isinstance(schema, Path) or (isinstance(schema, str) and schema.strip().endswith(FILE_SUFFIX)):
        schema = Path(schema.strip() if isinstance(schema, str) else schema).read_text()
    try:
        return _with_full_names(_from_json(schema) if isinstance(schema, str) else schema)
    except RecursionError:
        raise ValueError("no schema of Avro's: it is nested too deep") from None


def _with_full_names(found: Any) -> Any:
    import fastavro

    try:
        parsed = fastavro.parse_schema(_plain(found))
    except (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType, KeyError, TypeError) as error:
        raise ValueError(f"no schema of Avro's: {type(error).__name__}: {error}") from error
    return _bare(parsed)


def registered_schema(found: RegisteredSchema) -> Any:
    """A registry's schema with full names, and with those inside that it refers to; raises ValueError."""
    import fastavro

    if found.kind != "AVRO":
        raise ValueError(f"schema {found.id} of the registry is {found.kind}, not AVRO")
    if not found.imported:
        # A registry names no file of this machine.
        return _with_full_names(_from_json(found.text))
    named: dict[str, Any] = {}
    try:
        for text in (*found.imported, found.text):
            whole = fastavro.parse_schema(_plain(_from_json(text)), named_schemas=named)
    except (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType) as error:
        raise ValueError(f"schema {found.id} of the registry: {type(error).__name__}: {error}") from error
    return _with_types_inside(_bare(whole), {name: _bare(each) for name, each in named.items()}, set())


def _with_types_inside(schema: Any, named: Mapping[str, Any], seen: set[str]) -> Any:
    """The schema, where each type of another one is written out at its first name."""
    if isinstance(schema, list):
        return [_with_types_inside(each, named, seen) for each in schema]
    if isinstance(schema, str):
        if schema not in named or schema in seen:
            return schema
        return _with_types_inside(named[schema], named, seen)
    if not isinstance(schema, dict):
        return schema
    if "name" in schema and "type" in schema and schema["name"] in named:
        seen.add(schema["name"])
    return {
        name: _with_types_inside(inner, named, seen) if name in _WITH_SCHEMAS else inner
        for name, inner in schema.items()
    }


def _from_json(text: str) -> Any:
    if text.strip() in _PRIMITIVES:
        return text.strip()
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"neither JSON nor the path of an {FILE_SUFFIX} file: {text[:_SHOWN_MAX]!r}") from error


def _plain(schema: Any) -> Any:
    """Without logical types that have no type of a column, or do not fit: what they stand on counts."""
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


def _logical_type(schema: Mapping[str, Any]) -> pa.DataType | None:
    kind, logical = schema.get("type"), schema["logicalType"]
    if logical != "decimal":
        return _LOGICAL.get((kind, logical)) if isinstance(kind, str) and isinstance(logical, str) else None
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if kind not in _DECIMALS or not isinstance(precision, int) or not isinstance(scale, int):
        return None
    if not 0 <= scale <= precision or precision == 0:
        return None
    if precision > _DECIMAL_DIGITS_MAX:
        raise ValueError(f"a decimal of {precision} digits is no type of a column, whose have {_DECIMAL_DIGITS_MAX}")
    return pa.decimal128(precision, scale)


def _type(schema: Any, named: dict[str, pa.DataType | None]) -> pa.DataType:
    if isinstance(schema, list):
        kinds = [kind for kind in schema if kind != "null"]
        if len(kinds) != 1:
            raise ValueError(f"a union of {len(kinds)} types is no type of a column: {json.dumps(schema)}")
        return _type(kinds[0], named)
    if isinstance(schema, str):
        if schema not in _PRIMITIVES and schema not in named:
            raise ValueError(f"{schema} is no type of a column")
        found = _PRIMITIVES.get(schema) or named[schema]
        if found is None:
            raise ValueError(f"{schema} contains itself, which no type of a column does")
        return found
    if "logicalType" in schema and (logical := _logical_type(schema)) is not None:
        return _remembered(schema, logical, named)
    kind = schema["type"]
    if kind in ("record", "error"):
        named[schema["name"]] = None
        fields = [pa.field(field["name"], _type(field["type"], named)) for field in schema["fields"]]
        return _remembered(schema, pa.struct(fields), named)
    if kind == "array":
        return pa.list_(_type(schema["items"], named))
    if kind == "map":
        return pa.map_(pa.string(), _type(schema["values"], named))
    if kind == "enum":
        return _remembered(schema, pa.string(), named)
    if kind == "fixed":
        return _remembered(schema, pa.binary(), named)
    return _type(kind, named)


def _remembered(schema: Mapping[str, Any], kind: pa.DataType, named: dict[str, pa.DataType | None]) -> pa.DataType:
    if "name" in schema:
        named[schema["name"]] = kind
    return kind
