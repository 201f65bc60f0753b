"""Cells that have JSON, which DuckDB has a type for, and Arrow has as text.

Owns how a result's columns say that they have it, and how their cells are read where rows are printed as JSON.  A
number keeps its digits.  Pure.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, Final

import pyarrow as pa
from sqlglot import exp

from pybroker.sql.questions.row_output import Reader

# Of a field of Arrow: the type of DuckDB's, which has JSON.
_JSON_INSIDE: Final = b"duckdb.type"


def with_json_named(schema: pa.Schema, kinds: Sequence[Any]) -> pa.Schema:
    """The schema, where columns that have JSON say so: to Arrow it is text."""
    for at, kind in enumerate(map(str, kinds)):
        if "JSON" in kind:
            schema = schema.set(at, schema.field(at).with_metadata({_JSON_INSIDE: kind.encode()}))
    return schema


def json_inside(schema: pa.Schema) -> dict[int, Reader]:
    """How the columns of a result are read that have JSON, by their places."""
    named = ((at, (each.metadata or {}).get(_JSON_INSIDE)) for at, each in enumerate(schema))
    kinds = ((at, exp.DataType.build(kind.decode(), dialect="duckdb")) for at, kind in named if kind is not None)
    return {at: reader for at, kind in kinds if (reader := _reader(kind)) is not None}


def _reader(kind: exp.DataType) -> Reader | None:
    """None where there is no JSON inside."""
    if kind.is_type("json"):
        return _document
    if kind.is_type("array", "list", "map"):
        # The last one is that of a map's values; its keys are texts to JSON.
        inner = _reader(kind.expressions[-1])
        return None if inner is None else partial(_inside, inner)
    if kind.is_type("struct"):
        found = ((each.name, _reader(each.args["kind"])) for each in kind.expressions)
        readers = {name: reader for name, reader in found if reader is not None}
        return partial(_fields, readers) if readers else None
    return None


def _inside(inner: Reader, cell: Any) -> Any:
    """A list or a map, whose cells are read."""
    if isinstance(cell, dict):
        return {key: inner(each) for key, each in cell.items()}
    return cell and [inner(each) for each in cell]


def _fields(readers: Mapping[str, Reader], cell: dict[str, Any] | None) -> dict[str, Any] | None:
    return cell and {name: readers[name](each) if name in readers else each for name, each in cell.items()}


def _document(text: str | None) -> Any:
    """What a text of JSON says; the text where it is too deep for Python."""
    try:
        return None if text is None else json.loads(text, parse_float=_fraction)
    except (ValueError, RecursionError, ArithmeticError):
        return text


def _fraction(text: str) -> float | Decimal:
    """The number as Python's floats have it; a decimal where one of these is another number."""
    found, exact = float(text), Decimal(text)
    return found if math.isfinite(found) and Decimal(repr(found)) == exact else exact
