"""Writes micro-batches into a table of PostgreSQL by key: nothing twice, and an outage of the database is waited for.

Spark's JDBC sink inserts or overwrites. Here one transaction copies the rows into a table of its own, and merges them
from there. A row that is there already is replaced, unless by a row of an older epoch of the same query. A tombstone
deletes, which is a row whose columns besides the key are all null. Of several rows of a key in a micro-batch the last
counts.

So an epoch that is written again, whole or by halves, changes nothing, and a writer that was thought dead undoes
nothing.  A row that is deleted could not tell that: the table ``upsert_epochs`` has the last epoch of each query,
and what comes of an older one is dropped.

Epochs of two queries have no order: a query that begins on a new checkpoint, at epoch 0, replaces what the one before
wrote.  What is written by hand, outside of any query, counts as one query.

Counterpart: the JDBC sink connector in mode ``upsert``.
"""

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pybroker.pipeline.postgres_copy import copy_into
from pybroker.pipeline.postgres_database import PATIENCE_S, Database
from pybroker.pipeline.postgres_text import identifier, literal, quoted
from pybroker.pipeline.topics.writers import QUERY_PROPERTY

# A write may hit the very moment when a database goes or comes; one that fails this often while it answers is wrong.
FAILURES_MAX = 3

# Columns that a table has besides its own.
_OWN_COLUMNS = {"epoch": "bigint NOT NULL", "query_id": "text"}

# The last epoch of each query, per table.
_EPOCHS = "upsert_epochs"
# The transaction's own table, and its columns besides the target's: what tells a key's last row, and the rows' order.
_STAGING = "pybroker_staging"
_LATEST_BY, _POSITION = "staged_latest_by", "staged_position"

# Where a column's type ends in its declaration.
_CONSTRAINT = re.compile(
    r"\b(?:not\s+null|null|default|check|unique|primary|references|generated|collate|constraint)\b", re.IGNORECASE
)

_log = logging.getLogger(__name__)


class Table(NamedTuple):
    """A table: PostgreSQL's types by column, and the columns of its key.

    ``name`` may have a schema, ``mart.words``; without one the connection's search path tells it.  Two columns come
    besides: ``epoch``, and ``query_id``, the query (its checkpoint, that is) that wrote a row.
    """

    name: str
    columns: Mapping[str, str]
    key: Sequence[str]

    @property
    def identifier(self) -> str:
        """The name as statements have it."""
        return identifier(self.name)

    def creation(self) -> str:
        """The statement that creates it where it is not there."""
        columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in {**self.columns, **_OWN_COLUMNS}.items())
        return f"CREATE TABLE IF NOT EXISTS {self.identifier} ({columns}, PRIMARY KEY ({_quoted(self.key)}))"

    def completion(self) -> str:
        """The statement that adds the column of queries to a table that is older than that column.

        It looks first: adding a column waits for everybody who reads the table, be it there or not.
        """
        table = literal(self.identifier)
        return f"""
            DO $$ BEGIN
                IF NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = {table}::regclass AND attname = 'query_id')
                THEN ALTER TABLE {self.identifier} ADD COLUMN IF NOT EXISTS "query_id" {_OWN_COLUMNS["query_id"]};
                END IF;
            END $$
            """

    def beginning(self, epoch: int, query: str) -> list[str]:
        """The statements that say of an epoch of a query that it is written; later ones stay the last."""
        return [
            f"CREATE TABLE IF NOT EXISTS {self._epochs} "
            "(table_name text, query_id text, epoch bigint NOT NULL, PRIMARY KEY (table_name, query_id))",
            f"INSERT INTO {self._epochs} AS known VALUES ({literal(self.name)}, {literal(query)}, {epoch}) "
            "ON CONFLICT (table_name, query_id) DO UPDATE SET epoch = GREATEST(known.epoch, EXCLUDED.epoch)",
        ]

    def merge(self, staging: str, epoch: int, query: str | None, *, has_latest_by: bool = False) -> str:
        """The statement that takes over what the staging table has; ``query`` is None outside of any."""
        # The staging table has Spark's types: of a column of PostgreSQL's own, such as uuid or jsonb, text.
        typed = {name: f"{quoted(name)}::{_value_type(kind)}" for name, kind in self.columns.items()}
        keys = ", ".join(typed[name] for name in self.key)
        order = f'"{_LATEST_BY}" DESC NULLS LAST, ' if has_latest_by else ""
        rest = [quoted(name) for name in self.columns if name not in self.key]
        is_tombstone = " AND ".join(f"latest.{name} IS NULL" for name in rest) or "FALSE"
        changed = ", ".join(f"{name} = EXCLUDED.{name}" for name in (*rest, *map(quoted, _OWN_COLUMNS)))
        written_by = "NULL" if query is None else literal(query)
        same = " AND ".join(f"known.{name} = latest.{name}" for name in map(quoted, self.key))
        return f"""
            WITH latest AS (
                SELECT DISTINCT ON ({keys}) {", ".join(f"{at} AS {quoted(name)}" for name, at in typed.items())}
                FROM {quoted(staging)} WHERE {self._is_newest(epoch, query)} ORDER BY {keys}, {order}"{_POSITION}" DESC
            ), deleted AS (
                DELETE FROM {self.identifier} AS known USING latest WHERE {same} AND {is_tombstone}
                AND (known."query_id" IS DISTINCT FROM {written_by} OR known."epoch" <= {epoch})
            )
            INSERT INTO {self.identifier} AS known ({_quoted([*self.columns, *_OWN_COLUMNS])})
            SELECT {_quoted(self.columns)}, {epoch}, {written_by} FROM latest WHERE NOT ({is_tombstone})
            ON CONFLICT ({_quoted(self.key)}) DO UPDATE SET {changed}
            WHERE known."query_id" IS DISTINCT FROM EXCLUDED."query_id" OR known."epoch" <= EXCLUDED."epoch"
            """

    @property
    def _epochs(self) -> str:
        """The table of epochs, which is in the same schema."""
        schema, dot, _ = self.name.partition(".")
        return identifier(f"{schema}.{_EPOCHS}" if dot else _EPOCHS)

    def _is_newest(self, epoch: int, query: str | None) -> str:
        if query is None:
            return "TRUE"
        of_query = f"table_name = {literal(self.name)} AND query_id = {literal(query)}"
        return f"(SELECT epoch FROM {self._epochs} WHERE {of_query}) <= {epoch}"


def upsert_into(
    table: Table,
    url: str,
    properties: Mapping[str, str],
    *,
    latest_by: str | None = None,
    patience_s: float = PATIENCE_S,
    on_outage: Callable[[str], None] = _log.warning,
) -> Callable[[DataFrame, int], None]:
    """What `foreachBatch` takes.  ``properties`` are the driver's, user and password above all.  Without a
    ``socketTimeout`` (seconds) among them a statement may take five minutes.

    Of rows of one key in a micro-batch the last counts. That is the last in the order of the rows, which is that of a
    topic as long as nothing divides them anew. With ``latest_by`` it is the one with the greatest value in that column
    of the rows, such as ``offset``. A row whose columns besides the key are all null deletes its key's row.

    While the database does not answer, the micro-batch waits for ``patience_s`` seconds, then `DatabaseGone` ends the
    query; started again on its checkpoint it goes on with that micro-batch.  ``on_outage`` gets a line when the waiting
    begins, and when it is over.

    Raises ValueError for a table that has a column of the sink's own.
    """
    if taken := sorted({*_OWN_COLUMNS, _LATEST_BY, _POSITION} & table.columns.keys()):
        raise ValueError(f"table {table.name} has a column {taken[0]}, which the sink has for itself")
    return _Upserts(table, url, dict(properties), latest_by, patience_s, on_outage).write


class _Upserts:
    def __init__(
        self,
        table: Table,
        url: str,
        properties: dict[str, str],
        latest_by: str | None,
        patience_s: float,
        on_outage: Callable[[str], None],
    ) -> None:
        self._table = table
        self._latest_by = latest_by
        self._database = Database(url, properties, patience_s, on_outage)

    def write(self, batch: DataFrame, epoch: int) -> None:
        latest_by = [] if self._latest_by is None else [F.col(self._latest_by).alias(_LATEST_BY)]
        # The ids rise with the tasks, and in a task with its rows.
        position = F.monotonically_increasing_id().alias(_POSITION)
        rows = batch.select(*self._table.columns, *latest_by, position).persist()
        query = batch.sparkSession.sparkContext.getLocalProperty(QUERY_PROPERTY) or None
        failures = 0
        try:
            while True:
                self._database.wait_until_it_answers(batch.sparkSession)
                try:
                    self._write_once(rows, epoch, query)
                    return
                except (Py4JJavaError, PySparkException):
                    failures += self._database.refusal(batch.sparkSession) is None
                    if failures == FAILURES_MAX:
                        raise
        finally:
            rows.unpersist()

    def _write_once(self, rows: DataFrame, epoch: int, query: str | None) -> None:
        with self._database.transaction(rows.sparkSession) as transaction:
            copy_into(transaction, _STAGING, rows)
            transaction.execute(
                self._table.creation(),
                self._table.completion(),
                *([] if query is None else self._table.beginning(epoch, query)),
                self._table.merge(_STAGING, epoch, query, has_latest_by=self._latest_by is not None),
            )


def _value_type(kind: str) -> str:
    """The type alone of what declares a column, which may go on with constraints."""
    return _CONSTRAINT.split(kind, maxsplit=1)[0].strip()


def _quoted(names: Sequence[str] | Mapping[str, str]) -> str:
    return ", ".join(map(quoted, names))
