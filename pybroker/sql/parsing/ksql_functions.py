"""Functions of ksqlDB's in a query's tree, as DuckDB and Spark have them.

Owns the walk, and what a function takes that its expression does not say.  The functions are ``ksql_function_table``'s.
Pure.
"""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from pybroker.sql.parsing.expression_templates import made
from pybroker.sql.parsing.ksql_function_table import FUNCTIONS, INSTEAD, Function
from pybroker.sql.parsing.queries import tables_of
from pybroker.sql.sql_errors import SqlError

# Which record is the latest one its offset says, and in a join each topic's record has one.
_OF_RECORDS: Final = frozenset({"latest_by_offset", "earliest_by_offset"})
_OF_A_RECORD: Final = ("_timestamp", "_offset")
# DuckDB has others of these names.
_OF_DUCKDB: Final = frozenset({("encode", 1)})
_AGGREGATES: Final = frozenset(name for (name, _), each in FUNCTIONS.items() if each.is_aggregate)
_COUNTS: Final = {name: " or ".join(str(count) for known, count in FUNCTIONS if known == name) for name, _ in FUNCTIONS}


def for_duckdb(tree: exp.Expr) -> None:
    """Have DuckDB's expressions in place of ksqlDB's functions."""
    _translate(tree, "duckdb")


def for_spark(tree: exp.Expr) -> None:
    """Have Spark's expressions in place of ksqlDB's functions."""
    _translate(tree, "spark")


def is_aggregate(node: exp.Anonymous) -> bool:
    """Whether a function that sqlglot does not know is one of ksqlDB's aggregates."""
    return node.name.lower() in _AGGREGATES


def _translate(tree: exp.Expr, dialect: str) -> None:
    # What is inside first: it is an argument then.
    for node in reversed(list(tree.find_all(exp.Anonymous))):
        name, arguments = node.name.lower(), node.expressions
        found = FUNCTIONS.get((name, len(arguments)))
        if found is None:
            _check(node)
            continue
        is_spark = dialect == "spark"
        if found.pattern is not None:
            arguments = [arguments[0], _pattern(node, found, is_spark=is_spark), *arguments[2:]]
        has_own = is_spark and found.spark
        other = made(found.spark, "spark", arguments) if has_own else made(found.duckdb, "duckdb", arguments)
        other.meta.update(node.meta)
        if name in _OF_RECORDS:
            _say_whose(node, other)
        node.replace(other)


def _check(node: exp.Anonymous) -> None:
    """``SqlError`` for a function of ksqlDB's that is not there, or not with these arguments."""
    name, count = node.name.lower(), len(node.expressions)
    if name in _COUNTS:
        raise SqlError(f"{name} takes {_COUNTS[name]} argument{'' if _COUNTS[name] == '1' else 's'}: {_shown(node)}")
    if name in INSTEAD and (name, count) not in _OF_DUCKDB:
        raise SqlError(f"there is no function {name}: {INSTEAD[name]} may stand in its place")


def _pattern(node: exp.Anonymous, function: Function, *, is_spark: bool) -> exp.Expr:
    """The pattern of a time, which is checked for both: a question and a standing query take the same ones."""
    wanted = node.expressions[1]
    if function.pattern is None or not wanted.is_string:
        raise SqlError(f"{_shown(node)}: the pattern is a text")
    found = function.pattern(wanted.name)
    return wanted if is_spark else exp.Literal.string(found)


def _shown(node: exp.Expr) -> str:
    return node.sql(dialect="duckdb", normalize_functions="lower")


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
        name = node.name.lower()
        raise SqlError(f"{_shown(node)} over a join says whose record counts: {name}({joined[0] if joined else 't'}.…)")
    for column in list(other.find_all(exp.Column)):
        if column.name in _OF_A_RECORD and not column.table:
            column.set("table", exp.to_identifier(written))
