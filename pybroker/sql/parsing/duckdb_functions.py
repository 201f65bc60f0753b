"""Functions of DuckDB's by whose names Spark does another thing, or nothing: sqlglot writes them as they are.

Owns the table: a function is one row of it.  What sqlglot translates rightly is not there.  Pure.
"""

from __future__ import annotations

import re
from typing import Final

from sqlglot import exp

from pybroker.sql.parsing.expression_templates import made
from pybroker.sql.sql_errors import SqlError

# Days of the week: DuckDB counts from Sunday, which is 0, and ISO from Monday, which is 1; Spark's Sunday is 1.
_FROM_SUNDAY, _FROM_MONDAY = "dayofweek(_0) - 1", "weekday(_0) + 1"
_SECONDS: Final = "unix_micros(CAST(_0 AS TIMESTAMP)) / 1e6"
_NODES: Final[dict[type[exp.Expr], str]] = {
    exp.DayOfWeek: _FROM_SUNDAY,
    exp.DayOfWeekIso: _FROM_MONDAY,
    exp.Week: "weekofyear(_0)",
    exp.Dayname: "date_format(_0, 'EEEE')",
    exp.Monthname: "date_format(_0, 'MMMM')",
    exp.TimeToUnix: _SECONDS,
}
_NAMES: Final = {"weekday": _FROM_SUNDAY, "strlen": "octet_length(_0)"}
# Of EXTRACT and date_part, which have no fraction of a second to DuckDB.
_PARTS: Final = {
    **dict.fromkeys(("dow", "dayofweek", "weekday"), _FROM_SUNDAY),
    **dict.fromkeys(("second", "seconds", "sec", "s"), "second(_0)"),
    "isodow": _FROM_MONDAY,
    "epoch": _SECONDS,
}
_ITEMS: Final = frozenset(("list_extract", "list_element", "array_extract"))
_SLICES: Final = frozenset(("list_slice", "array_slice"))
_PLACES: Final = ("list_position", "list_indexof", "array_position", "array_indexof")
_OF_PARTS: Final = frozenset(("date_part", "datepart"))
# A number of characters below 0 leaves out so many to DuckDB, and is none to Spark; a place 0 is before the first one.
_LENGTH: Final = "CASE WHEN _1 < 0 THEN greatest(length(_0) + _1, 0) ELSE _1 END"
_CHARACTERS: Final = {exp.Left: f"left(_0, {_LENGTH})", exp.Right: f"right(_0, {_LENGTH})"}
_BEFORE_FIRST: Final = "substr(_0, _1, CASE WHEN _1 = 0 THEN _2 - 1 ELSE _2 END)"
_SLICE: Final = "slice(_0, _1, greatest(_2 - _1 + 1, 0))"  # by a length, where DuckDB has the last one's place

# A group, or a sign that would begin one of Java's.
_GROUP: Final = re.compile(r"\\(\d)|\$")
_BACKSLASH: Final = "\\"

# By the number of arguments.  Of three the last one is what a list is reduced from on.
_FROM_FIRST: Final = "reduce(slice(_0, 2, greatest(size(_0) - 1, 0)), try_element_at(_0, 1), _1)"
_BY_COUNT: Final = {
    **dict.fromkeys(((name, 2) for name in _PLACES), "CAST(nullif(array_position(_0, _1), 0) AS INT)"),
    ("list_distinct", 1): "array_compact(array_distinct(_0))",
    **dict.fromkeys((("list_reduce", 2), ("array_reduce", 2)), _FROM_FIRST),
    **dict.fromkeys((("list_reduce", 3), ("array_reduce", 3)), "reduce(_0, _2, _1)"),
}


def for_spark(tree: exp.Expr) -> None:
    """Have expressions in their place by which Spark does what DuckDB does."""
    for count in tree.find_all(exp.Count):
        if count.this is None:
            count.set("this", exp.Star())
    for division in list(tree.find_all(exp.Div, exp.IntDiv, exp.Mod)):
        _without_zero(division.expression)
    for listed in list(tree.find_all(exp.ArrayAgg)):
        if isinstance(listed.this, exp.Distinct) and len(listed.this.expressions) == 1:
            unique = exp.ArrayUniqueAgg(this=listed.this.expressions[0].copy())
            unique.meta.update(listed.meta)
            listed.replace(unique)
    for chosen in list(tree.find_all(exp.ArgMax, exp.ArgMin)):
        # A row without a value is none to choose.
        is_there = exp.Not(this=exp.Is(this=chosen.this.copy(), expression=exp.null()))
        chosen.set("expression", exp.Case().when(is_there, chosen.expression.copy()))
    for made_map in reversed(list(tree.find_all(exp.ToMap))):
        pairs = [part.copy() for each in made_map.this.expressions for part in (each.this, each.expression)]
        made_map.replace(exp.Anonymous(this="MAP", expressions=pairs))
    for like in tree.find_all(exp.Like, exp.ILike):
        if not isinstance(like.parent, exp.Escape):
            _without_escape(like.expression)
    for replaced in list(tree.find_all(exp.RegexpReplace)):
        _replace_all(replaced)
    kinds = (
        exp.Anonymous,
        exp.ArrayConcat,
        exp.ArraySlice,
        exp.Bracket,
        exp.DateDiff,
        exp.Extract,
        exp.Log,
        exp.Substring,
    )
    found = list(tree.find_all(*_NODES, *_CHARACTERS, *kinds))
    for node in reversed(found):  # what is inside first: an argument may stand in several places then
        other = _in_spark(node)
        if other is not None:
            node.replace(other)


def _in_spark(node: exp.Expr) -> exp.Expr | None:
    """None where Spark means the same."""
    if isinstance(node, exp.Extract):
        return _made(_PARTS.get(node.name.lower()), node.expression)
    if isinstance(node, exp.Log):
        # Of one argument it is the common logarithm to DuckDB, and the natural one to Spark.
        return _made("log10(_0)" if node.args.get("expression") is None else None, node.this)
    if isinstance(node, exp.Left | exp.Right):
        return _made(None if _is_above(node.expression, -1) else _CHARACTERS[type(node)], node.this, node.expression)
    if isinstance(node, exp.Substring):
        place, length = node.args.get("start"), node.args.get("length")
        if place is None or length is None or _is_above(place, 0):
            return None
        return _made(_BEFORE_FIRST, node.this, place, length)
    if isinstance(node, exp.DateDiff):
        return _made(_boundaries(node.text("unit").upper()), node.expression, node.this)
    if isinstance(node, exp.ArraySlice):
        bounds = (node.args.get("start"), node.args.get("end"))
        return _slice(node.this, *filter(None, bounds)) if None not in bounds else None
    if isinstance(node, exp.ArrayConcat):
        return (
            _made("coalesce(concat(_0, _1), _0, _1)", node.this, *node.expressions)
            if len(node.expressions) == 1
            else None
        )
    if isinstance(node, exp.Bracket):
        return _item_of_brackets(node)
    if isinstance(node, exp.Anonymous):
        arguments = node.expressions
        if node.name.lower() in _ITEMS and len(arguments) == 2:
            return _item(arguments[0], arguments[1])
        if node.name.lower() in _SLICES and len(arguments) == 3:
            return _slice(*arguments)
        by_count = _BY_COUNT.get((node.name.lower(), len(arguments)))
        if by_count is not None:
            return _made(by_count, *arguments)
        if node.name.lower() in _OF_PARTS and len(arguments) == 2:
            return _made(_PARTS.get(arguments[0].name.lower()), arguments[1])
        return _made(_NAMES.get(node.name.lower()), arguments[0]) if len(arguments) == 1 else None
    return _made(_NODES[type(node)], node.this)


def _without_zero(divisor: exp.Expr) -> None:
    """Have a quotient by zero be null: it ends a query of Spark's, and to DuckDB it is infinite."""
    if not (divisor.is_number and divisor.to_py()):
        divisor.replace(exp.Nullif(this=divisor.unnest().copy(), expression=exp.Literal.number(0)))


def _is_above(node: exp.Expr, bound: int) -> bool:
    """Whether an expression is a number, and above another one."""
    return node.is_int and int(node.to_py()) > bound


def _without_escape(pattern: exp.Expr) -> None:
    """Have a backslash be itself in a pattern of LIKE: it is one to DuckDB, and says to Spark that a sign is itself."""
    if isinstance(pattern, exp.Any | exp.All):
        several = pattern.this.unnest()
        for each in list(several.expressions) if isinstance(several, exp.Tuple | exp.Array) else ():
            _without_escape(each)
    elif not pattern.is_string:
        both = [exp.Literal.string(text) for text in (_BACKSLASH, _BACKSLASH * 2)]
        pattern.replace(exp.Replace(this=pattern.copy(), expression=both[0], replacement=both[1]))
    elif _BACKSLASH in pattern.name:
        pattern.replace(exp.Literal.string(pattern.name.replace(_BACKSLASH, _BACKSLASH * 2)))


def _replace_all(node: exp.RegexpReplace) -> None:
    """Have Spark's groups in a replacement, and its words for an option; ``SqlError`` for the first match alone."""
    options = node.text("modifiers")
    if "g" not in options:
        raise SqlError(f"a standing query replaces all matches, and regexp_replace says so by 'g{options}'")
    if "i" in options:
        node.set("expression", exp.DPipe(this=exp.Literal.string("(?i)"), expression=node.expression.copy()))
    replacement = node.args.get("replacement")
    if replacement is not None and replacement.is_string:
        text = _GROUP.sub(lambda at: f"${at[1]}" if at[1] else r"\$", replacement.name)
        replacement.replace(exp.Literal.string(text))
    node.set("modifiers", None)


def _item_of_brackets(node: exp.Bracket) -> exp.Expr | None:
    """sqlglot has taken 1 off where the place is a number."""
    if len(node.expressions) > 1 or node.expressions[0].is_string or isinstance(node.expressions[0], exp.Slice):
        return None
    (place,) = exp.apply_index_offset(node.this, [node.expressions[0].copy()], 1, dialect="duckdb")
    return _item(node.this, place)


def _item(of: exp.Expr, place: exp.Expr) -> exp.Expr:
    """An item of a list by its place, or of a map; where there is none it is null, which ends a query of Spark's.

    The first place is 1.
    """
    place = place.copy()
    if not place.is_int or place.to_py() == 0:
        place = exp.Nullif(this=place, expression=exp.Literal.number(0))
    return exp.Anonymous(this="TRY_ELEMENT_AT", expressions=[of.copy(), place])


def _slice(of: exp.Expr, first: exp.Expr, last: exp.Expr) -> exp.Expr | None:
    """A part of a list; place 0, which ends a query of Spark's, is the first one's."""
    if not _is_above(first, 0):
        place = made("CASE WHEN _0 = 0 THEN 1 ELSE _0 END", "spark", [first])
        return _made(_SLICE, of, place, last)
    return _made(_SLICE, of, first, last)


def _boundaries(unit: str) -> str:
    """DuckDB counts the begins of units between two times, of weeks whole ones of days; Spark what is whole."""
    rounded = "DAY" if unit == "WEEK" else unit
    return f"timestampdiff({unit}, date_trunc('{rounded}', _0), date_trunc('{rounded}', _1))"


def _made(template: str | None, *arguments: exp.Expr) -> exp.Expr | None:
    return None if template is None else made(template, "spark", arguments)
