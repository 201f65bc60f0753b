"""JdbcSink: rows of tables in PostgreSQL, each exactly once.

A micro-batch fills a staging table by Spark's tasks, and one transaction takes it over and notes the micro-batch's
number in ``pybroker_connect_epochs``.  A micro-batch whose number stands there is not taken over again, so that
neither a repeat nor a supervisor which was replaced writes a row twice.  The user's table needs no column of ours.

Owns the statements.  What an outage is, `pybroker.pipeline.postgres_database` says.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from uuid import uuid4

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StructType

from pybroker.connectors.declared.transforms import quoted as spark_quoted
from pybroker.connectors.kinds.connector_runs import Run, Work
from pybroker.connectors.kinds.record_forms import fields_of
from pybroker.connectors.kinds.sink_queries import start_sink
from pybroker.pipeline.postgres_database import Database
from pybroker.pipeline.topics.writers import QUERY_PROPERTY
from pybroker.pipeline.upserts import dropping, staging_names

_EPOCHS = "pybroker_connect_epochs"
_OFFSET, _DELETED = "staged_offset", "staged_is_deleted"
_FAILURES_MAX = 3
_TYPES = {
    "string": "text",
    "int": "integer",
    "bigint": "bigint",
    "smallint": "smallint",
    "tinyint": "smallint",
    "double": "double precision",
    "float": "real",
    "boolean": "boolean",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
    "date": "date",
    "binary": "bytea",
}

_log = logging.getLogger(__name__)


class TableRefused(RuntimeError):
    """The table is not there, or lacks a column, and the connector may not change that."""


def start(work: Work) -> Run:
    """Start it; raises what is wrong."""
    return start_sink(work, _JdbcSink(work).write, takes_tombstones=bool(work.value("delete.enabled")))


class _JdbcSink:
    def __init__(self, work: Work) -> None:
        self._work = work
        properties = {"user": work.value("connection.user"), "password": work.value("connection.password")}
        given = {name: value for name, value in properties.items() if value is not None}
        self._database = Database(work.value("connection.url"), given, work.patience_s, self._tell, work.ends)
        self._keys: list[str] = work.value("pk.fields")
        self._is_upsert = work.value("insert.mode").lower() == "upsert"
        self._has_marks = False
        # Tables of which what an earlier run left behind is dropped.
        self._cleared: set[str] = set()

    def write(self, rows: DataFrame, epoch: int) -> None:
        """A micro-batch, into a table for each of its topics."""
        keyed = self._keyed(rows)
        topics = [row[0] for row in keyed.select("_topic").distinct().collect()]
        for topic in sorted(topics):
            of_topic = keyed.where(F.col("_topic") == topic) if len(topics) > 1 else keyed
            self._write_table(of_topic, self._work.value("table.name.format").replace("${topic}", topic), epoch)

    def _tell(self, text: str) -> None:
        _log.warning("%s: %s", self._work.name, text)

    def _keyed(self, rows: DataFrame) -> DataFrame:
        """Rows with the key's columns, whether they are of the key or the value, and what a tombstone is."""
        found = rows.withColumn(_DELETED, F.col("_tombstone"))
        if self._work.value("pk.mode").lower() != "record_key":
            return found
        kind = rows.schema["_key"].dataType
        if isinstance(kind, StructType):
            return found.withColumns({name: F.col("_key").getField(name) for name in self._keys})
        return found.withColumn(self._keys[0], F.col("_key"))

    def _write_table(self, rows: DataFrame, table: str, epoch: int) -> None:
        columns = [name for name in fields_of(rows) if name != _DELETED]
        nested = [name for name in columns if isinstance(rows.schema[name].dataType, (ArrayType, MapType, StructType))]
        plain = rows.withColumns({name: F.to_json(spark_quoted(name)) for name in nested}) if nested else rows
        staged = plain.select(*map(spark_quoted, columns), F.col("_offset").alias(_OFFSET), _DELETED)
        types = {name: _type_of(rows.schema[name].dataType) for name in columns}
        query = rows.sparkSession.sparkContext.getLocalProperty(QUERY_PROPERTY) or ""
        failures = 0
        while True:
            self._database.wait_until_it_answers(rows.sparkSession)
            try:
                self._write_once(staged, table, types, query, epoch)
                return
            except (Py4JJavaError, PySparkException):
                self._cleared.discard(table)
                failures += self._database.refusal(rows.sparkSession) is None
                if failures == _FAILURES_MAX:
                    raise

    def _write_once(self, staged: DataFrame, table: str, types: Mapping[str, str], query: str, epoch: int) -> None:
        spark = staged.sparkSession
        if not self._has_marks:
            self._database.execute(spark, marks_table())
            self._has_marks = True
        beginning = staging_names(table, self._work.name)
        if table not in self._cleared:
            self._database.execute(spark, dropping(beginning))
            self._cleared.add(table)
        there = {str(name): str(kind) for name, kind in self._database.rows(spark, columns_query(table), 2)}
        changes = self._table_changes(table, types, there)
        wanted = {name: there.get(name, kind) for name, kind in types.items()}
        staging = f"{beginning}{uuid4().hex[:16]}"
        staged.write.mode("errorifexists").jdbc(self._database.url, staging, properties=self._database.properties)
        takes = marked(
            takeover(staging, table, wanted, self._keys if self._is_upsert else []),
            self._work.name,
            table,
            query,
            epoch,
        )
        self._database.execute(spark, *changes, *takes, f"DROP TABLE {quoted(staging)}")

    def _table_changes(self, table: str, types: Mapping[str, str], there: Mapping[str, str]) -> list[str]:
        if not there:
            if not self._work.value("auto.create"):
                raise TableRefused(f"there is no table {table}, and auto.create is false")
            columns = [f"{quoted(name)} {kind}" for name, kind in types.items()]
            if self._keys:
                columns.append(f"PRIMARY KEY ({', '.join(map(quoted, self._keys))})")
            return [f"CREATE TABLE IF NOT EXISTS {identifier(table)} ({', '.join(columns)})"]
        missing = [name for name in types if name not in there]
        if missing and not self._work.value("auto.evolve"):
            raise TableRefused(f"table {table} has no column {missing[0]}, and auto.evolve is false")
        return [
            f"ALTER TABLE {identifier(table)} ADD COLUMN IF NOT EXISTS {quoted(name)} {types[name]}" for name in missing
        ]


def quoted(name: str) -> str:
    """A name as PostgreSQL has it."""
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def identifier(table: str) -> str:
    """A table that may have a schema before it."""
    return ".".join(map(quoted, table.split(".", 1)))


def literal(text: str) -> str:
    """A text as PostgreSQL has it."""
    doubled = text.replace("'", "''")
    return f"'{doubled}'"


def marks_table() -> str:
    """The statement that makes the table of micro-batches; two connectors may do it at once."""
    columns = "connector text, table_name text, query_id text, epoch bigint NOT NULL"
    return f"""
        DO $$ BEGIN
            CREATE TABLE IF NOT EXISTS {_EPOCHS} ({columns}, PRIMARY KEY (connector, table_name, query_id));
        EXCEPTION WHEN unique_violation OR duplicate_table THEN NULL;
        END $$
        """


def columns_query(table: str) -> str:
    """The query for names and types of a table's columns; no rows where there is no table."""
    return (
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
        f"WHERE attrelid = to_regclass({literal(identifier(table))}) AND attnum > 0 AND NOT attisdropped"
    )


def takeover(staging: str, table: str, types: Mapping[str, str], keys: Sequence[str]) -> list[str]:
    """The statements that take the rows over: by ``keys`` the last one of each, or all where there are none."""
    columns = ", ".join(map(quoted, types))
    # The staging table has Spark's types: of a column of PostgreSQL's own, such as uuid or jsonb, text.
    typed = ", ".join(f"{quoted(name)}::{kind}" for name, kind in types.items())
    target = identifier(table)
    if not keys:
        return [f"INSERT INTO {target} ({columns}) SELECT {typed} FROM {quoted(staging)} WHERE NOT {_DELETED}"]
    by = ", ".join(map(quoted, keys))
    latest = f"SELECT DISTINCT ON ({by}) * FROM {quoted(staging)} ORDER BY {by}, {_OFFSET} DESC"
    same = " AND ".join(f"known.{quoted(name)} = latest.{quoted(name)}::{types[name]}" for name in keys)
    rest = [name for name in types if name not in keys]
    changed = ", ".join(f"{quoted(name)} = EXCLUDED.{quoted(name)}" for name in rest)
    return [
        f"DELETE FROM {target} AS known USING ({latest}) AS latest WHERE {same} AND latest.{_DELETED}",
        f"INSERT INTO {target} ({columns}) SELECT {typed} FROM ({latest}) AS latest WHERE NOT latest.{_DELETED} "
        f"ON CONFLICT ({by}) DO " + (f"UPDATE SET {changed}" if rest else "NOTHING"),
    ]


def marked(statements: Sequence[str], connector: str, table: str, query: str, epoch: int) -> list[str]:
    """The statements as a block that does nothing where this micro-batch, or a later one, has been taken over."""
    of_query = f"connector = {literal(connector)} AND table_name = {literal(table)} AND query_id = {literal(query)}"
    inner = ";\n".join(statements)
    body = f"""BEGIN
        IF (SELECT epoch FROM {_EPOCHS} WHERE {of_query} FOR UPDATE) < {epoch} THEN
            {inner};
            UPDATE {_EPOCHS} SET epoch = {epoch} WHERE {of_query};
        END IF;
        END"""
    return [
        f"INSERT INTO {_EPOCHS} VALUES ({literal(connector)}, {literal(table)}, {literal(query)}, -1) "
        "ON CONFLICT DO NOTHING",
        f"DO {literal(body)}",
    ]


def _type_of(kind: DataType) -> str:
    if isinstance(kind, DecimalType):
        return f"numeric({kind.precision},{kind.scale})"
    return "jsonb" if isinstance(kind, (ArrayType, MapType, StructType)) else _TYPES.get(kind.simpleString(), "text")
