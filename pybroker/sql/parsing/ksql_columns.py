"""Columns as ksqlDB names them: what every record has, the edges of a window, and those of a join's ``*``.

Owns the names.  A column of a topic that has such a name is meant before.  Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from sqlglot import exp

from pybroker.sql.parsing.queries import left_out_of
from pybroker.sql.relations.catalog import Relation

_PSEUDO: Final = {"rowkey": "_key", "rowpartition": "_partition", "rowoffset": "_offset"}
# In ms since 1970, as ksqlDB has it.
_TIME: Final = "rowtime"
# These take a time, too.
_OF_TIMES: Final = ("timestamptostring", "from_unixtime")
# Of a table that a windowed query has made.
_EDGES: Final = {"windowstart": "window_start", "windowend": "window_end"}


def name_columns(tree: exp.Expr, is_column: Callable[[str], bool]) -> None:
    """Have the columns' own names in place of ksqlDB's.

    ``is_column`` says whether a topic of the query declares a column of a name in lower case.
    """
    for column in list(tree.find_all(exp.Column)):
        name = column.name.lower()
        if is_column(name):
            continue
        own = _PSEUDO.get(name) or (edge if (edge := _EDGES.get(name)) and is_column(edge) else None)
        if name == _TIME:
            time = _renamed(column, "_timestamp")
            is_text = isinstance(column.parent, exp.Anonymous) and column.parent.name.lower() in _OF_TIMES
            other: exp.Expr = time if is_text else exp.Anonymous(this="UNIX_TIMESTAMP", expressions=[time])
        elif own is not None:
            other = _renamed(column, own)
        else:
            continue
        column.replace(exp.alias_(other, column.name) if isinstance(column.parent, exp.Select) else other)


def expand_star(tree: exp.Select, relations: Mapping[str, Relation]) -> None:
    """Have the columns of all topics be in place of ``*`` in a join. Names that two have begin with their topics.

    ``relations`` are those of the topics, by the names that the query has for them.
    """
    if not tree.args.get("joins"):
        return
    counts = Counter(column.name.lower() for each in relations.values() for column in each.columns)
    expressions: list[exp.Expr] = []
    for each in tree.expressions:
        if not isinstance(each, exp.Star) or each.args.get("replace") or each.args.get("rename"):
            expressions.append(each)
            continue
        left_out = {identifier.name.lower() for identifier in left_out_of(each)}
        for alias, relation in relations.items():
            for column in relation.columns:
                found = exp.column(column.name, table=alias)
                name = column.name.lower()
                if name not in left_out:
                    expressions.append(exp.alias_(found, f"{alias}_{column.name}") if counts[name] > 1 else found)
    tree.set("expressions", expressions)


def _renamed(column: exp.Column, name: str) -> exp.Column:
    other = column.copy()
    other.set("this", exp.to_identifier(name))
    return other
