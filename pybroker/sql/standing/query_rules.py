"""Which standing queries there are: a table of rules, each a condition and what is said where it holds.

Owns the rules about a query's parts.  What its names, types and expressions are is looked at elsewhere.  Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

from sqlglot import exp

from pybroker.sql.parsing.aggregates import (
    STREAMS_HAVE,
    TABLES_HAVE,
    aggregates,
    has_aggregates,
    is_of_streams,
    is_plain,
    shown,
)
from pybroker.sql.parsing.queries import TableReference, tables_of
from pybroker.sql.parsing.standing_selects import StandingSelect, WindowKind
from pybroker.sql.relations.catalog import Relation
from pybroker.sql.sql_errors import SqlError, at_place
from pybroker.sql.standing.table_queries import AGGREGATES


@dataclass(frozen=True)
class Asked:
    """A query that is asked for: ``CREATE kind … AS select``, and the topics that it reads."""

    kind: str
    select: StandingSelect
    tree: exp.Select
    references: Sequence[TableReference]
    relations: Sequence[Relation]

    @cached_property
    def tables(self) -> int:
        """How many of the topics are tables."""
        return sum(relation.kind == "TABLE" for relation in self.relations)

    @property
    def is_of_tables(self) -> bool:
        """Whether it reads tables alone."""
        return self.tables == len(self.relations)

    @property
    def meets_tables(self) -> bool:
        """Whether a stream is joined with tables."""
        return 0 < self.tables < len(self.relations)

    @cached_property
    def is_aggregated(self) -> bool:
        """Whether its rows are those of groups."""
        return aggregated(self.tree)

    def has(self, *parts: str) -> bool:
        """Whether the SELECT has one of these clauses."""
        return any(self.tree.args.get(part) is not None for part in parts)

    @property
    def is_session(self) -> bool:
        """Whether its windows are sessions."""
        return self.select.window is not None and self.select.window.kind is WindowKind.SESSION


def check(
    kind: str,
    select: StandingSelect,
    tree: exp.Select,
    references: Sequence[TableReference],
    relations: Sequence[Relation],
) -> None:
    """``SqlError`` with what the first rule says that a query breaks, at the first topic's place."""
    asked = Asked(kind, select, tree, references, relations)
    why = next((said.format(found) for holds, said in _rules(asked) if (found := holds(asked))), None)
    if why is not None:
        at = references[0].start if references else None
        raise SqlError(why if at is None else at_place(why, select.text, at, len(references[0].name)))


def aggregated(tree: exp.Select) -> bool:
    """Whether a query has groups or aggregates."""
    return tree.args.get("group") is not None or has_aggregates(tree)


def grouped(tree: exp.Select) -> list[exp.Expr]:
    """The expressions of GROUP BY."""
    group = tree.args.get("group")
    return list(group.expressions) if isinstance(group, exp.Group) else []


# A condition, and the sentence for a query that it holds for.  ``{}`` is what the condition has found.
_Rule: TypeAlias = tuple[Callable[[Asked], object], str]


def _rules(asked: Asked) -> Sequence[_Rule]:
    return (*_OF_ALL, *(_OF_TABLES if asked.is_of_tables else _OF_STREAMS))


def _reads_more(asked: Asked) -> bool:
    """Whether there is a file, a function or an inner query beside the topics of FROM and JOIN."""
    tables = list(tables_of(asked.tree))
    joins = asked.tree.args.get("joins") or ()
    named = {id(each.node) for each in asked.references}
    return len(tables) != 1 + len(joins) or {id(each) for each in tables} != named


def _samples(asked: Asked) -> bool:
    places = (asked.tree, *tables_of(asked.tree))
    return asked.tables > 0 and any(each.args.get(part) for each in places for part in ("pivots", "sample"))


def _is_strange_group(asked: Asked) -> bool:
    group = asked.tree.args.get("group")
    if not isinstance(group, exp.Group):
        return False
    sets = (exp.Cube, exp.Rollup, exp.GroupingSets)
    return (
        not group.expressions
        or any(value for name, value in group.args.items() if name != "expressions")
        or any(isinstance(each, sets) for each in group.expressions)
    )


def _changes_star(asked: Asked) -> bool:
    return any(star.args.get("replace") or star.args.get("rename") for star in asked.tree.find_all(exp.Star))


def _unnests_inside(asked: Asked) -> exp.Expr | None:
    """An UNNEST that is no column of its own, or not the only one."""
    columns = [each.unalias() for each in asked.tree.expressions]
    found = list(asked.tree.find_all(*_UNNEST))
    is_alone = len(found) <= 1 and all(any(each is column for column in columns) for each in found)
    plain = all(not each.expressions for each in found)
    return None if is_alone and plain else found[-1]


def _unnest(asked: Asked) -> str | None:
    found = asked.tree.find(*_UNNEST)
    return None if found is None else shown(found)


def _distinct(asked: Asked) -> str | None:
    found = (each for each in aggregates(asked.tree) if each.find(exp.Distinct) and not is_of_streams(each))
    return next(map(shown, found), None)


def _ordered(asked: Asked) -> str | None:
    """An aggregate with an ORDER BY inside, which only a list that is a text has in Spark."""
    found = (each for each in aggregates(asked.tree) if each.find(exp.Order) and not each.find(exp.GroupConcat))
    return next(map(shown, found), None)


def _not_of_streams(asked: Asked) -> str | None:
    return next((shown(each) for each in aggregates(asked.tree) if not is_of_streams(each)), None)


def _not_of_tables(asked: Asked) -> str | None:
    return next((shown(each) for each in aggregates(asked.tree) if not is_plain(each, tuple(AGGREGATES))), None)


_UNNEST: Final = (exp.Explode, exp.Unnest, exp.Posexplode)
_OF_ALL: Final[Sequence[_Rule]] = (
    (lambda asked: not asked.references, "a standing query reads a topic"),
    (
        lambda asked: asked.tree.find(exp.Subquery, exp.CTE),
        "a standing query has one SELECT; make the inner one a stream of its own",
    ),
    (_reads_more, "a standing query reads the topics of FROM and JOIN, and nothing else"),
    (_samples, "SAMPLE, PIVOT and UNPIVOT are not there in a standing query that reads a table"),
    (
        lambda asked: asked.meets_tables and asked.relations[0].kind == "TABLE",
        "a table joins a stream: FROM names the stream, and JOIN the table",
    ),
    (
        lambda asked: asked.meets_tables and len(asked.relations) - asked.tables > 1,
        "a join of two streams has no table; make the join of the streams a stream of its own",
    ),
    (
        lambda asked: asked.meets_tables and any(asked.select.within),
        "WITHIN is for two streams: a record meets the row that the table has when it comes",
    ),
    (
        lambda asked: asked.has("order", "limit", "offset", "distinct"),
        "ORDER BY, LIMIT, OFFSET and DISTINCT have no meaning for rows without an end",
    ),
    (_is_strange_group, "GROUP BY names columns of SELECT, without ALL, sets, CUBE and ROLLUP"),
    (
        lambda asked: asked.tree.find(exp.Columns),
        "COLUMNS is not there in a standing query: name the columns, or * with EXCLUDE",
    ),
    (_changes_star, "in a standing query * has EXCLUDE, and neither REPLACE nor RENAME: name the columns"),
)
_OF_TABLES: Final[Sequence[_Rule]] = (
    (lambda asked: asked.kind != "TABLE", "the rows of a table change: CREATE TABLE"),
    (
        lambda asked: asked.select.window is not None or asked.select.is_final,
        "WINDOW and EMIT FINAL are for streams: the rows of a table change without an end",
    ),
    (lambda asked: any(asked.select.within), "WITHIN is for two streams"),
    (
        lambda asked: asked.select.partition_by,
        "a table keeps its key: PARTITION BY is for streams, and GROUP BY gives another key",
    ),
    (lambda asked: asked.tree.find(exp.Window), "OVER is not there in a standing query over tables"),
    (
        _unnest,
        "{} makes several rows of one, and a row of a table has one key: "
        "keep the list, with list_transform and list_filter, or make it over a stream",
    ),
    (
        lambda asked: not asked.has("group") and (asked.is_aggregated or asked.has("having")),
        "an aggregate needs GROUP BY",
    ),
    (_not_of_tables, f"{{}} is not there over a table: {TABLES_HAVE} are"),
)
_OF_STREAMS: Final[Sequence[_Rule]] = (
    (
        lambda asked: asked.kind == "TABLE" and not asked.is_aggregated,
        "a table needs GROUP BY: without it the rows are a stream's",
    ),
    (
        lambda asked: asked.is_session and not grouped(asked.tree),
        "a session is that of a key: WINDOW SESSION needs GROUP BY",
    ),
    (
        lambda asked: asked.is_aggregated and not grouped(asked.tree) and asked.select.window is None,
        "an aggregate needs GROUP BY",
    ),
    (lambda asked: asked.kind == "STREAM" and asked.is_aggregated, "rows of an aggregate change: CREATE TABLE"),
    (lambda asked: asked.select.window is not None and not asked.is_aggregated, "WINDOW needs an aggregate"),
    (lambda asked: asked.select.is_final and asked.select.window is None, "EMIT FINAL needs a WINDOW that ends"),
    (
        lambda asked: asked.is_aggregated and len(asked.references) > 1,
        "a join with an aggregate is not there; make the join a stream of its own",
    ),
    (
        lambda asked: not asked.tables and len(asked.references) > 2,
        "a join of more than two streams is not there; make the first join a stream of its own",
    ),
    (
        lambda asked: not asked.tables and len(asked.references) > 1 and asked.select.within[:1] in ((), (None,)),
        "a join of two streams needs WITHIN: how far apart their records may be",
    ),
    (
        lambda asked: asked.is_aggregated and _unnest(asked),
        "{} is not there beside an aggregate; make it a stream of its own",
    ),
    (
        lambda asked: (found := _unnests_inside(asked)) and shown(found),
        "{} is a column of its own, and the only one of its kind; make it a stream of its own",
    ),
    (_ordered, "{} is not there over a stream: list_sort sorts a list, and arg_max chooses by another column"),
    (_distinct, "{} is not there over a stream: count_distinct(…) estimates, and collect_set(…) has the values"),
    (
        _not_of_streams,
        f"{{}} is not there in a standing query; the aggregates are {STREAMS_HAVE}",
    ),
)
