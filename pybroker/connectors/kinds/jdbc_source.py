"""JdbcSource: new rows of a table in PostgreSQL, or of a query, by a column that grows.

``incrementing`` takes rows whose column is greater than the last one's; ``timestamp`` rows that were changed later, all
of one time together.  The database makes JSON of the rows.  Each row is written once.  A row that becomes visible after
one with a greater value was read, because its transaction took longer, is missed.  ``timestamp.delay.interval.ms``
leaves room for that.

Owns the statements; `polled_runs` writes rows and offset in one transaction.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JJavaError

from pybroker.connectors.kinds.connector_runs import Run, Work
from pybroker.connectors.kinds.jdbc_sink import identifier, literal, quoted
from pybroker.connectors.kinds.polled_runs import Polled, PolledRun
from pybroker.connectors.state.state_records import canonical
from pybroker.pipeline.postgres_database import Database

# Between rows.  A column of JSON may have newlines, which its text keeps, and no such character.
_BETWEEN = "\x1e"

_log = logging.getLogger(__name__)


class QueryRefused(RuntimeError):
    """The database does not understand the query, or does not allow it."""


def start(work: Work) -> Run:
    """Start it; what is wrong ends the run."""
    return PolledRun(work, lambda offsets: _JdbcPoller(work, offsets))


class _JdbcPoller:
    def __init__(self, work: Work, offsets: Mapping[str, Mapping[str, Any]]) -> None:
        self._work = work
        properties = {"user": work.value("connection.user"), "password": work.value("connection.password")}
        given = {name: value for name, value in properties.items() if value is not None}
        self._database = Database(work.value("connection.url"), given, work.patience_s, self._tell, work.ends)
        self._mode: str = work.value("mode").lower()
        self._column: str = work.value(f"{self._mode}.column.name")
        self._keys: list[str] = work.value("key.fields")
        table, query = work.value("table"), work.value("query")
        self._partition = work.partition
        self._source = identifier(table) if table else f"({query})"
        last = offsets.get(canonical(self._partition), {}).get(self._mode)
        self._last = None if last is None else str(last)

    def poll(self) -> Polled:
        """See `Poller`."""
        spark = self._work.spark
        self._database.wait_until_it_answers(spark)
        delay_ms = self._work.value("timestamp.delay.interval.ms") if self._mode == "timestamp" else 0
        text = rows_query(self._source, self._column, self._last, self._work.value("batch.max.rows"), delay_ms)
        try:
            ((rows, last),) = self._database.rows(spark, text, 2)
        except Py4JJavaError as error:
            if self._database.refusal(spark) is not None:
                return Polled()  # it went away meanwhile, and is waited for
            said = str(error.java_exception.getMessage())
            raise QueryRefused(said.partition("\n")[0]) from None
        if rows is None or last is None:
            return Polled()
        self._last = last
        records: list[tuple[bytes | None, bytes | None]] = [
            (self._key(row), row.encode()) for row in rows.split(_BETWEEN)
        ]
        return Polled(records, [(self._partition, {self._mode: last})])

    def close(self) -> None:
        """See `Poller`."""

    def _tell(self, text: str) -> None:
        _log.warning("%s: %s", self._work.name, text)

    def _key(self, row: str) -> bytes | None:
        if not self._keys:
            return None
        values = json.loads(row)
        if missing := [name for name in self._keys if name not in values]:
            raise QueryRefused(f"key.fields names {missing[0]}, which rows do not have: they have {', '.join(values)}")
        if len(self._keys) == 1:
            found = values[self._keys[0]]
            return None if found is None else str(found).encode()
        return json.dumps({name: values[name] for name in self._keys}, separators=(",", ":")).encode()


def rows_query(source: str, column: str, last: str | None, count: int, delay_ms: int) -> str:
    """The query for new rows as JSON, in order, with `_BETWEEN` between them; and for the column's greatest value.

    Rows of one value stay together, however many they are.
    """
    name = quoted(column)
    bounds = [f"source.{name} IS NOT NULL"]
    if last is not None:
        bounds.append(f"source.{name} > {literal(last)}")
    if delay_ms:
        bounds.append(f"source.{name} < now() - interval '{delay_ms} milliseconds'")
    inner = (
        f"SELECT * FROM {source} AS source WHERE {' AND '.join(bounds)} "
        f"ORDER BY source.{name} FETCH FIRST {count} ROWS WITH TIES"
    )
    return (
        f"SELECT string_agg(row_to_json(new)::text, E'\\x1e' ORDER BY new.{name}), max(new.{name})::text "
        f"FROM ({inner}) AS new"
    )
