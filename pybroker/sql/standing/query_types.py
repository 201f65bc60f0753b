"""What DuckDB says of a standing query's types, over its topics without records.

Owns the columns that the rows have, what hangs on the types of arguments, and which types no row may have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from sqlglot import exp
from sqlglot.errors import ParseError

from pybroker.sql.fetching.relation_decoding import quoted
from pybroker.sql.parsing import ksql_functions
from pybroker.sql.parsing.aggregates import aggregates, arguments, shown
from pybroker.sql.parsing.queries import replace_tables, table_references, used_columns
from pybroker.sql.parsing.standing_selects import StandingSelect
from pybroker.sql.questions.engine import Engine
from pybroker.sql.relations.catalog import NO_COLUMN, Column, Relation
from pybroker.sql.sql_errors import SqlError
from pybroker.sql.standing.spark_plans import WINDOW_END, WINDOW_START

_WINDOW_EDGES: Final = ("windowstart", "windowend")
# DuckDB's name of the type that NULL has.
_NO_TYPE: Final = '"NULL"'
# Spark has no order of these, and compares none of them.
_WITHOUT_ORDER: Final = frozenset(
    {exp.DType.MAP, exp.DType.INTERVAL, exp.DType.UNION, exp.DType.BIT, exp.DType.VARIANT}
)
_TEXTS: Final = ("VARCHAR", "JSON")


def _parts(kind: str) -> list[exp.DType]:
    """A type, and the types inside of it; nothing where sqlglot does not know it."""
    with suppress(ParseError):
        return [part.this for part in exp.DataType.build(kind, dialect="duckdb").find_all(exp.DataType)]
    return []


def _is_number(kind: str) -> bool:
    return all(part in exp.DataType.NUMERIC_TYPES for part in _parts(kind))


def _has_order(kind: str) -> bool:
    return _WITHOUT_ORDER.isdisjoint(_parts(kind))


@dataclass(frozen=True, slots=True)
class _Takes:
    """What an aggregate takes: in words, whether a type is such, and what to do with one that is not."""

    words: str
    accepts: Callable[[str], bool]
    hint: str = ""


_OF_NUMBERS: Final = _Takes("numbers", _is_number, ": CAST it to one")
_OF_ORDER: Final = _Takes("what has an order", _has_order)
_OF_EQUALS: Final = _Takes("what can be compared", _has_order)
# Of the last argument: that by which ``max_by`` chooses is its second.
_TAKES: Final[dict[type[exp.Expr], _Takes]] = {
    **dict.fromkeys((exp.Sum, exp.Avg, exp.Median, exp.Stddev, exp.StddevPop, exp.StddevSamp), _OF_NUMBERS),
    **dict.fromkeys((exp.Variance, exp.VariancePop, exp.Corr, exp.CovarPop, exp.CovarSamp), _OF_NUMBERS),
    **dict.fromkeys((exp.Min, exp.Max, exp.ArgMin, exp.ArgMax), _OF_ORDER),
    **dict.fromkeys((exp.ArrayUniqueAgg, exp.ApproxDistinct), _OF_EQUALS),
}
_NAMED: Final = {"mean": _OF_NUMBERS, "collect_set": _OF_EQUALS, "count_distinct": _OF_EQUALS}
_ITEMS: Final = frozenset({"list_extract", "list_element", "array_extract"})


class QueryTypes:
    """Of one query; ``relations`` has what its names of topics mean."""

    def __init__(self, engine: Engine, select: StandingSelect, relations: Mapping[str, Relation]) -> None:
        self._engine = engine
        self._select = select
        self._relations = relations

    def translated(self) -> StandingSelect:
        """The query, where functions that look at a type are others; ``SqlError`` for an argument that none takes.

        An expression whose type cannot be told is left as it is.
        """
        for node in aggregates(self._select.tree):
            self._check(node)
        tree = self._select.tree.copy()
        keys = exp.Tuple(expressions=[each.copy() for each in self._select.partition_by])
        for part in (tree, keys):
            self._look_at_types(part)
        return replace(self._select, tree=tree, partition_by=tuple(keys.expressions))

    def columns(self) -> tuple[Column, ...]:
        """What the rows have; ``SqlError`` for a name or a function that is not there, and for NULL without a type."""
        tree = self._select.tree.copy()
        found = self._described(tree)
        for each in found:
            if _NO_TYPE in each.type:
                raise SqlError(f"{each.name} is NULL or has one inside, without a type: CAST(NULL AS VARCHAR) has one")
            if exp.DType.TIME in _parts(each.type):
                raise SqlError(f"{each.name} is {each.type}, and Spark has no times of a day: strftime makes texts")
        named = {each.name for each in found}
        edges = _edges_missing(self._select) if self._select.window is not None else ()
        return (*found, *(Column(each, "TIMESTAMP", each) for each in edges if each not in named))

    def _check(self, node: exp.Expr) -> None:
        bare = node.this if isinstance(node, exp.Filter) else node
        takes = _NAMED.get(bare.name.lower()) if isinstance(bare, exp.Anonymous) else _TAKES.get(type(bare))
        if isinstance(bare.this, exp.Distinct) and takes is None:
            takes = _OF_EQUALS
        own = arguments(bare)
        kind = self._type_of(own[-1]) if own and takes is not None else None
        if takes is not None and kind is not None and kind != _NO_TYPE and not takes.accepts(kind):
            raise SqlError(f"{shown(node)} takes {takes.words}, and {shown(own[-1])} is {kind}{takes.hint}")

    def _look_at_types(self, tree: exp.Expr) -> None:
        """Have the functions of lists and times be there in place of those that take texts or numbers, too."""
        for node in list(tree.find_all(exp.Length, exp.Anonymous, exp.UnixToTime)):
            if isinstance(node, exp.UnixToTime):
                if (self._type_of(node.this) or "").startswith(("TIMESTAMP", "DATE")):
                    node.replace(exp.Anonymous(this="UNIX_TIMESTAMP", expressions=[node.this.copy()]))
            elif isinstance(node, exp.Length):
                if (self._type_of(node.this) or "").endswith("]"):
                    node.replace(exp.ArraySize(this=node.this.copy()))
            elif node.name.lower() in _ITEMS and node.expressions and self._type_of(node.expressions[0]) in _TEXTS:
                told = f"{shown(node)} takes a list, and {shown(node.expressions[0])} is a text"
                raise SqlError(f"{told}: substr has its characters")

    def _type_of(self, node: exp.Expr) -> str | None:
        """DuckDB's name of an expression's type; None where it depends on more than the topics' columns."""
        tree = self._select.tree.copy()
        tree.set("expressions", [exp.alias_(node.copy(), "value")])
        for clause in ("where", "group", "having", "qualify", "distinct"):
            tree.set(clause, None)
        with suppress(SqlError):
            return self._described(tree)[0].type
        return None

    def _described(self, tree: exp.Select) -> list[Column]:
        for column in list(tree.find_all(exp.Column)) if self._select.window is not None else ():
            if column.name.lower() in _WINDOW_EDGES:
                edge: exp.Expr = exp.cast(exp.null(), "TIMESTAMP")
                column.replace(exp.alias_(edge, column.name) if column.parent is tree else edge)
        ksql_functions.for_duckdb(tree)
        references = table_references(tree)
        used = {id(each.node): used_columns(tree, each, self._relations[each.name]) for each in references}
        views = {id(each.node): _without_rows(used[id(each.node)]) for each in references}
        names = {id(each.node): each.name for each in references}
        sql = replace_tables(tree, names, used, views)
        rows = self._engine.rows_over(f"SELECT column_name, column_type FROM (DESCRIBE {sql})", {}).to_pylist()
        return [Column(row["column_name"], row["column_type"], row["column_name"]) for row in rows]


def _edges_missing(select: StandingSelect) -> Sequence[str]:
    """The window's edges that SELECT does not have, which the plan adds."""
    has = {each.unalias().name.lower() for each in select.tree.expressions if isinstance(each.unalias(), exp.Column)}
    return [name for edge, name in zip(_WINDOW_EDGES, (WINDOW_START, WINDOW_END), strict=True) if edge not in has]


def _without_rows(columns: Sequence[Column]) -> str:
    chosen = ", ".join(f"CAST(NULL AS {each.type}) AS {quoted(each.name)}" for each in columns)
    return f"SELECT {chosen or f'1 AS {quoted(NO_COLUMN)}'} WHERE false"
