"""What does not fit inside of a value of JSON: DuckDB's parser makes it null there, and says nothing.

Owns the condition of SQL that finds it.  Where nothing inside is null all fits; only other values are looked at in
their text once more.  Pure.
"""

from __future__ import annotations

import json
from typing import Final

from sqlglot import exp

from pybroker.sql.parsing.column_types import parsed_type

_LISTS: Final = (exp.DType.ARRAY, exp.DType.LIST)
_NESTED: Final = (*_LISTS, exp.DType.STRUCT, exp.DType.MAP)
# All of JSON fits these.
_ANY: Final = (exp.DType.TEXT, exp.DType.VARCHAR, exp.DType.JSON)


def misfit_inside(value: str, document: str, kind: str) -> str | None:
    """The condition under which a value has a misfit inside; None for a type that has no inside.

    ``value`` and ``document`` are SQL: what the parser made of a field, and the field in JSON.
    """
    if "(" not in kind and "[" not in kind:
        return None
    tree = parsed_type(kind)
    return f"{_has_null(value, tree, 0)} AND {_is_wrong(document, tree, 0)}" if tree.this in _NESTED else None


def _has_null(value: str, kind: exp.DataType, depth: int) -> str:
    is_null = f"{value} IS NULL"
    if kind.this is exp.DType.STRUCT:
        inside = (_has_null(f"struct_extract({value}, {_literal(name)})", each, depth) for name, each in _fields(kind))
        return f"({' OR '.join((is_null, *inside))})"
    if (item := _item(kind)) is not None:
        items = f"map_values({value})" if kind.this is exp.DType.MAP else value
        return f"({is_null} OR {_any(items, depth, _has_null(f'i{depth}', item, depth + 1))})"
    return is_null


def _is_wrong(document: str, kind: exp.DataType, depth: int) -> str:
    if kind.this in _ANY:
        return "false"
    is_there = f"json_type({document}) <> 'NULL'"
    wrong = [] if kind.this is exp.DType.STRUCT else [f"from_json({document}, {_structure(kind)}) IS NULL"]
    if kind.this in _NESTED:
        wrong.append(f"json_type({document}) <> '{'ARRAY' if kind.this in _LISTS else 'OBJECT'}'")
    if kind.this is exp.DType.STRUCT:
        for name, each in _fields(kind):
            wrong.append(_is_wrong(f"json_extract({document}, {_literal(pointer(name))})", each, depth))
    elif (item := _item(kind)) is not None:
        path = "$.*" if kind.this is exp.DType.MAP else "$[*]"
        wrong.append(_any(f"json_extract({document}, '{path}')", depth, _is_wrong(f"i{depth}", item, depth + 1)))
    return f"({is_there} AND ({' OR '.join(wrong)}))"


def _any(items: str, depth: int, condition: str) -> str:
    return f"len(list_filter({items}, lambda i{depth}: {condition})) > 0"


def _fields(kind: exp.DataType) -> list[tuple[str, exp.DataType]]:
    return [(each.name, each.args["kind"]) for each in kind.expressions]


def _item(kind: exp.DataType) -> exp.DataType | None:
    """Of a list its item's type, and of a map its value's."""
    return kind.expressions[-1] if kind.this in (*_LISTS, exp.DType.MAP) and kind.expressions else None


def _structure(kind: exp.DataType) -> str:
    return _literal(json.dumps(kind.sql(dialect="duckdb"), ensure_ascii=False))


def _literal(text: str) -> str:
    return exp.Literal.string(text).sql(dialect="duckdb")


def pointer(field: str) -> str:
    """The place of a field, as JSON pointers have it."""
    return "/" + field.replace("~", "~0").replace("/", "~1")
