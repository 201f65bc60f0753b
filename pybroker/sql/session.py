"""A session: statements one after another, over one catalog, one engine and one cluster.

Owns what each statement does and prints, and the way of a query: names to relations, columns and restrictions, scans,
DuckDB, rows.  Owns no parsing (``statements``), no prompt and no command line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

import pyarrow as pa

from pybroker.sql import declarations, inference, tail
from pybroker.sql.catalog import PSEUDO_COLUMNS, Catalog, Column, Format, Relation, topic_named
from pybroker.sql.cluster_port import Cluster, Connect
from pybroker.sql.engine import Engine, UnknownColumn
from pybroker.sql.inserts import Write, records_of
from pybroker.sql.pushdown import Restriction, restriction
from pybroker.sql.queries import replace_tables, table_references, used_columns
from pybroker.sql.query_progress import QueryProgress, ShowProgress
from pybroker.sql.relation_decoding import IS_TOMBSTONE, Misfits, quoted
from pybroker.sql.row_output import OutputForm, RowPrinter, Sheet
from pybroker.sql.scanning import Plan, Scan, plan
from pybroker.sql.sql_errors import SqlError, at_place, nearest
from pybroker.sql.statements import (
    Control,
    Create,
    CreateAs,
    Describe,
    Drop,
    Exit,
    Explain,
    Help,
    InsertSelect,
    InsertValues,
    Query,
    Set,
    Show,
    Statement,
    statements,
)
from pybroker.sql.token_reader import tokens_of

_OPTIONS: Final = {
    "misfits": ("skip", "stop"),
    "output": tuple(OutputForm),
    "auto.offset.reset": ("latest", "earliest"),
}
_HELP: Final = (
    ("SELECT … FROM topic [EMIT CHANGES]", "answer a question, or print rows as they arrive"),
    ("EXPLAIN SELECT …", "what would be fetched"),
    ("SHOW TOPICS | STREAMS | TABLES", "what there is"),
    ("DESCRIBE topic", "its columns"),
    ("CREATE STREAM | TABLE name (column type, …) WITH (topic='…', format='…')", "declare a schema for this session"),
    ("DROP STREAM | TABLE name", "forget a declaration"),
    ("INSERT INTO name (column, …) VALUES (value, …), …", "write records"),
    ("SET misfits = 'skip' | 'stop'", "what records do that do not fit: skip them, or stop"),
    ("SET output = 'table' | 'json' | 'csv'", "how rows are printed"),
    ("SET 'auto.offset.reset' = 'latest' | 'earliest'", "where EMIT CHANGES begins"),
    ("EXIT", "leave; so does Ctrl-D"),
)


class End(Exception):
    """EXIT was said."""


@dataclass(slots=True)
class _Prepared:
    """A query that is ready for DuckDB: its SQL there, and the plan of each topic by its name in it."""

    sql: str
    plans: dict[str, Plan] = field(default_factory=dict)


class Session:
    """Runs statements; not for several threads."""

    def __init__(
        self,
        cluster: Cluster,
        connect: Connect,
        engine: Engine,
        sheet: Sheet,
        remark: Callable[[str], None],
        *,
        write: Write | None = None,
        show_progress: ShowProgress = lambda _total: nullcontext(lambda _done: None),
        output: OutputForm = OutputForm.TABLE,
        stops_at_misfit: bool = False,
    ) -> None:
        """``cluster`` answers this thread, ``connect`` makes one for a thread of its own; remarks are no results."""
        self.catalog = Catalog()
        self._cluster = cluster
        self._connect = connect
        self._engine = engine
        self._sheet = sheet
        self._remark = remark
        self._show_progress = show_progress
        self._write = write
        self._settings = {
            "misfits": "stop" if stops_at_misfit else "skip",
            "output": str(output),
            "auto.offset.reset": "latest",
        }

    def run(self, text: str, is_interrupted: Callable[[], bool] = lambda: False) -> None:
        """All statements of a text; raises ``SqlError`` at the first that fails, ``Interrupted``, and ``End``."""
        for statement in statements(text):
            self._carry_out(statement, is_interrupted)

    def topics(self) -> list[str]:
        """Names for completion."""
        return [*self.catalog.names(), *self._cluster.topics()]

    def _carry_out(self, statement: Statement, is_interrupted: Callable[[], bool]) -> None:
        match statement:
            case InsertValues():
                self._insert(statement)
            case CreateAs() | InsertSelect() | Control() | Show(what="queries"):
                raise SqlError("standing queries run on Spark, and are not there yet")
            case Query():
                self._answer(statement, is_interrupted)
            case Explain():
                self._explain(statement.query)
            case Show():
                self._show(statement.what)
            case Describe():
                self._describe(statement)
            case Create():
                self._create(statement)
            case Drop():
                self.catalog.drop(statement.name, if_exists=statement.if_exists)
            case Set():
                self._set(statement)
            case Help():
                self._print(("STATEMENT", "MEANING"), _HELP)
            case Exit():
                raise End

    # --- queries -----------------------------------------------------------------------------------------------------

    def _answer(self, query: Query, is_interrupted: Callable[[], bool]) -> None:
        misfits = Misfits(stops=self._settings["misfits"] == "stop")
        with self._columns_told(query):
            if query.emits:
                self._follow(query, misfits, is_interrupted)
            else:
                self._run(self._prepared(query), misfits, is_interrupted)
        if (told := misfits.remark()) is not None:
            self._remark(told)

    def _run(self, prepared: _Prepared, misfits: Misfits, is_interrupted: Callable[[], bool]) -> None:
        scans = {name: Scan(self._connect, each, misfits) for name, each in prepared.plans.items()}
        streams = {name: scan.stream() for name, scan in scans.items()}
        progress = QueryProgress(self._show_progress, list(scans.values()), is_interrupted)
        running = self._engine.run(prepared.sql, streams)
        try:
            schema, batches = running.results(progress)
            first = next(batches, None)
            progress.end()
            printer = RowPrinter(self._sheet, OutputForm(self._settings["output"]), schema.names)
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
        if self._sheet.is_terminal:
            self._remark(f"{printer.count:,} row{'' if printer.count == 1 else 's'}")

    def _follow(self, query: Query, misfits: Misfits, is_interrupted: Callable[[], bool]) -> None:
        tail.check(query, table_references(query.tree))
        prepared = self._prepared(query)
        ((name, found),) = prepared.plans.items()
        positions = tail.starts(self._cluster, found, from_begin=self._settings["auto.offset.reset"] == "earliest")
        follower = tail.Follower(self._connect, self._engine, prepared.sql, name, found, positions, misfits)
        printer: RowPrinter | None = None
        for table in follower.tables(query.limit, is_interrupted):
            if printer is None:
                form = OutputForm(self._settings["output"])
                printer = RowPrinter(self._sheet, form, table.column_names, as_they_come=True)
            for batch in table.to_batches():
                printer.add(rows_of(batch))

    def _prepared(self, query: Query) -> _Prepared:
        tree = query.tree.copy()
        names: dict[int, str] = {}
        columns: dict[int, list[Column]] = {}
        plans: dict[str, Plan] = {}
        views: dict[int, str] = {}
        for number, reference in enumerate(table_references(tree)):
            relation = self._relation(reference.name, query.text, reference.start)
            used = used_columns(tree, reference, relation)
            wanted = restriction(tree, reference.node, reference.alias, self._engine.value)
            name = f"topic_{number}"
            if relation.kind == "TABLE":
                # A table's row is its key's last one, whatever of it is asked for.
                wanted = Restriction(partitions=wanted.partitions)
                plans[name] = plan(self._cluster, relation, with_state(used), wanted)
                views[id(reference.node)] = state_of(name, used)
            else:
                plans[name] = plan(self._cluster, relation, used, wanted)
            names[id(reference.node)] = name
            columns[id(reference.node)] = used
        return _Prepared(replace_tables(tree, names, columns, views), plans)

    def _relation(self, name: str, text: str, start: int | None) -> Relation:
        """What a name means: a declaration, or a topic; ``SqlError`` at its place where it is neither."""
        declared = self.catalog.declared(name)
        if declared is not None:
            return declared
        topic = name if self._cluster.partitions(name) is not None else topic_named(name, self._cluster.topics())
        if topic is None:
            message = f"there is no topic {name}{nearest(name, self.topics())}"
            raise SqlError(message if start is None else at_place(message, text, start, len(name)))
        known = self.catalog.inferred(topic)
        if known is None:
            known = inference.infer(self._cluster, topic)
            # What is no JSON yet, or empty, may be another thing at the next question.
            if known.format is Format.JSON:
                self.catalog.remember(known)
        return known

    @contextmanager
    def _columns_told(self, query: Query) -> Iterator[None]:
        """Have an unknown column shown at its place, with the nearest of those that there are."""
        try:
            yield
        except UnknownColumn as error:
            known = set(PSEUDO_COLUMNS)
            for reference in table_references(query.tree):
                relation = self._relation(reference.name, query.text, reference.start)
                known |= {column.name for column in relation.columns}
            message = f"there is no column {error.column}{nearest(error.column, known)}"
            at = [each for each in tokens_of(query.text) if each.text.lower() == error.column.lower()]
            if not at:
                raise SqlError(message) from error
            raise SqlError(at_place(message, query.text, at[0].start, len(at[0].text))) from error

    # --- the rest ----------------------------------------------------------------------------------------------------

    def _explain(self, query: Query) -> None:
        if query.emits:
            tail.check(query, table_references(query.tree))
        prepared = self._prepared(query)
        rows: list[tuple[object, ...]] = []
        for each in prepared.plans.values():
            relation = each.relation
            shared = (
                relation.topic,
                str(relation.format),
                ", ".join(column.name for column in each.columns) or None,
                " and ".join(each.wanted.told()) or None,
                "; ".join(each.kept) or None,
            )
            rows += [(*shared, partition, at.start, at.end) for partition, at in each.positions.items()] or [
                (*shared, None, None, None)
            ]
        engine = "duckdb, as rows arrive" if query.emits else "duckdb"
        heading = ("ENGINE", "TOPIC", "FORMAT", "COLUMNS", "PUSHED", "NOT PUSHED", "PARTITION", "FROM", "TO")
        self._print(heading, [(engine, *row) for row in rows])

    def _show(self, what: str) -> None:
        if what == "topics":
            topics = [each for each in self._cluster.topics() if not each.startswith("__")]
            self._print(("TOPIC", "PARTITIONS"), [(each, len(self._cluster.partitions(each) or ())) for each in topics])
            return
        kind = what.removesuffix("s").upper()
        found = [each for each in self.catalog.relations() if each.kind == kind]
        self._print((kind, "TOPIC", "FORMAT"), [(each.name, each.topic, str(each.format)) for each in found])

    def _describe(self, wanted: Describe) -> None:
        relation = self._relation(wanted.name, wanted.text, wanted.start)
        origin = "declared" if relation.is_declared else f"inferred, as {relation.format}"
        rows = [(column.name, column.type, "key" if column.is_key else origin) for column in relation.columns]
        self._print(("COLUMN", "TYPE", "FROM"), [*rows, *((*each, "the record") for each in PSEUDO_COLUMNS.items())])

    def _create(self, wanted: Create) -> None:
        relation = declarations.relation_of(self._cluster, wanted)
        is_new = self.catalog.declare(relation, replaces=wanted.replaces, if_not_exists=wanted.if_not_exists)
        self._remark(f"{wanted.kind.lower()} {wanted.name} is {'declared' if is_new else 'there'}, for this session")

    def _insert(self, wanted: InsertValues) -> None:
        if self._write is None:
            raise SqlError("this session writes nothing")
        relation = self._relation(wanted.name, wanted.text, wanted.start)
        records = records_of(self._engine, relation, wanted)
        self._write(relation.topic, records)
        self._remark(f"{len(records):,} record{'' if len(records) == 1 else 's'} written to {relation.topic}")

    def _set(self, wanted: Set) -> None:
        if wanted.name not in _OPTIONS:
            raise SqlError(f"there is no option {wanted.name}{nearest(wanted.name, _OPTIONS)}")
        value = _OPTIONS[wanted.name][0] if wanted.value is None else wanted.value.lower()
        if value not in _OPTIONS[wanted.name]:
            raise SqlError(f"{wanted.name} is {' or '.join(_OPTIONS[wanted.name])}, not {wanted.value}")
        self._settings[wanted.name] = value

    def _print(self, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        form = OutputForm(self._settings["output"])
        names = columns if form is OutputForm.TABLE else [name.lower().replace(" ", "_") for name in columns]
        printer = RowPrinter(self._sheet, form, names)
        printer.add(rows)
        printer.end()


def with_state(used: Sequence[Column]) -> list[Column]:
    """The columns that a table's state is made of, beside those that a query uses."""
    names = {column.name for column in used}
    needed = [Column(name, PSEUDO_COLUMNS[name]) for name in ("_key", "_offset") if name not in names]
    return [*used, *needed, IS_TOMBSTONE]


def state_of(name: str, used: Sequence[Column]) -> str:
    """The query for a table's rows: of each key the last record, unless that deletes it."""
    chosen = ", ".join(quoted(column.name) for column in used) or "1 AS rows"
    return (
        f"SELECT {chosen} FROM (SELECT *, row_number() OVER (PARTITION BY _key ORDER BY _offset DESC) AS _rank "
        f"FROM {name} WHERE _key IS NOT NULL) WHERE _rank = 1 AND NOT {IS_TOMBSTONE.name}"
    )


def rows_of(batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    """The rows of a batch as Python has them; a map is a dict."""
    if not batch.num_columns:
        return [()] * batch.num_rows
    return list(zip(*(column.to_pylist(maps_as_pydicts="lossy") for column in batch.columns), strict=True))
