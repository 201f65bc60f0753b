"""DuckDB in this process: its memory, where it spills to, and a query that runs beside the terminal.

Owns the connection and its settings, the thread of a running query, its end by Ctrl-C, and what DuckDB's errors say to
a user.  Owns no topic: its caller has the streams of Arrow.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from queue import Empty, Queue
from threading import Event, Thread
from typing import Any, Final, cast

import duckdb
import pyarrow as pa
from sqlglot import exp

from pybroker.sql.questions.json_cells import with_json_named
from pybroker.sql.questions.result_cells import with_texts
from pybroker.sql.sql_errors import Interrupted, SqlError

ROWS_PER_BATCH: Final = 2_048
_BATCHES_AHEAD: Final = 4
_LOOK_S: Final = 0.05
_UNKNOWN_COLUMN: Final = re.compile(r'(?:Referenced column|does not have a column named) "([^"]+)"')
_PREFIX: Final = re.compile(r"^(?:\w+ )*?\w*Error: |^(?:Binder|Parser|Catalog|Conversion|Invalid Input) Error: ")
# The text of DuckDB's own, which is another one than the user's, and long lists of signatures.
_BEHIND_SENTENCE: Final = re.compile(r"\n+(?:LINE |\t?Candidate functions:)")


class UnknownColumn(SqlError):
    """A query names a column that there is not."""

    def __init__(self, column: str, message: str) -> None:
        super().__init__(message)
        self.column = column


class Engine:
    """One database in memory, with a bound; what does not fit is spilled to a folder that ends with it."""

    def __init__(self, memory: str) -> None:
        """``memory``: a size as DuckDB reads it (``2GB``); raises ``SqlError`` for one that is none."""
        self._memory = memory
        self._folder = tempfile.TemporaryDirectory(prefix="pybroker-sql-")
        self._connection = duckdb.connect()
        settings = {
            "memory_limit": memory,
            "temp_directory": self._folder.name,
            "TimeZone": "UTC",
            "autoinstall_known_extensions": "false",
            # Variables of this program are no tables.
            "python_enable_replacements": "false",
        }
        try:
            for name, value in settings.items():
                self._connection.execute(f"SET {name} = '{value}'").fetchall()
        except duckdb.Error as error:
            self.close()
            raise SqlError(f"--memory {memory}: {_first_line(error)}") from error

    def close(self) -> None:
        """Idempotent; what was spilled is gone."""
        self._connection.close()
        self._folder.cleanup()

    def value(self, expression: exp.Expr, kind: str) -> int | datetime | None:
        """What an expression without columns comes to as this type; None where it comes to nothing of the kind."""
        text = expression.sql(dialect="duckdb")
        with suppress(duckdb.Error):
            cast_to = f"TRY_CAST(({text}) AS {kind})"
            # A fraction would be rounded, and > 2.7 is not > 3.
            ((found, is_same),) = self._connection.execute(f"SELECT {cast_to}, {cast_to} = ({text})").fetchall()
            if is_same and isinstance(found, (int, datetime)) and not isinstance(found, bool):
                return found
        return None

    def run(self, sql: str, streams: Mapping[str, Any], kept: Mapping[str, str]) -> Running:
        """Start a query over streams of Arrow, by their names in it.

        ``kept``: tables that hold the rows of a stream while the query runs, with that stream's name.
        """
        for name, stream in streams.items():
            self._connection.register(name, stream)
        return Running(self._connection, sql, list(streams), kept, self._memory)

    def rows_over(self, sql: str, tables: Mapping[str, pa.Table], *, are_shown: bool = False) -> pa.Table:
        """A short query over tables of Arrow, to its end; rows that are shown have texts where Arrow has no value."""
        try:
            for name, table in tables.items():
                self._connection.register(name, table)
            relation = self._connection.sql(sql)
            relation = with_texts(relation) if are_shown else relation
            kinds = relation.types
            found = relation.to_arrow_table()
            return pa.Table.from_batches(found.to_batches(), with_json_named(found.schema, kinds))
        except duckdb.Error as error:
            raise failure(error, self._memory) from error
        finally:
            for name in tables:
                self._connection.unregister(name)


class Running:
    """A query in a thread of its own; the batches of its rows come one after another to who iterates."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        sql: str,
        names: Sequence[str],
        kept: Mapping[str, str],
        memory: str,
    ) -> None:
        self._connection = connection
        self._sql = sql
        self._names = names
        self._kept = kept
        self._memory = memory
        self._queue: Queue[pa.RecordBatch | pa.Schema | BaseException | None] = Queue(_BATCHES_AHEAD)
        self._stop = Event()
        self._thread = Thread(target=self._run, name="sql-query", daemon=True)
        self._thread.start()

    def results(self, is_interrupted: Callable[[], bool]) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """The columns, and the rows as they come; raises ``SqlError``, and ``Interrupted`` once it is asked for."""
        first = self._next(is_interrupted)
        assert isinstance(first, pa.Schema), "the columns come first"

        def rest() -> Iterator[pa.RecordBatch]:
            while (found := self._next(is_interrupted)) is not None:
                assert isinstance(found, pa.RecordBatch)
                yield found

        return first, rest()

    def close(self) -> None:
        """End the query, and forget its streams; idempotent."""
        self._stop.set()
        while self._thread.is_alive():
            self._connection.interrupt()
            with suppress(Empty):
                self._queue.get_nowait()
            self._thread.join(_LOOK_S)
        for table in self._kept:
            with suppress(duckdb.Error):
                self._connection.execute(f"DROP TABLE IF EXISTS {table}").fetchall()
        for name in self._names:
            with suppress(duckdb.Error):
                self._connection.unregister(name)

    def _next(self, is_interrupted: Callable[[], bool]) -> pa.RecordBatch | pa.Schema | None:
        while True:
            if is_interrupted():
                raise Interrupted
            try:
                found = self._queue.get(timeout=_LOOK_S)
            except Empty:
                continue
            if isinstance(found, duckdb.Error):
                raise failure(found, self._memory) from found
            if isinstance(found, BaseException):
                raise found
            return found

    def _run(self) -> None:
        try:
            for table, stream in self._kept.items():
                self._connection.execute(f"CREATE TEMP TABLE {table} AS FROM {stream}").fetchall()
            # COPY has no rows, which DuckDB's hints of types leave out.
            relation = cast("duckdb.DuckDBPyRelation | None", self._connection.sql(self._sql))
            if relation is None:
                self._put(pa.schema([]))
                self._put(None)
                return
            relation = with_texts(relation)
            kinds = relation.types
            with relation.to_arrow_reader(ROWS_PER_BATCH) as reader:
                self._put(with_json_named(reader.schema, kinds))
                for batch in reader:
                    self._put(batch)
            self._put(None)
        except Interrupted:
            return
        except BaseException as error:
            with suppress(Interrupted):
                self._put(error)

    def _put(self, item: pa.RecordBatch | pa.Schema | BaseException | None) -> None:
        while not self._stop.is_set():
            try:
                self._queue.put(item, timeout=_LOOK_S)
                return
            except Exception:  # full
                continue
        raise Interrupted


def failure(error: duckdb.Error, memory: str) -> SqlError:
    """DuckDB's error as a sentence for the user."""
    told = str(error)
    if isinstance(error, duckdb.OutOfMemoryException):
        return SqlError(f"the query needs more than its {memory} of memory, and cannot spill; --memory gives it more")
    if (found := _UNKNOWN_COLUMN.search(told)) is not None:
        return UnknownColumn(found[1], f"there is no column {found[1]}")
    return SqlError(_first_line(error))


def _first_line(error: BaseException) -> str:
    text = _PREFIX.sub("", str(error)).strip()
    first = _BEHIND_SENTENCE.split(text, maxsplit=1)[0].replace("\n", " ").strip()
    # A keyword in capitals stays as it is: "LIMIT cannot be negative".
    return first if first[1:2].isupper() else f"{first[:1].lower()}{first[1:]}"
