"""Whether a value is what a schema of Avro's says, before it is written.

Owns that nothing changes on the way. fastavro alone cuts floats to integers, and writes integers that are too large for
their type. It takes anything for a boolean, and a field that is misspelt for one that is missing.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

_RECORDS = ("record", "error")
_FLOAT_MAX = (2 - 2**-23) * 2.0**127
_SHOWN_MAX = 50


def _is_integer(value: Any, bits: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(1 << bits - 1) <= value < 1 << bits - 1


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)


def _is_float(value: Any) -> bool:
    return _is_number(value) and (not math.isfinite(value) or abs(value) <= _FLOAT_MAX)


_FITS: dict[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "int": lambda value: _is_integer(value, 32),
    "long": lambda value: _is_integer(value, 64),
    "float": _is_float,
    "double": _is_number,
    "bytes": lambda value: isinstance(value, bytes),
    "string": lambda value: isinstance(value, str),
}


class Fitting:
    """Of one schema, as fastavro parses it."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._named = dict(_named(schema))

    def check(self, value: Any) -> None:
        """Raises ValueError, which names the field, where ``value`` is not what the schema says."""
        self._check(value, self._schema, "")

    def _check(self, value: Any, schema: Any, path: str) -> None:
        if isinstance(schema, list):
            self._check_union(value, schema, path)
        elif isinstance(schema, str):
            if schema in self._named:
                self._check(value, self._named[schema], path)
            elif not _FITS[schema](value):
                raise _mismatch(value, schema, path)
        elif "logicalType" in schema and _is_logical(value):
            if not _fits_logical(value, schema):
                raise _mismatch(value, _shown(schema), path)
        else:
            self._check_complex(value, schema, path)

    def _check_union(self, value: Any, kinds: list[Any], path: str) -> None:
        if value is None and "null" in kinds:
            return
        others = [kind for kind in kinds if kind != "null"]
        # Which of several is meant, fastavro finds, and what is none of them.
        if len(others) == 1:
            self._check(value, others[0], path)

    def _check_complex(self, value: Any, schema: Mapping[str, Any], path: str) -> None:
        kind = schema["type"]
        if kind in _RECORDS:
            self._check_record(value, schema, path)
        elif kind == "array":
            for item in _of(list, value, kind, path):
                self._check(item, schema["items"], f"{path}[]")
        elif kind == "map":
            for key, item in _of(dict, value, kind, path).items():
                self._check(item, schema["values"], f"{path}[{key!r}]")
        elif kind == "enum":
            if value not in schema["symbols"]:
                raise _mismatch(value, schema["name"], path)
        elif kind == "fixed":
            if not isinstance(value, bytes) or len(value) != schema["size"]:
                raise _mismatch(value, f"{schema['name']}, which has {schema['size']} bytes", path)
        else:
            self._check(value, kind, path)

    def _check_record(self, value: Any, schema: Mapping[str, Any], path: str) -> None:
        cells = _of(dict, value, schema["name"], path)
        kinds = {field["name"]: field for field in schema["fields"]}
        prefix = f"{path}." if path else ""
        for name in cells:
            if name not in kinds:
                raise ValueError(f"{prefix}{name} is no field of {schema['name']}, whose are {', '.join(kinds)}")
        for name, field in kinds.items():
            if name in cells:
                self._check(cells[name], field["type"], prefix + name)
            elif "default" not in field:
                raise ValueError(f"{prefix}{name} of {schema['name']} is missing, and has no default")


def _named(schema: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(schema, list):
        for kind in schema:
            yield from _named(kind)
    elif isinstance(schema, Mapping):
        if "name" in schema:
            yield schema["name"], schema
        for field in schema.get("fields", ()):
            yield from _named(field["type"])
        for inner in ("type", "items", "values"):
            yield from _named(schema.get(inner))


def _of(kind: type, value: Any, name: str, path: str) -> Any:
    if not isinstance(value, kind):
        raise _mismatch(value, name, path)
    return value


def _mismatch(value: Any, kind: str, path: str) -> ValueError:
    said = "null" if value is None else repr(value)[:_SHOWN_MAX]
    return ValueError(f"{path or 'the value'} is no {kind}: {said}")


def _is_logical(value: Any) -> bool:
    """Whether it is to become what the logical type stands on, and is none of that yet."""
    return isinstance(value, (Decimal, date, datetime))


def _fits_logical(value: Any, schema: Mapping[str, Any]) -> bool:
    logical = schema["logicalType"]
    if logical == "decimal":
        return isinstance(value, Decimal) and _fits_decimal(value, schema)
    if logical == "date":
        return isinstance(value, date) and not isinstance(value, datetime)
    return isinstance(value, datetime)


def _fits_decimal(value: Decimal, schema: Mapping[str, Any]) -> bool:
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return False
    more = exponent + int(schema.get("scale", 0))
    return more >= 0 and len(digits) + more <= int(schema["precision"])


def _shown(schema: Mapping[str, Any]) -> str:
    if schema["logicalType"] == "decimal":
        return f"decimal({schema['precision']},{schema.get('scale', 0)})"
    return str(schema["logicalType"])
