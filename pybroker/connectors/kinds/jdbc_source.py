"""JdbcSource: new rows of a table in PostgreSQL, or of a query, by a column that grows.

``incrementing`` takes rows whose column is greater than the last one's, and ``timestamp`` rows that were changed later,
and not in the database's future.  ``timestamp+incrementing`` takes also rows of the same time with a greater number.
Rows of one value are taken together.  Each row is written once.  A row that becomes visible behind one that is not
smaller, because its transaction took longer, is missed.  ``timestamp.delay.interval.ms`` leaves room for that.  A row
without a value there is not read until it has one.

The database makes JSON of the rows.  Owns the statements; `polled_runs` writes rows and offset in one transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, Final

from py4j.protocol import Py4JJavaError

from pybroker.connectors.kinds.connector_databases import database_of
from pybroker.connectors.kinds.connector_runs import Run, Work
from pybroker.connectors.kinds.exact_json import key_of, parsed
from pybroker.connectors.kinds.polled_runs import Polled, PolledRun
from pybroker.connectors.state.state_records import canonical
from pybroker.pipeline.postgres_text import identifier, literal, quoted

# Between rows.  A column of JSON may have newlines, which its text keeps, and no such character.
_BETWEEN = "\x1e"
# Of rows of one value, which are one text of PostgreSQL and one transaction of Kafka.
_ROWS_MAX: Final = 200_000
_BYTES_MAX: Final = 64 * 1024 * 1024
_AT_THE_END: Final = "; \t\r\n"
_TIMES: Final = ("date", "timestamp without time zone", "timestamp with time zone")


class QueryRefused(RuntimeError):
    """The database does not understand the query, or does not allow it; or its rows cannot be read in parts."""


def start(work: Work) -> Run:
    """Start it; what is wrong ends the run."""
    return PolledRun(work, lambda offsets: _JdbcPoller(work, offsets))


class _JdbcPoller:
    def __init__(self, work: Work, offsets: Mapping[str, Mapping[str, Any]]) -> None:
        self._work = work
        self._database = database_of(work)
        self._modes: list[str] = work.value("mode").lower().split("+")
        self._columns: list[str] = [work.value(f"{mode}.column.name") for mode in self._modes]
        self._keys: list[str] = work.value("key.fields")
        table, query = work.value("table"), work.value("query")
        self._partition = work.partition
        self._source = identifier(table) if table else nested(query)
        held = offsets.get(canonical(self._partition), {})
        # Where there was no second column, all rows of the last time were taken.
        known = takewhile(lambda each: each is not None, (held.get(mode) for mode in self._modes))
        self._last = [str(each) for each in known]
        # Until when changes are looked for; None until the database has said what the column is.
        self._until: str | None = None if "timestamp" in self._modes else ""

    def poll(self) -> Polled:
        """See `Poller`."""
        spark = self._work.spark
        self._database.wait_until_it_answers(spark)
        try:
            if self._until is None:
                ((kind,),) = self._database.rows(spark, type_query(self._source, self._columns[0]), 1)
                self._until = self._until_now(kind)
            count: int = self._work.value("batch.max.rows")
            text = rows_query(self._source, self._columns, self._last, count, self._until)
            ((rows, found, *last),) = self._database.rows(spark, text, 2 + len(self._columns))
        except Py4JJavaError as error:
            if self._database.refusal(spark) is not None:
                return Polled()  # it went away meanwhile, and is waited for
            said = str(error.java_exception.getMessage())
            raise QueryRefused(said.partition("\n")[0]) from None
        if rows is None:
            self._check_none(found)
            return Polled()
        self._last = [str(each) for each in last]
        return self._polled(rows.split(_BETWEEN))

    def _polled(self, rows: Sequence[str]) -> Polled:
        """Rows as records; one of which no key can be made is passed over where that is tolerated."""
        polled = Polled([], [(self._partition, dict(zip(self._modes, self._last, strict=True)))])
        for row in rows:
            try:
                polled.records.append((self._key(row), row.encode()))
            except ValueError as error:
                reason = f"of a row no key can be made: {error}"
                if not self._work.tolerates_errors:
                    raise QueryRefused(reason) from None
                polled.passed_over, polled.reason = polled.passed_over + 1, reason
        return polled

    def close(self) -> None:
        """See `Poller`."""

    def _until_now(self, kind: str | None) -> str:
        if kind not in _TIMES:
            raise QueryRefused(
                f"timestamp.column.name: {self._columns[0]} is {kind}, and no date or timestamp: "
                "mode incrementing takes whatever grows"
            )
        return until_now(kind, self._work.value("db.timezone"), self._work.value("timestamp.delay.interval.ms"))

    def _check_none(self, found: str | None) -> None:
        if found != "0":
            raise QueryRefused(
                f"{found} rows have one value of {' and '.join(self._columns)}, and {_ROWS_MAX} are taken at once, "
                f"of {_BYTES_MAX} bytes: mode timestamp+incrementing takes rows of one time in parts"
            )

    def _key(self, row: str) -> bytes | None:
        if not self._keys:
            return None
        values = parsed(row)
        if missing := [name for name in self._keys if name not in values]:
            raise QueryRefused(f"key.fields names {missing[0]}, which rows do not have: they have {', '.join(values)}")
        return key_of(values, self._keys)


def nested(query: str) -> str:
    """A query inside of another one: without the semicolon that ends it, and not in the comment that it ends with."""
    return f"({query.strip().rstrip(_AT_THE_END)}\n)"


def type_query(source: str, column: str) -> str:
    """The query for the type of a column, that below a domain, whether there are rows or none."""
    return (
        "SELECT format_type(CASE typbasetype WHEN 0 THEN oid ELSE typbasetype END, NULL) FROM pg_type "
        f"WHERE oid = pg_typeof((SELECT source.{quoted(column)} FROM {source} AS source LIMIT 0))"
    )


def until_now(kind: str, zone: str, delay_ms: int) -> str:
    """The time of the database's clock, as a column of a type has it, less a delay.

    That of a statement and no later one, so that an index is used, and no row is younger than what the statement sees.
    """
    now = "now()" if kind == "timestamp with time zone" else f"(now() AT TIME ZONE {literal(zone)})"
    return f"{now} - interval '{delay_ms} milliseconds'"


def rows_query(source: str, columns: Sequence[str], last: Sequence[str], count: int, until: str) -> str:
    """The query for new rows as JSON, in order, with `_BETWEEN` between them; their number; and the last one's columns.

    Rows of one value stay together.  Where so many cannot be taken there are none, but a number.
    """
    names = [quoted(column) for column in columns]
    bounds = [f"source.{name} IS NOT NULL" for name in names]
    if last:
        behind = ", ".join(f"source.{name}" for name in names[: len(last)])
        bounds.append(f"({behind}) > ({', '.join(map(literal, last))})")
    if until:
        bounds.append(f"source.{names[0]} < {until}")
    order = ", ".join(f"source.{name}" for name in names)
    places = [f"place{at}" for at in range(len(names))]
    placed = ", ".join(f"pybroker_row.{name} AS {place}" for name, place in zip(names, places, strict=True))
    upwards, downwards = ", ".join(places), ", ".join(f"{place} DESC" for place in places)
    ends = ", ".join(f"(array_agg({place}::text ORDER BY {downwards}) FILTER (WHERE fits))[1]" for place in places)
    return f"""
        WITH pybroker_row AS (
            SELECT * FROM {source} AS source WHERE {" AND ".join(bounds)}
            ORDER BY {order} FETCH FIRST {count} ROWS WITH TIES
        ),
        told AS MATERIALIZED (SELECT row_to_json(pybroker_row)::text AS json, {placed} FROM pybroker_row),
        sized AS (
            SELECT *, count(*) OVER upto AS rows, sum(octet_length(json)) OVER upto AS bytes
            FROM told WINDOW upto AS (ORDER BY {upwards})
        ),
        judged AS (SELECT *, rows <= {max(count, _ROWS_MAX)} AND bytes <= {_BYTES_MAX} AS fits FROM sized)
        SELECT string_agg(json, E'\\x1e' ORDER BY {upwards}) FILTER (WHERE fits), count(*), {ends} FROM judged
        """
