"""Functions of ksqlDB's that DuckDB and Spark have by other names, or as an expression.

Owns the table: a function is one row of it.  Functions that are not in it are DuckDB's, and sqlglot has Spark's names
of those.  Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from pybroker.sql.parsing.expression_templates import made
from pybroker.sql.parsing.queries import tables_of
from pybroker.sql.sql_errors import SqlError


@dataclass(frozen=True, slots=True)
class _Function:
    """In both expressions ``_0``, ``_1`` and so on are the arguments; ``count`` of them there are."""

    count: int
    duckdb: str
    spark: str
    is_aggregate: bool = False


# By haversine, in km, as ksqlDB has it without a unit.
_DISTANCE: Final = (
    "2 * 6371 * asin(sqrt(power(sin(radians(_2 - _0) / 2), 2) "
    "+ cos(radians(_0)) * cos(radians(_2)) * power(sin(radians(_3 - _1) / 2), 2)))"
)
_FUNCTIONS: Final = {
    "latest_by_offset": _Function(
        1, "arg_max(_0, row(_timestamp, _offset))", "max_by(_0, struct(_timestamp, _offset))", True
    ),
    "earliest_by_offset": _Function(
        1, "arg_min(_0, row(_timestamp, _offset))", "min_by(_0, struct(_timestamp, _offset))", True
    ),
    "collect_list": _Function(1, "list(_0)", "collect_list(_0)", True),
    "collect_set": _Function(1, "list(DISTINCT _0)", "collect_set(_0)", True),
    "count_distinct": _Function(1, "count(DISTINCT _0)", "approx_count_distinct(_0)", True),
    "mean": _Function(1, "avg(_0)", "avg(_0)", True),
    "extractjsonfield": _Function(2, "json_extract_string(_0, _1)", "get_json_object(_0, _1)"),
    "geo_distance": _Function(4, _DISTANCE, _DISTANCE),
}
# Which record is the latest one its offset says, and in a join each topic's record has one.
_OF_RECORDS: Final = frozenset({"latest_by_offset", "earliest_by_offset"})
_OF_A_RECORD: Final = ("_timestamp", "_offset")


def for_duckdb(tree: exp.Expr) -> None:
    """Have DuckDB's expressions in place of ksqlDB's functions."""
    _translate(tree, "duckdb")


def for_spark(tree: exp.Expr) -> None:
    """Have Spark's expressions in place of ksqlDB's functions."""
    _translate(tree, "spark")


def is_aggregate(node: exp.Anonymous) -> bool:
    """Whether a function that sqlglot does not know is one of ksqlDB's aggregates."""
    found = _FUNCTIONS.get(node.name.lower())
    return found is not None and found.is_aggregate


def _translate(tree: exp.Expr, dialect: str) -> None:
    for node in list(tree.find_all(exp.Anonymous)):
        found = _FUNCTIONS.get(node.name.lower())
        if found is None or len(node.expressions) != found.count:
            continue
        template = found.duckdb if dialect == "duckdb" else found.spark
        other = made(template, dialect, node.expressions)
        other.meta.update(node.meta)
        if node.name.lower() in _OF_RECORDS:
            _say_whose(node, other)
        node.replace(other)


def _say_whose(node: exp.Anonymous, other: exp.Expr) -> None:
    """Have the record that counts in a join be that of the topic which the argument names; ``SqlError``."""
    select = node.find_ancestor(exp.Select)
    joined = (
        [] if select is None or not select.args.get("joins") else [each.alias_or_name for each in tables_of(select)]
    )
    if not joined:
        return
    named = {column.table.lower(): column.table for column in node.find_all(exp.Column)}
    ((owner, written),) = named.items() if len(named) == 1 else (("", ""),)
    if owner not in map(str.lower, joined):
        told = node.sql(dialect="duckdb", normalize_functions="lower")
        name = node.name.lower()
        raise SqlError(f"{told} over a join says whose record counts: {name}({joined[0] if joined else 't'}.…)")
    for column in list(other.find_all(exp.Column)):
        if column.name in _OF_A_RECORD and not column.table:
            column.set("table", exp.to_identifier(written))
