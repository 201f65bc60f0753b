"""The SQL by which DuckDB reads a text, or a value of JSON, as a column's type, and writes one.

Owns which texts are of a type (`pybroker.values.text_spellings`), and what JSON has in place of times and bytes.  A
number is milliseconds to a timestamp or a time, and days to a date, as ksqlDB writes them.  Bytes are base64.  Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from sqlglot import exp

from pybroker.sql.parsing.column_types import parsed_type, type_of_text
from pybroker.values.text_spellings import (
    BASE64,
    BOOLEAN,
    COUNT,
    DAY_MAX,
    DAY_MIN,
    DECIMAL,
    FLOAT,
    INTEGER,
    MS_PER_DAY,
)

_LISTS: Final = (exp.DType.ARRAY, exp.DType.LIST)
_TIMESTAMPS: Final = (
    *(exp.DType.TIMESTAMP, exp.DType.TIMESTAMPNTZ, exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPLTZ),
    *(exp.DType.TIMESTAMP_S, exp.DType.TIMESTAMP_MS, exp.DType.TIMESTAMP_NS, exp.DType.DATETIME),
)
_BYTES: Final = (exp.DType.VARBINARY, exp.DType.BINARY, exp.DType.BLOB)
_FLOATS: Final = (exp.DType.FLOAT, exp.DType.DOUBLE)
# What becomes of a value of a type that has no parts; None where it stays.
_Leaf: TypeAlias = Callable[[str, exp.DataType], str | None]


def read_of_text(text: str, kind: str) -> str:
    """A text as a type; null where it is none."""
    tree = parsed_type(kind)
    if (found := _of_count(text, tree)) is not None:
        return found
    if (spelling := _spelling(tree)) is not None:
        return f"CASE WHEN regexp_full_match({text}, '{spelling}') THEN TRY_CAST({text} AS {kind}) END"
    return _cast(text, kind)


def type_in_json(kind: str) -> str:
    """The type that JSON's parser reads in place of a column's; `read_of_json` makes the column's of it."""
    tree = parsed_type(kind)
    texts = [part for part in tree.find_all(exp.DataType) if _is_text_in_json(part)]
    for part in texts:
        part.set("this", exp.DType.TEXT)
        part.set("expressions", [])
    return type_of_text(tree.sql(dialect="duckdb") if texts else kind)


def read_of_json(value: str, kind: str) -> str | None:
    """What the parser has read by `type_in_json`, as the column's type; None where it is that already."""
    if type_in_json(kind) == kind:
        return None
    return f"CAST({_mapped(value, parsed_type(kind), _leaf_of_json, 0) or value} AS {kind})"


def written_as_json(value: str, kind: str) -> str:
    """A value as ``to_json`` is to have it."""
    return _mapped(value, parsed_type(kind), _leaf_to_json, 0) or value


def _mapped(value: str, kind: exp.DataType, leaf: _Leaf, depth: int) -> str | None:
    """A value whose leaves are others; None where all of them stay.  Keys of maps stay."""
    each = f"x{depth}"
    if kind.this is exp.DType.STRUCT:
        parts = [(part.name, part.args["kind"]) for part in kind.expressions]
        own = [(name, f"struct_extract({value}, {_literal(name)})", part) for name, part in parts]
        made = [(name, found, _mapped(found, part, leaf, depth)) for name, found, part in own]
        if all(other is None for _, _, other in made):
            return None
        fields = ", ".join(f"{_quoted(name)} := {other or found}" for name, found, other in made)
        return f"CASE WHEN {value} IS NOT NULL THEN struct_pack({fields}) END"
    if kind.this in _LISTS and kind.expressions:
        item = _mapped(each, kind.expressions[-1], leaf, depth + 1)
        return None if item is None else f"list_transform({value}[:], lambda {each}: {item})"
    if kind.this is exp.DType.MAP and kind.expressions:
        item = _mapped(each, kind.expressions[-1], leaf, depth + 1)
        if item is None:
            return None
        values = f"list_transform(map_values({value}), lambda {each}: {item})"
        return f"CASE WHEN {value} IS NOT NULL THEN map(map_keys({value}), {values}) END"
    return leaf(value, kind)


def _leaf_of_json(text: str, kind: exp.DataType) -> str | None:
    if kind.this in _BYTES:
        return f"CASE WHEN regexp_full_match({text}, '{BASE64}') THEN from_base64({text}) END"
    return _of_count(text, kind)


def _leaf_to_json(value: str, kind: exp.DataType) -> str | None:
    return f"to_base64({value})" if kind.this in _BYTES else None


def _is_text_in_json(kind: exp.DataType) -> bool:
    """Not so the key of a map, which stays as the parser reads it."""
    is_key = isinstance(kind.parent, exp.DataType) and kind.parent.this is exp.DType.MAP and kind.index == 0
    return kind.this in (*_BYTES, *_TIMESTAMPS, exp.DType.DATE, exp.DType.TIME) and not is_key


def _of_count(text: str, kind: exp.DataType) -> str | None:
    """A text as a time, which may be a number; None for another type."""
    number, spelled = f"TRY_CAST({text} AS BIGINT)", kind.sql(dialect="duckdb")
    if kind.this in _TIMESTAMPS:
        time = f"TRY(make_timestamp_ms({number}))"
    elif kind.this is exp.DType.DATE:
        days = f"TRY_CAST({text} AS INTEGER)"
        time = f"CASE WHEN {days} BETWEEN {DAY_MIN} AND {DAY_MAX} THEN DATE '1970-01-01' + {days} END"
    elif kind.this is exp.DType.TIME:
        is_one = f"{number} BETWEEN 0 AND {MS_PER_DAY - 1}"
        time = f"CASE WHEN {is_one} THEN TIME '00:00' + to_milliseconds({number}) END"
    else:
        return None
    as_count = f"regexp_full_match({text}, '{COUNT}')"
    return f"CASE WHEN {as_count} THEN CAST({time} AS {spelled}) ELSE {_cast(text, spelled)} END"


def _cast(text: str, kind: str) -> str:
    read_as = type_of_text(kind)
    found = f"TRY_CAST({text} AS {read_as})"
    return found if read_as == kind else f"CAST({found} AS {kind})"


def _spelling(kind: exp.DataType) -> str | None:
    """The pattern of the texts that are of a type; None where the cast alone says it."""
    if kind.this in exp.DataType.INTEGER_TYPES:
        return INTEGER
    if kind.this is exp.DType.DECIMAL:
        return DECIMAL
    if kind.this in _FLOATS:
        return FLOAT
    return BOOLEAN if kind.this is exp.DType.BOOLEAN else None


def _literal(text: str) -> str:
    return exp.Literal.string(text).sql(dialect="duckdb")


def _quoted(name: str) -> str:
    return exp.to_identifier(name, quoted=True).sql(dialect="duckdb")
