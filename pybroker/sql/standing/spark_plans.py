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
from pybroker.sql.parsing.queries import (
    TableReference,
    exclude_pseudo_columns,
    table_references,
    tables_of,
    used_columns,
)
from pybroker.sql.parsing.select_names import inline_names, numbered
from pybroker.sql.parsing.standing_selects import JoinWindow, StandingSelect, TimeWindow, WindowKind
from pybroker.sql.relations.catalog import PSEUDO_COLUMNS, Column, Format, Relation
from pybroker.sql.sql_errors import SqlError, at_place
from pybroker.sql.standing.standing_plans import WIDTH, SourcePlan, SparkPlan, TableJoin
from pybroker.sql.standing.table_joins import Side, qualify, read_columns, take_stream_joins, why_no_stream_join
from pybroker.sql.standing.table_queries import table_parts, why_no_table_query

# What ksqlDB waits for late records where nothing is said.
_GRACE_MS: Final = 24 * 3_600_000
_WIDER: Final = {"INT128": "DECIMAL(38, 0)", "UBIGINT": "DECIMAL(20, 0)", "UINTEGER": "BIGINT", "USMALLINT": "INT"}
_NTZ: Final = re.compile(r"\bTIMESTAMP_NTZ\b")
_EDGES: Final = {"windowstart": "start", "windowend": "end"}
WINDOW_START, WINDOW_END = "window_start", "window_end"

Resolve: TypeAlias = Callable[[TableReference], Relation]


def spark_plan(name: str, kind: str, select: StandingSelect, resolve: Resolve) -> SparkPlan:
    """The plan of ``CREATE kind name AS select``; ``SqlError`` for what Spark's streams do not have."""
    tree = select.tree.copy()
    references = table_references(tree)
    relations = [resolve(each) for each in references]
    _check(kind, select, tree, references, relations)
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
    mode = "append" if is_final or not _aggregates(tree) else "update"
    return SparkPlan(sources, spark_sql(tree), mode, key)


def spark_sql(tree: exp.Expr) -> str:
    """A query over views as Spark's SQL."""
    _translate(tree)
    return tree.sql(dialect="spark")


def _translate(tree: exp.Expr) -> None:
    ksql_functions.for_spark(tree)
    duckdb_functions.for_spark(tree)


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
    for reference, source in zip(references, sources, strict=True):
        _rename(reference, source.view)
    return tuple(sources)


def _plan_with_tables(
    name: str,
    select: StandingSelect,
    tree: exp.Select,
    references: Sequence[TableReference],
    relations: Sequence[Relation],
) -> SparkPlan:
    key = tuple(_projected(tree, each, "PARTITION BY") for each in select.partition_by)
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
    return SparkPlan(sources, tree.sql(dialect="spark"), "append", key, _typed(joins))


def _typed(joins: Sequence[TableJoin]) -> tuple[TableJoin, ...]:
    return tuple(replace(each, key_type=spark_type(each.key_type)) for each in joins)


def _source(
    name: str, number: int, relation: Relation, used: Sequence[Column], *, grace_ms: int | None = None, alias: str = ""
) -> SourcePlan:
    view = f"{re.sub(r'[^a-z0-9_]', '_', name.lower())}_{number}"
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
    # Sessions are UTC's, so that both kinds of timestamps mean the same, and watermarks want this one.
    return _NTZ.sub("TIMESTAMP", tree.sql(dialect="spark"))


def _check(
    kind: str, select: StandingSelect, tree: exp.Select, references: Sequence[TableReference], relations: list[Relation]
) -> None:
    aggregates = _aggregates(tree)
    tables = sum(relation.kind == "TABLE" for relation in relations)
    why = None
    if not references:
        why = "a standing query reads a topic"
    elif tree.find(exp.Subquery) is not None or tree.find(exp.CTE) is not None:
        why = "a standing query has one SELECT; make the inner one a stream of its own"
    elif _reads_more(tree, references):
        why = "a standing query reads the topics of FROM and JOIN, and nothing else"
    elif tables and any(each.args.get(part) for each in (tree, *tables_of(tree)) for part in ("pivots", "sample")):
        why = "SAMPLE, PIVOT and UNPIVOT are not there in a standing query that reads a table"
    elif 0 < tables < len(relations) and (said := why_no_stream_join(relations, any(select.within))) is not None:
        why = said
    elif any(tree.args.get(each) is not None for each in ("order", "limit", "offset", "distinct")):
        why = "ORDER BY, LIMIT, OFFSET and DISTINCT have no meaning for rows without an end"
    elif isinstance(group := tree.args.get("group"), exp.Group) and (_strange(group) or not group.expressions):
        why = "GROUP BY names columns of SELECT, without ALL, sets, CUBE and ROLLUP"
    elif tables == len(relations):
        why = why_no_table_query(kind, select, tree, aggregates)
    elif kind == "TABLE" and not aggregates:
        why = "a table needs GROUP BY: without it the rows are a stream's"
    elif select.window is not None and select.window.kind is WindowKind.SESSION and not _grouped(tree):
        why = "a session is that of a key: WINDOW SESSION needs GROUP BY"
    elif aggregates and not _grouped(tree) and select.window is None:
        why = "an aggregate needs GROUP BY"
    elif kind == "STREAM" and aggregates:
        why = "rows of an aggregate change: CREATE TABLE"
    elif select.window is not None and not aggregates:
        why = "WINDOW needs an aggregate"
    elif select.is_final and select.window is None:
        why = "EMIT FINAL needs a WINDOW that ends"
    elif aggregates and len(references) > 1:
        why = "a join with an aggregate is not there; make the join a stream of its own"
    elif tables:
        why = None
    elif len(references) > 2:
        why = "a join of more than two streams is not there; make the first join a stream of its own"
    elif len(references) > 1 and select.within[:1] in ((), (None,)):
        why = "a join of two streams needs WITHIN: how far apart their records may be"
    if why is not None:
        at = references[0].start if references else None
        raise SqlError(why if at is None else at_place(why, select.text, at, len(references[0].name)))


def _reads_more(tree: exp.Select, references: Sequence[TableReference]) -> bool:
    """Whether there is a file, a function or an inner query beside the topics of FROM and JOIN."""
    tables = list(tables_of(tree))
    joins = tree.args.get("joins") or ()
    return len(tables) != 1 + len(joins) or {id(each) for each in tables} != {id(each.node) for each in references}


def _grace(select: StandingSelect, within: Sequence[JoinWindow | None]) -> int | None:
    said = [each.grace_ms for each in (select.window, *within) if each is not None]
    return max((_GRACE_MS if each is None else each for each in said), default=None)


def _with_time(used: list[Column]) -> list[Column]:
    names = {column.name for column in used}
    return [*used, *(Column(each, PSEUDO_COLUMNS[each]) for each in ("_timestamp", "_offset") if each not in names)]


def _aggregates(tree: exp.Select) -> bool:
    return (
        tree.args.get("group") is not None
        or tree.find(exp.AggFunc) is not None
        or any(ksql_functions.is_aggregate(each) for each in tree.find_all(exp.Anonymous))
    )


def _group_key(tree: exp.Select) -> tuple[str, ...]:
    return tuple(_projected(tree, each, "GROUP BY") for each in _grouped(tree))


def _grouped(tree: exp.Select) -> list[exp.Expr]:
    group = tree.args.get("group")
    return list(group.expressions) if isinstance(group, exp.Group) else []


def _strange(group: exp.Group) -> bool:
    sets = (exp.Cube, exp.Rollup, exp.GroupingSets)
    return any(value for name, value in group.args.items() if name != "expressions") or any(
        isinstance(each, sets) for each in group.expressions
    )


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
