"""A query over tables alone: which there are, and what of the query is an expression of Spark's over a row.

A table's row changes and goes, so that the query is no SQL over a view, which would lose what WHERE leaves out.  It is
one expression: the row of the new table, or null where that has none (``table_records``).

Owns aggregates over tables.  A former row is taken back from its group by the pipeline's ``regroup``, which knows sums
and lists; each aggregate is an expression over those.  Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from pybroker.sql.parsing.aggregates import words_of
from pybroker.sql.parsing.select_names import numbered
from pybroker.sql.parsing.spark_text import spark_text
from pybroker.sql.sql_errors import SqlError
from pybroker.sql.standing.standing_plans import TableJoin, TableQuery
from pybroker.sql.standing.table_joins import Side, take_table_joins

# Of a group: its key, and what ``regroup`` gives for it.
_KEY, _VALUE = "key", "value"


@dataclass(frozen=True, slots=True)
class TableParts:
    """The parts of a plan that ``table_parts`` makes of a query.

    ``key`` names the columns that are the key of the rows: those of GROUP BY, or the one that is the tables'.
    """

    joins: tuple[TableJoin, ...]
    query: TableQuery
    row: str
    key: tuple[str, ...]


def table_parts(tree: exp.Select, sides: Sequence[Side]) -> TableParts:
    """What a query is that ``query_rules`` let pass, and whose columns are fields; ``SqlError``."""
    joins, row_key = take_table_joins(tree, sides)
    where = tree.args.get("where")
    chosen = [_is_there(), *([where.this] if isinstance(where, exp.Where) else [])]
    columns = _columns(tree)
    group = tree.args.get("group")
    if not isinstance(group, exp.Group):
        key = tuple(name for name, each in columns.items() if row_key.column(each) is not None)[:1]
        return TableParts(joins, TableQuery(), spark_text(_when(chosen, _struct(columns))), key)
    by = dict(_grouped(each, columns) for each in group.expressions)
    # A key of several is a JSON object, which may have nulls.
    has_key = [_is_not_null(exp.paren(each.copy())) for each in by.values()]
    grouped = _when([*chosen, *(has_key if len(by) == 1 else ())], _struct(by))
    over_groups = _OverGroups(by, sides)
    shown = {name: over_groups.of(each) for name, each in columns.items()}
    kept = [_is_there()]
    having = tree.args.get("having")
    if isinstance(having, exp.Having):
        kept.append(over_groups.of(having.this))
    row = spark_text(_when(kept, _struct(shown)))
    sums, lists, told = (tuple(each.items()) for each in (over_groups.sums, over_groups.lists, over_groups.told))
    query = TableQuery(spark_text(grouped), sums, lists, told)
    return TableParts(joins, query, row, tuple(by))


def _columns(tree: exp.Select) -> dict[str, exp.Expr]:
    found: dict[str, exp.Expr] = {}
    for each in tree.expressions:
        name = str(each.alias_or_name)
        if name.lower() in map(str.lower, found):
            raise SqlError(f"SELECT has two columns {name}: AS gives one another name")
        found[name] = each.this if isinstance(each, exp.Alias) else each
    return found


def _grouped(wanted: exp.Expr, columns: dict[str, exp.Expr]) -> tuple[str, exp.Expr]:
    """By which name SELECT has an expression of GROUP BY, which may be its number, and the expression."""
    if wanted.is_int:
        return numbered(wanted, list(columns.items()), "GROUP BY")
    for name, each in columns.items():
        is_alias = isinstance(wanted, exp.Column) and not wanted.table and wanted.name.lower() == name.lower()
        if is_alias or _plain(each) == _plain(wanted):
            return name, each
    raise SqlError(f"{wanted.sql(dialect='duckdb')} of GROUP BY is the key, and no column of SELECT")


class _OverGroups:
    """Expressions of a group, out of those of its rows; gathers the sums and lists that they need.

    ``told`` is what each of those is of, in the user's words.
    """

    def __init__(self, by: dict[str, exp.Expr], sides: Sequence[Side]) -> None:
        self._by = {name: _plain(each) for name, each in by.items()}
        self._aliases = {each.alias.lower() for each in sides}
        self._words = ""
        self.told: dict[str, str] = {}
        self.sums: dict[str, str] = {}
        self.lists: dict[str, str] = {}

    def of(self, node: exp.Expr) -> exp.Expr:
        """``SqlError`` for a column that neither GROUP BY nor an aggregate has."""
        found = node.copy().transform(self._replaced)
        for column in found.find_all(exp.Column):
            if column.parts[0].name.lower() in self._aliases:
                raise SqlError(f"{column.sql(dialect='duckdb')} is neither in GROUP BY nor in an aggregate")
        return found

    def _replaced(self, node: exp.Expr) -> exp.Expr:
        plain = _plain(node)
        name = next((name for name, each in self._by.items() if each == plain), None)
        if name is not None:
            return _field(_KEY, name)
        if isinstance(node, (exp.Filter, exp.AggFunc)):
            return self._aggregate(node)
        return node

    def _aggregate(self, node: exp.Expr) -> exp.Expr:
        """One that ``query_rules`` let pass."""
        if isinstance(node, exp.Count) and isinstance(node.this, exp.Star):
            return _field(_VALUE, "rows")
        self._words = words_of(node)
        argument = node.this
        if isinstance(argument, exp.Distinct):
            return _count_distinct(self, argument.expressions[0])
        return AGGREGATES[type(node)](self, argument)

    def summed(self, argument: exp.Expr, field: str) -> exp.Expr:
        """``sum`` or ``count`` of an expression."""
        return exp.Dot(this=_field(_VALUE, self._name(self.sums, argument)), expression=exp.to_identifier(field))

    def gathered(self, argument: exp.Expr) -> exp.Expr:
        """The values of an expression."""
        return _field(_VALUE, self._name(self.lists, argument))

    def _name(self, known: dict[str, str], argument: exp.Expr) -> str:
        sql = spark_text(argument)
        there = next((name for name, each in known.items() if each == sql), None)
        name = there or f"a{len(self.sums) + len(self.lists)}"
        known[name] = sql
        self.told.setdefault(name, self._words)
        return name


def _count(groups: _OverGroups, argument: exp.Expr) -> exp.Expr:
    is_there = _is_not_null(exp.paren(argument.copy()))
    return groups.summed(exp.Case().when(is_there, exp.Literal.number(1)), "count")


def _sum(groups: _OverGroups, argument: exp.Expr) -> exp.Expr:
    return groups.summed(argument, "sum")


def _average(groups: _OverGroups, argument: exp.Expr) -> exp.Expr:
    total = exp.cast(groups.summed(argument, "sum"), "DOUBLE")
    count = exp.Anonymous(this="NULLIF", expressions=[groups.summed(argument, "count"), exp.Literal.number(0)])
    return exp.paren(exp.Div(this=total, expression=count, typed=False, safe=False))


def _of_list(function: str) -> Callable[[_OverGroups, exp.Expr], exp.Expr]:
    return lambda groups, argument: exp.Anonymous(this=function, expressions=[groups.gathered(argument)])


def _count_distinct(groups: _OverGroups, argument: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this="SIZE", expressions=[_of_list("ARRAY_DISTINCT")(groups, argument)])


AGGREGATES: Final[dict[type[exp.Expr], Callable[[_OverGroups, exp.Expr], exp.Expr]]] = {
    exp.Count: _count,
    exp.Sum: _sum,
    exp.Avg: _average,
    exp.Min: _of_list("ARRAY_MIN"),
    exp.Max: _of_list("ARRAY_MAX"),
    exp.ArrayAgg: lambda groups, argument: groups.gathered(argument),
    exp.ArrayUniqueAgg: _of_list("ARRAY_DISTINCT"),
    exp.ApproxDistinct: _count_distinct,
}


def _plain(node: exp.Expr) -> exp.Expr:
    """Without what means nothing: how names are written, and parentheses around all."""

    def lower(each: exp.Expr) -> exp.Expr:
        return exp.to_identifier(each.name.lower(), quoted=True) if isinstance(each, exp.Identifier) else each

    return node.unnest().transform(lower)


def _is_there() -> exp.Expr:
    return _is_not_null(exp.column(_VALUE))


def _is_not_null(node: exp.Expr) -> exp.Expr:
    return exp.Not(this=exp.Is(this=node, expression=exp.null()))


def _when(conditions: Sequence[exp.Expr], then: exp.Expr) -> exp.Expr:
    return exp.Case().when(exp.and_(*(each.copy() for each in conditions)), then)


def _struct(columns: dict[str, exp.Expr]) -> exp.Expr:
    parts = [part for name, each in columns.items() for part in (exp.Literal.string(name), each.copy())]
    return exp.Anonymous(this="NAMED_STRUCT", expressions=parts)


def _field(of: str, name: str) -> exp.Expr:
    return exp.column(exp.to_identifier(name, quoted=True), table=of)
