"""What Spark is to run for a standing query: the topics that it reads as views, a query over them, and what is written.

Owns the translation, and which queries have none.  Names of topics are the caller's to resolve.  Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from sqlglot import exp

from pybroker.sql.parsing import duckdb_functions, ksql_functions
from pybroker.sql.parsing.aggregates import keep_words
from pybroker.sql.parsing.column_types import parsed_type
from pybroker.sql.parsing.queries import (
    TableReference,
    exclude_pseudo_columns,
    table_references,
    used_columns,
)
from pybroker.sql.parsing.select_names import inline_names, numbered
from pybroker.sql.parsing.spark_functions import functions_missing
from pybroker.sql.parsing.spark_text import spark_text
from pybroker.sql.parsing.standing_selects import JoinWindow, StandingSelect, TimeWindow, WindowKind
from pybroker.sql.relations.catalog import PSEUDO_COLUMNS, Column, Format, Relation
from pybroker.sql.relations.event_times import time_column
from pybroker.sql.sql_errors import SqlError
from pybroker.sql.standing.query_rules import aggregated, check, grouped
from pybroker.sql.standing.standing_plans import RECORD_TIME, WIDTH, SourcePlan, SparkPlan, TableJoin
from pybroker.sql.standing.table_joins import Side, qualify, read_columns, take_stream_joins
from pybroker.sql.standing.table_queries import table_parts

# What ksqlDB waits for late records where nothing is said.
_GRACE_MS: Final = 24 * 3_600_000
_WIDER: Final = {"INT128": "DECIMAL(38, 0)", "UBIGINT": "DECIMAL(20, 0)", "UINTEGER": "BIGINT", "USMALLINT": "INT"}
_WITHOUT_ZONE: Final = frozenset(
    getattr(exp.DType, name)
    for name in ("TIMESTAMP", "TIMESTAMPNTZ", "DATETIME", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS")
)
_EDGES: Final = {"windowstart": "start", "windowend": "end"}
WINDOW_START, WINDOW_END = "window_start", "window_end"

Resolve: TypeAlias = Callable[[TableReference], Relation]


def spark_plan(name: str, kind: str, select: StandingSelect, resolve: Resolve) -> SparkPlan:
    """The plan of ``CREATE kind name AS select``; ``SqlError`` for what Spark's streams do not have."""
    tree = select.tree.copy()
    references = table_references(tree)
    relations = [resolve(each) for each in references]
    check(kind, select, tree, references, relations)
    if not aggregated(tree) and not all(each.kind == "TABLE" for each in relations):
        _with_record_time(tree, references, relations)
    if any(each.kind == "TABLE" for each in relations):
        return _plan_with_tables(name, select, tree, references, relations)
    within = select.within if len(references) > 1 else ()
    sources = read_as_views(name, tree, references, relations, _grace(select, within))
    key = _with_window(tree, select.window) if select.window is not None else _group_key(tree)
    _join_in_time(tree, references, within)
    if select.partition_by:
        key = tuple(_projected(tree, each, "PARTITION BY") for each in select.partition_by)
    # Spark tells no changes of a session: its row comes when it is over.
    is_final = select.is_final or (select.window is not None and select.window.kind is WindowKind.SESSION)
    mode = "append" if is_final or not aggregated(tree) else "update"
    return SparkPlan(sources, spark_sql(tree), mode, key)


def _with_record_time(tree: exp.Select, references: Sequence[TableReference], relations: Sequence[Relation]) -> None:
    """Have a row of a stream the time of the record that it is made of: of two streams the later one's."""
    streams = [each for each, relation in zip(references, relations, strict=True) if relation.kind == "STREAM"]
    first, *others = (exp.column("_timestamp", table=each.alias) for each in streams)
    time = exp.Greatest(this=first, expressions=others, ignore_nulls=True) if others else first
    tree.select(exp.alias_(time, RECORD_TIME), copy=False)


def spark_sql(tree: exp.Expr) -> str:
    """A query over views as Spark's SQL."""
    _translate(tree)
    return spark_text(tree)


def _translate(tree: exp.Expr) -> None:
    ksql_functions.for_spark(tree)
    duckdb_functions.for_spark(tree)
    _take_zones_away(tree)


def read_as_views(
    name: str,
    tree: exp.Expr,
    references: Sequence[TableReference],
    relations: Sequence[Relation],
    grace_ms: int | None = None,
) -> tuple[SourcePlan, ...]:
    """Have a query read a view in each place that names a topic; the views, whose names begin with ``name``."""
    sources = []
    columns: dict[int, list[Column]] = {}
    for number, (reference, relation) in enumerate(zip(references, relations, strict=True)):
        used = _with_time(used_columns(tree, reference, relation))
        columns[id(reference.node)] = used
        sources.append(_source(name, number, relation, used, grace_ms=grace_ms))
    exclude_pseudo_columns(tree, columns)
    _name_as_declared(tree, references, relations)
    for reference, source in zip(references, sources, strict=True):
        _rename(reference, source.view)
    return tuple(sources)


def _name_as_declared(tree: exp.Expr, references: Sequence[TableReference], relations: Sequence[Relation]) -> None:
    """Have columns the names that they are declared by: Spark calls a column as the query writes it."""
    topics = {each.alias.lower(): relation for each, relation in zip(references, relations, strict=True)}
    for column in tree.find_all(exp.Column):
        first, *inner = column.parts
        owner = topics.get(first.name.lower()) if inner else None
        part, owners = (first, [*topics.values()]) if owner is None else (inner[0], [owner])
        name = next((own for each in owners if (own := _own_name(each, part.name)) is not None), None)
        if name is not None:
            part.set("this", name)


def _own_name(relation: Relation, name: str) -> str | None:
    own = relation.column(name)
    if own is not None:
        return own.name
    return name.lower() if name.lower() in PSEUDO_COLUMNS else None


def _plan_with_tables(
    name: str,
    select: StandingSelect,
    tree: exp.Select,
    references: Sequence[TableReference],
    relations: Sequence[Relation],
) -> SparkPlan:
    key = tuple(_projected(tree, each, "PARTITION BY") for each in select.partition_by)
    keep_words(tree)
    _translate(tree)
    sides = [Side(reference.alias, relation) for reference, relation in zip(references, relations, strict=True)]
    is_of_tables = all(each.kind == "TABLE" for each in relations)
    if is_of_tables:
        inline_names(tree, lambda name: any(side.alias.lower() == name or side.column(name) for side in sides))
    qualify(tree, sides)
    sources = tuple(
        _source(name, number, side.relation, read_columns(tree, side), alias=side.alias)
        for number, side in enumerate(sides)
    )
    if is_of_tables:
        parts = table_parts(tree, sides)
        return SparkPlan(sources, parts.row, "append", parts.key, _typed(parts.joins), table=parts.query)
    joins = take_stream_joins(tree, sides)
    references[0].node.replace(exp.to_table(sources[0].view))
    return SparkPlan(sources, spark_text(tree), "append", key, _typed(joins))


def _typed(joins: Sequence[TableJoin]) -> tuple[TableJoin, ...]:
    return tuple(replace(each, key_type=spark_type(each.key_type)) for each in joins)


def _source(
    name: str, number: int, relation: Relation, used: Sequence[Column], *, grace_ms: int | None = None, alias: str = ""
) -> SourcePlan:
    view = f"{re.sub(r'[^a-z0-9_]', '_', name.lower())}_{number}"
    time = time_column(relation.columns, relation.options)
    if time is not None and time not in used:
        used = [*used, time]
    for each in used:
        if any(part.this is exp.DType.TIME for part in parsed_type(each.type).find_all(exp.DataType)):
            raise SqlError(f"Spark, which runs standing queries, has no TIME: {each.name} is {each.type}")
    options, fields = dict(relation.options), {each.name: each.field for each in used}
    if relation.format is Format.CSV:
        of_value = [each.name for each in relation.columns if not each.is_key]
        options[WIDTH] = str(len(of_value))
        fields |= {each: str(place) for place, each in enumerate(of_value)}
    spark = tuple(Column(each.name, spark_type(each.type), fields[each.name], each.is_key) for each in used)
    return SourcePlan(view, relation.topic, relation.format, spark, options, grace_ms, alias)


def spark_type(kind: str) -> str:
    """Spark's name of a type of DuckDB's; its unsigned numbers have the next wider one."""
    tree = exp.DataType.build(kind, dialect="duckdb")
    for part in tree.find_all(exp.DataType):
        wider = _WIDER.get(part.sql(dialect="duckdb"))
        if wider is not None:
            other = exp.DataType.build(wider, dialect="spark")
            if part is tree:
                tree = other
            else:
                part.replace(other)
    _take_zones_away(tree)
    return spark_text(tree)


def _take_zones_away(tree: exp.Expr) -> None:
    """Sessions are UTC's, so that both kinds of timestamps mean the same, and watermarks want this one."""
    for kind in tree.find_all(exp.DataType):
        if kind.this in _WITHOUT_ZONE:
            kind.set("this", exp.DType.TIMESTAMPTZ)


def check_functions(plan: SparkPlan) -> None:
    """``SqlError`` for a function that Spark has not."""
    parts = () if plan.table is None else (plan.table.group, *(sql for _, sql in (*plan.table.sums, *plan.table.lists)))
    for sql in (plan.sql, *(each.key for each in plan.joins), *parts):
        missing = next(functions_missing(sql), None)
        if missing is not None:
            raise SqlError(f"Spark, which runs standing queries, has no function {missing}")


def _grace(select: StandingSelect, within: Sequence[JoinWindow | None]) -> int | None:
    said = [each.grace_ms for each in (select.window, *within) if each is not None]
    return max((_GRACE_MS if each is None else each for each in said), default=None)


def _with_time(used: list[Column]) -> list[Column]:
    names = {column.name for column in used}
    return [*used, *(Column(each, PSEUDO_COLUMNS[each]) for each in ("_timestamp", "_offset") if each not in names)]


def _group_key(tree: exp.Select) -> tuple[str, ...]:
    return tuple(_projected(tree, each, "GROUP BY") for each in grouped(tree))


def _projected(tree: exp.Select, wanted: exp.Expr, clause: str) -> str:
    """The name by which SELECT has an expression, which may be its number."""
    if wanted.is_int:
        return str(numbered(wanted, tree.expressions, clause).alias_or_name)
    for each in tree.expressions:
        bare = each.this if isinstance(each, exp.Alias) else each
        if bare == wanted or each.alias_or_name.lower() == wanted.name.lower() != "":
            return str(each.alias_or_name)
    if isinstance(wanted, exp.Column) and any(each.is_star for each in tree.expressions):
        return str(wanted.name)
    raise SqlError(f"{wanted.sql(dialect='duckdb')} of {clause} is the key, and no column of SELECT")


def _with_window(tree: exp.Select, window: TimeWindow) -> tuple[str, ...]:
    """Group by the window, too, and have its edges among the columns; the key."""
    is_session = window.kind is WindowKind.SESSION
    function = "SESSION_WINDOW" if is_session else "WINDOW"
    times = [window.size_ms, *((window.advance_ms,) if window.kind is WindowKind.HOPPING else ())]
    key = _group_key(tree)
    arguments = [exp.column("_timestamp"), *(exp.Literal.string(f"{each} milliseconds") for each in times)]
    tree.group_by(exp.Anonymous(this=function, expressions=arguments), copy=False)
    struct = function.lower()
    edges: dict[str, str] = {}
    for column in list(tree.find_all(exp.Column)):
        edge = _EDGES.get(column.name.lower())
        if edge is None:
            continue
        found: exp.Expr = exp.column(edge, table=struct)
        parent = column.parent
        if parent is tree:
            edges[edge] = column.name
            found = exp.alias_(found, column.name)
        elif isinstance(parent, exp.Alias) and parent.parent is tree:
            edges[edge] = parent.alias
        column.replace(found)
    for edge, name in (("start", WINDOW_START), ("end", WINDOW_END)):
        if edge not in edges:
            edges[edge] = name
            tree.select(exp.alias_(exp.column(edge, table=struct), name), copy=False)
    # A session that grows has its start for good, and another end.
    return (*key, edges["start"])


def _rename(reference: TableReference, view: str) -> None:
    table = reference.node
    alias = table.alias or table.parts[-1].name
    table.set("this", exp.to_identifier(view))
    table.set("db", None)
    table.set("catalog", None)
    table.set("alias", exp.TableAlias(this=exp.to_identifier(alias)))


def _join_in_time(tree: exp.Select, references: Sequence[TableReference], within: Sequence[JoinWindow | None]) -> None:
    joins: list[exp.Join] = list(tree.args.get("joins") or ())
    for join, window, reference in zip(joins, within, references[1:], strict=True):
        on = join.args.get("on")
        if window is None or not isinstance(on, exp.Expr):
            raise SqlError("a join of two streams needs ON: an equality of their columns")
        left, right = (exp.column("_timestamp", table=each) for each in (references[0].alias, reference.alias))
        low = exp.Sub(this=left.copy(), expression=_interval(window.before_ms))
        high = exp.Add(this=left, expression=_interval(window.behind_ms))
        join.set("on", exp.and_(on, exp.Between(this=right, low=low, high=high)))


def _interval(length_ms: int) -> exp.Interval:
    return exp.Interval(this=exp.Literal.string(f"{length_ms} milliseconds"))
