"""Answers to questions: names to relations, columns and restrictions, scans, DuckDB, rows.

Owns the way of a query, and what EXPLAIN tells of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

from sqlglot import exp

from pybroker.sql.fetching.relation_decoding import IS_TOMBSTONE, Misfits, quoted
from pybroker.sql.fetching.scanning import Plan, Scan, plan
from pybroker.sql.handlers.session_context import BEGIN, Context
from pybroker.sql.parsing import ksql_functions
from pybroker.sql.parsing.ksql_columns import name_columns
from pybroker.sql.parsing.pushdown import Restriction, restriction
from pybroker.sql.parsing.queries import (
    TableReference,
    name_columns_of_whole_topics,
    reads_twice,
    replace_tables,
    table_references,
    used_columns,
)
from pybroker.sql.parsing.statements import Explain, Query
from pybroker.sql.parsing.token_reader import tokens_of
from pybroker.sql.questions import tail
from pybroker.sql.questions.engine import UnknownColumn
from pybroker.sql.questions.json_cells import json_inside
from pybroker.sql.questions.query_progress import QueryProgress
from pybroker.sql.questions.result_cells import rows_of
from pybroker.sql.questions.row_output import OutputForm, RowPrinter
from pybroker.sql.relations.catalog import NO_COLUMN, PSEUDO_COLUMNS, Column
from pybroker.sql.relations.event_times import TIME
from pybroker.sql.sql_errors import SqlError, at_place, nearest

# By which the last record of a key is found.
_OF_STATE: Final = ("_key", "_partition", "_offset", "_timestamp")
# Columns of that search: a value has none of these names by chance.
_PLACE: Final = quoted(" place ")
_RANK: Final = quoted(" rank ")


@dataclass(slots=True)
class _Prepared:
    """A query that is ready for DuckDB: its SQL there, and the plan of each topic by its name in it.

    ``kept`` are the relations that are read into a table first, by that table's name.
    """

    sql: str
    plans: dict[str, Plan] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)


def answer(context: Context, query: Query) -> None:
    """Print a query's rows."""
    misfits = Misfits(stops=context.settings["misfits"] == "stop")
    ask = _follow if query.emits else _run
    try:
        with columns_told(context, query.text, table_references(query.tree)):
            context.with_new_columns(lambda: ask(context, query, misfits))
    finally:
        # A tail has no other end than Ctrl-C.
        if (told := misfits.remark()) is not None:
            context.remark(told)


def explain(context: Context, wanted: Explain) -> None:
    """Print what of its topics a query would fetch."""
    query = wanted.query
    if query.emits:
        tail.check(query, table_references(query.tree))
    rows: list[tuple[object, ...]] = []
    for each in _prepared(context, query).plans.values():
        relation = each.relation
        shared = (
            relation.topic,
            str(relation.format),
            ", ".join(column.name for column in each.columns) or None,
            " and ".join(each.wanted.told()) or None,
            "; ".join(each.kept) or None,
        )
        rows += [(*shared, *place) for place in _places(context, each, emits=query.emits)] or [
            (*shared, None, None, None)
        ]
    engine = "duckdb, as rows arrive" if query.emits else "duckdb"
    heading = ("ENGINE", "TOPIC", "FORMAT", "COLUMNS", "PUSHED", "NOT PUSHED", "PARTITION", "FROM", "TO")
    context.print(heading, [(engine, *row) for row in rows])


def _places(context: Context, wanted: Plan, *, emits: bool) -> list[tuple[int, int, int | None]]:
    """Each partition that is read, and from where to where; a tail has no end."""
    if not emits:
        return [(partition, at.start, at.end) for partition, at in wanted.positions.items()]
    return [(partition, start, None) for partition, start in _tail_starts(context, wanted).items()]


def _tail_starts(context: Context, wanted: Plan) -> dict[int, int]:
    return tail.starts(context.cluster, wanted, from_begin=context.settings.get(BEGIN) == "earliest")


@contextmanager
def columns_told(context: Context, text: str, references: Sequence[TableReference]) -> Iterator[None]:
    """Have an unknown column shown at its place, with the nearest of those that there are."""
    try:
        yield
    except UnknownColumn as error:
        known = set(PSEUDO_COLUMNS)
        for reference in references:
            relation = context.relation(reference.name, text, reference.start)
            known |= {column.name for column in relation.columns}
        name = error.column.lower()
        missing = "; * leaves it out, so that the inner SELECT has to name it" if name in PSEUDO_COLUMNS else None
        message = f"there is no column {error.column}{missing or nearest(error.column, known)}"
        at = [each for each in tokens_of(text) if each.text.lower() == error.column.lower()]
        if not at:
            raise SqlError(message) from error
        raise SqlError(at_place(message, text, at[0].start, len(at[0].text))) from error


def _run(context: Context, query: Query, misfits: Misfits) -> None:
    prepared = _prepared(context, query)
    scans = {name: Scan(context.connect, each, misfits) for name, each in prepared.plans.items()}
    streams = {name: scan.stream() for name, scan in scans.items()}
    progress = QueryProgress(context.show_progress, list(scans.values()), context.is_interrupted)
    running = context.engine.run(prepared.sql, streams, prepared.kept)
    try:
        schema, batches = running.results(progress)
        first = next(batches, None)
        progress.end()
        form = OutputForm(context.settings["output"])
        printer = RowPrinter(context.sheet, form, schema.names, json_inside=json_inside(schema))
        for batch in chain(() if first is None else (first,), batches):
            printer.add(rows_of(batch))
        printer.end()
    except Exception as error:
        # What went wrong in a scan reached DuckDB, which tells it in other words.
        own = next((scan.error for scan in scans.values() if scan.error is not None), None)
        if own is not None and own is not error:
            raise own from error
        raise
    finally:
        progress.end()
        for scan in scans.values():
            scan.stop()
        running.close()
        for scan in scans.values():
            scan.close()
    if context.sheet.is_terminal:
        context.remark(f"{printer.count:,} row{'' if printer.count == 1 else 's'}")


def _follow(context: Context, query: Query, misfits: Misfits) -> None:
    tail.check(query, table_references(query.tree))
    prepared = _prepared(context, query)
    ((name, found),) = prepared.plans.items()
    positions = _tail_starts(context, found)
    follower = tail.Follower(context.connect, context.engine, prepared.sql, name, found, positions, misfits)
    printer: RowPrinter | None = None
    for table in follower.tables(query.limit, context.is_interrupted):
        if printer is None:
            form = OutputForm(context.settings["output"])
            readers = json_inside(table.schema)
            printer = RowPrinter(context.sheet, form, table.column_names, as_they_come=True, json_inside=readers)
        for batch in table.to_batches():
            printer.add(rows_of(batch))


def declares(context: Context, tree: exp.Expr, text: str) -> Callable[[str], bool]:
    """Whether a topic of a query has a column of a name."""
    relations = [context.relation(each.name, text, each.start) for each in table_references(tree)]
    return lambda name: any(each.column(name) is not None for each in relations)


def _prepared(context: Context, query: Query) -> _Prepared:
    tree = query.tree.copy()
    name_columns(tree, declares(context, tree, query.text))
    ksql_functions.for_duckdb(tree)
    name_columns_of_whole_topics(tree)
    is_kept = reads_twice(tree)
    kept: dict[str, str] = {}
    names: dict[int, str] = {}
    columns: dict[int, list[Column]] = {}
    plans: dict[str, Plan] = {}
    views: dict[int, str] = {}
    for number, reference in enumerate(table_references(tree)):
        relation = context.relation(reference.name, query.text, reference.start)
        used = used_columns(tree, reference, relation)
        wanted = restriction(tree, reference.node, reference.alias, context.engine.value)
        if TIME in relation.options:
            # The time of a record is a column's, and the broker knows another one.
            wanted = replace(wanted, first_ms=None, end_ms=None)
        name = read = f"topic_{number}"
        if is_kept:
            read = f"rows_{number}"
            kept[read] = name
        if relation.kind == "TABLE" and query.emits:
            plans[name] = plan(context.cluster, relation, _with(used, ("_key",)), wanted)
            views[id(reference.node)] = _changes_of(read, used)
        elif relation.kind == "TABLE":
            # A table's row is its key's last one, whatever of it is asked for, and in whichever partition.
            plans[name] = plan(context.cluster, relation, with_state(used), Restriction())
            views[id(reference.node)] = state_of(read, used)
        else:
            plans[name] = plan(context.cluster, relation, used, wanted)
        names[id(reference.node)] = read
        columns[id(reference.node)] = used
    return _Prepared(replace_tables(tree, names, columns, views), plans, kept)


def with_state(used: Sequence[Column]) -> list[Column]:
    """The columns that a table's state is made of, beside those that a query uses."""
    return _with(used, _OF_STATE)


def _with(used: Sequence[Column], needed: Sequence[str]) -> list[Column]:
    names = {column.name for column in used}
    return [*used, *(Column(name, PSEUDO_COLUMNS[name]) for name in needed if name not in names), IS_TOMBSTONE]


def state_of(name: str, used: Sequence[Column]) -> str:
    """The query for a table's rows: of each key the last record, unless that deletes it.

    In a partition the last one is that of the highest offset.  A key is in several where partitions were added: there
    offsets say nothing, and the last one is the latest.
    """
    last = (
        f"SELECT *, row_number() OVER (PARTITION BY _key, _partition ORDER BY _offset DESC) AS {_PLACE} "
        f"FROM {name} WHERE _key IS NOT NULL"
    )
    latest = (
        "SELECT *, row_number() OVER (PARTITION BY _key ORDER BY _timestamp DESC NULLS LAST, _partition DESC) "
        f"AS {_RANK} FROM ({last}) WHERE {_PLACE} = 1"
    )
    return f"SELECT {_chosen(used)} FROM ({latest}) WHERE {_RANK} = 1 AND NOT {quoted(IS_TOMBSTONE.name)}"


def _changes_of(name: str, used: Sequence[Column]) -> str:
    """The query for the rows that a table's records set, each of them: a tail tells every change."""
    return f"SELECT {_chosen(used)} FROM {name} WHERE _key IS NOT NULL AND NOT {quoted(IS_TOMBSTONE.name)}"


def _chosen(used: Sequence[Column]) -> str:
    return ", ".join(quoted(column.name) for column in used) or f"1 AS {quoted(NO_COLUMN)}"
