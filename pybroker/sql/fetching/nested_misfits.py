"""What does not fit inside of a value of JSON: DuckDB's parser makes it null there, and says nothing.

Owns the condition of SQL that finds it.  Only what is null is looked at in the text once more, because most values fit.
Pure.
"""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from pybroker.sql.parsing.column_types import parsed_type

_LISTS: Final = (exp.DType.ARRAY, exp.DType.LIST)


def misfit_inside(value: str, document: str, field: str, kind: str) -> str | None:
    """The condition under which a field's value has a misfit inside; None for a type that has no inside.

    ``value`` and ``document`` are SQL: what the parser made of the field, and the object that has it.
    """
    if "(" not in kind and "[" not in kind:
        return None
    tree = parsed_type(kind)
    is_nested = tree.this is exp.DType.STRUCT or _item(tree) is not None
    return _misfit(value, document, pointer(field), tree, 0) if is_nested else None


def _misfit(value: str, document: str, path: str, kind: exp.DataType, depth: int) -> str:
    told = f"json_type({document}, {_literal(path)})"
    if kind.this is exp.DType.STRUCT:
        fields = [(name, f"struct_extract({value}, {_literal(name)})", each) for name, each in _fields(kind)]
        inside = (_misfit(own, document, path + pointer(name), each, depth) for name, own, each in fields)
        # Of what is no object all fields are null.
        is_other = f"({_is_empty(value, kind)} AND {told} NOT IN ('OBJECT', 'NULL'))"
        return f"({' OR '.join((is_other, *inside))})"
    is_lost = f"({value} IS NULL AND {told} <> 'NULL')"
    item = _item(kind)
    if item is None:
        return is_lost
    pair = f"p{depth}"
    place = "$.*" if kind.this is exp.DType.MAP else "$[*]"
    documents = f"json_extract(json_extract({document}, {_literal(path)}), '{place}')"
    wrong = _misfit(f"{pair}[1]", f"{pair}[2]", "", item, depth + 1)
    has_wrong = _any(f"list_zip({_items(value, kind)}, {documents})", pair, wrong)
    return f"({is_lost} OR ({_has_null(value, kind, depth)} AND {has_wrong}))"


def _has_null(value: str, kind: exp.DataType, depth: int) -> str:
    """Whether a value is null, or something inside of it."""
    is_null = f"{value} IS NULL"
    if kind.this is exp.DType.STRUCT:
        inside = (_has_null(f"struct_extract({value}, {_literal(name)})", each, depth) for name, each in _fields(kind))
        return f"({' OR '.join((is_null, *inside))})"
    item = _item(kind)
    if item is None:
        return is_null
    return f"({is_null} OR {_any(_items(value, kind), f'i{depth}', _has_null(f'i{depth}', item, depth + 1))})"


def _is_empty(value: str, kind: exp.DataType) -> str:
    """Whether all fields of a struct are null."""
    if kind.this is not exp.DType.STRUCT:
        return f"{value} IS NULL"
    inside = (_is_empty(f"struct_extract({value}, {_literal(name)})", each) for name, each in _fields(kind))
    return " AND ".join(inside)


def _any(items: str, name: str, condition: str) -> str:
    return f"len(list_filter({items}, lambda {name}: {condition})) > 0"


def _items(value: str, kind: exp.DataType) -> str:
    return f"map_values({value})" if kind.this is exp.DType.MAP else f"{value}[:]"


def _fields(kind: exp.DataType) -> list[tuple[str, exp.DataType]]:
    return [(each.name, each.args["kind"]) for each in kind.expressions]


def _item(kind: exp.DataType) -> exp.DataType | None:
    """Of a list its item's type, and of a map its value's; None for what has no items."""
    return kind.expressions[-1] if kind.this in (*_LISTS, exp.DType.MAP) and kind.expressions else None


def _literal(text: str) -> str:
    return exp.Literal.string(text).sql(dialect="duckdb")


def pointer(field: str) -> str:
    """The place of a field, as JSON pointers have it."""
    return "/" + field.replace("~", "~0").replace("/", "~1")
