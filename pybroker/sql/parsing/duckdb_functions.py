"""Functions of DuckDB's by whose names Spark does another thing, or nothing: sqlglot writes them as they are.

Owns the table: a function is one row of it.  What sqlglot translates rightly is not there.  Pure.
"""

from __future__ import annotations

from typing import Final

import sqlglot
from sqlglot import exp

# Days of the week: DuckDB counts from Sunday, which is 0, and ISO from Monday, which is 1; Spark's Sunday is 1.
_FROM_SUNDAY, _FROM_MONDAY = "dayofweek(_0) - 1", "weekday(_0) + 1"
_NODES: Final[dict[type[exp.Expr], str]] = {
    exp.DayOfWeek: _FROM_SUNDAY,
    exp.DayOfWeekIso: _FROM_MONDAY,
    exp.Week: "weekofyear(_0)",
    exp.Dayname: "date_format(_0, 'EEEE')",
    exp.Monthname: "date_format(_0, 'MMMM')",
}
_NAMES: Final = {"weekday": _FROM_SUNDAY}
# Of EXTRACT and date_part.
_PARTS: Final = {**dict.fromkeys(("dow", "dayofweek", "weekday"), _FROM_SUNDAY), "isodow": _FROM_MONDAY}


def for_spark(tree: exp.Expr) -> None:
    """Have expressions in their place by which Spark does what DuckDB does."""
    for node in list(tree.find_all(*_NODES, exp.Anonymous, exp.Extract, exp.Log)):
        found = _in_spark(node)
        if found is not None:
            node.replace(found)


def _in_spark(node: exp.Expr) -> exp.Expr | None:
    """None where Spark means the same."""
    if isinstance(node, exp.Extract):
        return _made(_PARTS.get(node.name.lower()), node.expression)
    if isinstance(node, exp.Log):
        # Of one argument it is the common logarithm to DuckDB, and the natural one to Spark.
        return _made("log10(_0)" if node.args.get("expression") is None else None, node.this)
    if isinstance(node, exp.Anonymous):
        arguments = node.expressions
        if node.name.lower() == "date_part" and len(arguments) == 2:
            return _made(_PARTS.get(arguments[0].name.lower()), arguments[1])
        return _made(_NAMES.get(node.name.lower()), arguments[0]) if len(arguments) == 1 else None
    return _made(_NODES[type(node)], node.this)


def _made(template: str | None, argument: exp.Expr) -> exp.Expr | None:
    if template is None:
        return None
    made = sqlglot.parse_one(template, dialect="spark")
    for column in list(made.find_all(exp.Column)):
        column.replace(argument)
    return exp.paren(made) if isinstance(made, exp.Binary) else made
