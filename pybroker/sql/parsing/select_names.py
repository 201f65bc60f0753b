"""Names that SELECT gives to expressions, where the query uses them: in WHERE, in HAVING, and behind themselves.

Owns what such a name means: DuckDB knows it there, and Spark's expressions over a row do not.  Owns the numbers that
stand for columns, too.  Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from sqlglot import exp

from pybroker.sql.sql_errors import SqlError

T = TypeVar("T")


def numbered(wanted: exp.Expr, columns: Sequence[T], clause: str) -> T:
    """The column that a whole number in ``clause`` stands for, from 1 on; ``SqlError`` for one that is not there."""
    number = int(wanted.name)
    if not 0 < number <= len(columns):
        raise SqlError(f"SELECT has no column {number}, which {clause} names")
    return columns[number - 1]


def inline_names(tree: exp.Select, is_column: Callable[[str], object]) -> None:
    """Have the expressions be in place of their names.

    ``is_column`` says whether a topic has a column of a name, which then is what is meant; in HAVING it is not.
    """
    known: dict[str, exp.Expr] = {}
    hidden: dict[str, exp.Expr] = {}
    for each in list(tree.expressions):
        if not isinstance(each, exp.Column):
            _inline(each, hidden)
        if isinstance(each, exp.Alias):
            known.setdefault(each.alias.lower(), each.this)
            if not is_column(each.alias.lower()):
                hidden.setdefault(each.alias.lower(), each.this)
    for clause, names in (("where", hidden), ("having", known)):
        found = tree.args.get(clause)
        if isinstance(found, exp.Expr):
            _inline(found, names)


def _inline(node: exp.Expr, names: Mapping[str, exp.Expr]) -> None:
    for column in list(node.find_all(exp.Column)):
        found = names.get(column.name.lower()) if len(column.parts) == 1 else None
        # An aggregate is of columns, which no name of SELECT hides.
        if found is not None and column.find_ancestor(exp.AggFunc) is None:
            column.replace(exp.paren(found.copy()))
