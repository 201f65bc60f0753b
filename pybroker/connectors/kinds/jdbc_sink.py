"""JdbcSink: rows of tables in PostgreSQL, each exactly once.

One transaction copies a micro-batch into a table of its own, takes it over from there, and notes the micro-batch's
number in ``pybroker_connect_epochs``.  A micro-batch whose number stands there is not taken over again.  So neither a
repeat nor a supervisor which was replaced writes a row twice.  The user's table needs no column of ours.

Owns the statements; `refused_rows` has those for rows that PostgreSQL refuses.  What an outage is,
`pybroker.pipeline.postgres_database` says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StructType

from pybroker.connectors.kinds.connector_databases import database_of
from pybroker.connectors.kinds.connector_runs import RecordRefused, Run, Work
from pybroker.connectors.kinds.query_epochs import query_of
from pybroker.connectors.kinds.record_forms import fields_of
from pybroker.connectors.kinds.refused_records import Refusal
from pybroker.connectors.kinds.refused_rows import (
    FAULT,
    OFFSET,
    PARTITION,
    REFUSED_COLUMNS,
    REFUSED_TABLE,
    TOPIC,
    by_row_where_it_fails,
    refusal_of,
    refused_query,
    refused_record,
)
from pybroker.connectors.kinds.sink_queries import start_sink
from pybroker.pipeline.postgres_copy import copy_into, lacks, postgres_type
from pybroker.pipeline.postgres_text import identifier, literal, quoted
from pybroker.pipeline.spark_names import spark_name
from pybroker.pipeline.streams.columns import TIME_FORMATS

_EPOCHS = "pybroker_connect_epochs"
_DELETED = "staged_is_deleted"
_STAGING = "pybroker_staging"
_FAILURES_MAX = 3


class TableRefused(RuntimeError):
    """The table is not there, or lacks a column, and the connector may not change that."""


def start(work: Work) -> Run:
    """Start it; raises what is wrong."""
    return start_sink(work, _JdbcSink(work).write, takes_tombstones=bool(work.value("delete.enabled")))


class _JdbcSink:
    def __init__(self, work: Work) -> None:
        self._work = work
        self._database = database_of(work)
        self._keys: list[str] = work.value("pk.fields")
        self._is_upsert = work.value("insert.mode").lower() == "upsert"
        self._has_marks = False

    def write(self, rows: DataFrame, epoch: int) -> list[Refusal]:
        """A micro-batch, into the tables of its topics, of which several may have one."""
        keyed = self._keyed(rows)
        name: str = self._work.value("table.name.format")
        if "${topic}" not in name:
            return self._write_table(keyed, name, epoch)
        tables: dict[str, list[str]] = {}
        for (topic,) in keyed.select("_topic").distinct().orderBy("_topic").collect():
            tables.setdefault(name.replace("${topic}", topic), []).append(topic)
        refused: list[Refusal] = []
        for table, topics in tables.items():
            of_table = keyed.where(F.col("_topic").isin(topics)) if len(tables) > 1 else keyed
            refused += self._write_table(of_table, table, epoch)
        return refused

    def _keyed(self, rows: DataFrame) -> DataFrame:
        """Rows with the key's columns, whether they are of the key or the value, and what a tombstone is."""
        found = rows.withColumn(_DELETED, F.col("_tombstone"))
        if self._work.value("pk.mode").lower() != "record_key":
            return found
        kind = rows.schema["_key"].dataType
        if not isinstance(kind, StructType) and len(self._keys) > 1:
            told = "and the key is one value: key.converter.schema makes a struct"
            raise TableRefused(f"pk.fields names {', '.join(self._keys)}, {told}")
        if isinstance(kind, StructType):
            return found.withColumns({name: F.col("_key").getField(name) for name in self._keys})
        return found.withColumn(self._keys[0], F.col("_key"))

    def _write_table(self, rows: DataFrame, table: str, epoch: int) -> list[Refusal]:
        columns = [name for name in fields_of(rows) if name != _DELETED]
        kinds = {name: rows.schema[name].dataType for name in columns}
        nested = [name for name, kind in kinds.items() if isinstance(kind, (ArrayType, MapType, StructType))]
        texts = {name: F.to_json(spark_name(name), TIME_FORMATS) for name in nested}
        plain = rows.withColumns(texts) if texts else rows
        staged = plain.select(*_staged(rows, columns, self._keys if self._is_upsert else []))
        types = {name: _type_of(kind) for name, kind in kinds.items()}
        arrays = {name: kind.elementType for name, kind in kinds.items() if isinstance(kind, ArrayType)}
        lists = {name: isinstance(element, BinaryType) for name, element in arrays.items()}
        query = query_of(rows)
        failures = 0
        while True:
            self._database.wait_until_it_answers(rows.sparkSession)
            try:
                return self._write_once(staged, table, types, lists, query, epoch)
            except (Py4JJavaError, PySparkException) as error:
                if (told := refused_record(error)) is not None:
                    raise RecordRefused(told) from None
                failures += self._database.refusal(rows.sparkSession) is None
                if failures == _FAILURES_MAX:
                    raise

    def _write_once(
        self,
        staged: DataFrame,
        table: str,
        types: Mapping[str, str],
        lists: Mapping[str, bool],
        query: str,
        epoch: int,
    ) -> list[Refusal]:
        spark = staged.sparkSession
        if not self._has_marks:
            self._database.execute(spark, *map(table_made, (marks_table(), refused_table())))
            self._has_marks = True
        is_tolerant = self._work.tolerates_errors
        of_query = (self._work.name, table, query)
        with self._database.transaction(spark) as transaction:
            copy_into(transaction, _STAGING, staged)
            there = {str(name): str(kind) for name, kind in transaction.rows(columns_query(table), 2)}
            changes = self._table_changes(table, types, there)
            wanted = {name: there.get(name, kind) for name, kind in types.items()}
            keys = self._keys if self._is_upsert else []
            taking = by_row_where_it_fails(
                quoted(_STAGING),
                lambda condition: takeover(_STAGING, table, wanted, keys, condition, lists),
                ", ".join(map(literal, of_query)),
                is_tolerant=is_tolerant,
            )
            forgotten = [f"DELETE FROM {REFUSED_TABLE} WHERE {condition_of(*of_query)}"] if is_tolerant else []
            transaction.execute(*changes, *marked([*forgotten, taking], *of_query, epoch))
            if not is_tolerant:
                return []
            return [refusal_of(row) for row in transaction.rows(refused_query(condition_of(*of_query)), 4)]

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


def marks_table() -> str:
    """The table of micro-batches, with its columns."""
    columns = "connector text, table_name text, query_id text, epoch bigint NOT NULL"
    return f"{_EPOCHS} ({columns}, PRIMARY KEY (connector, table_name, query_id))"


def refused_table() -> str:
    """The table of records that are refused, with its columns."""
    return f"{REFUSED_TABLE} ({REFUSED_COLUMNS})"


def table_made(declared: str) -> str:
    """The statement that makes a table; two connectors may do it at once."""
    return f"""
        DO $$ BEGIN
            CREATE TABLE IF NOT EXISTS {declared};
        EXCEPTION WHEN unique_violation OR duplicate_table THEN NULL;
        END $$
        """


def columns_query(table: str) -> str:
    """The query for names and types of a table's columns; no rows where there is no table.

    Types have no bounds, as of ``varchar(5)``: a cast to one with a bound would cut a text that an INSERT refuses.
    """
    return (
        "SELECT attname, format_type(CASE typtype WHEN 'd' THEN typbasetype ELSE atttypid END, -1) "
        "FROM pg_attribute JOIN pg_type ON pg_type.oid = atttypid "
        f"WHERE attrelid = to_regclass({literal(identifier(table))}) AND attnum > 0 AND NOT attisdropped"
    )


def takeover(
    staging: str,
    table: str,
    types: Mapping[str, str],
    keys: Sequence[str],
    condition: str = "TRUE",
    lists: Mapping[str, bool] = MappingProxyType({}),
) -> list[str]:
    """The statements that take rows over: by ``keys`` the last one of each, or all where there are none.

    ``lists`` are columns whose values are lists of JSON, which an array of PostgreSQL is made of.  Each has whether
    Spark's values are bytes, of which JSON has base64.
    """
    columns = ", ".join(map(quoted, types))
    # The staging table has Spark's types: of a column of PostgreSQL's own, such as uuid or jsonb, text.
    typed = ", ".join(
        _array(quoted(name), kind, of_bytes=lists[name])
        if name in lists and kind.endswith("[]")
        else f"{quoted(name)}::{kind}"
        for name, kind in types.items()
    )
    target = identifier(table)
    if not keys:
        return [
            f"INSERT INTO {target} ({columns}) SELECT {typed} FROM {quoted(staging)} "
            f"WHERE {condition} AND NOT {_DELETED}"
        ]
    by = ", ".join(map(quoted, keys))
    latest = f"SELECT DISTINCT ON ({by}) * FROM {quoted(staging)} WHERE {condition} ORDER BY {by}, {OFFSET} DESC"
    same = " AND ".join(f"known.{quoted(name)} = latest.{quoted(name)}::{types[name]}" for name in keys)
    rest = [name for name in types if name not in keys]
    changed = ", ".join(f"{quoted(name)} = EXCLUDED.{quoted(name)}" for name in rest)
    return [
        f"DELETE FROM {target} AS known USING ({latest}) AS latest WHERE {same} AND latest.{_DELETED}",
        f"INSERT INTO {target} ({columns}) SELECT {typed} FROM ({latest}) AS latest WHERE NOT latest.{_DELETED} "
        f"ON CONFLICT ({by}) DO " + (f"UPDATE SET {changed}" if rest else "NOTHING"),
    ]


def _array(column: str, kind: str, *, of_bytes: bool) -> str:
    item = "decode(item, 'base64')" if of_bytes and kind == "bytea[]" else "item"
    elements = f"ARRAY(SELECT {item} FROM jsonb_array_elements_text({column}::jsonb) AS item)"
    return f"CASE WHEN {column} IS NOT NULL THEN {elements}::{kind} END"


def marked(statements: Sequence[str], connector: str, table: str, query: str, epoch: int) -> list[str]:
    """The statements as a block that does nothing where this micro-batch, or a later one, has been taken over."""
    of_query = condition_of(connector, table, query)
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


def condition_of(connector: str, table: str, query: str) -> str:
    """What the rows of a connector, a table and a query have in our tables."""
    return f"connector = {literal(connector)} AND table_name = {literal(table)} AND query_id = {literal(query)}"


def _staged(rows: DataFrame, columns: Sequence[str], keys: Sequence[str]) -> list[Column]:
    """The columns of the transaction's table; what PostgreSQL has not is left out, and the row is at fault.

    So is one without a value in a column of its key: it would replace and delete nothing.
    """
    fault, kept = F.lit(None).cast("string"), []
    for name in keys:
        fault = F.when(F.col(spark_name(name)).isNull(), f"there is no {name}, a column of the key").otherwise(fault)
    for name in columns:
        field = F.col(spark_name(name))
        if (lacking := lacks(name, rows.schema[name].dataType)) is not None:
            is_lacking, reason = lacking
            fault = F.when(is_lacking, reason).otherwise(fault)
            field = F.when(is_lacking, None).otherwise(field).alias(name)
        kept.append(field)
    places = {TOPIC: "_origin", PARTITION: "_partition", OFFSET: "_offset"}
    return [*kept, *(F.col(own).alias(name) for name, own in places.items()), fault.alias(FAULT), F.col(_DELETED)]


def _type_of(kind: DataType) -> str:
    return "jsonb" if isinstance(kind, (ArrayType, MapType, StructType)) else postgres_type(kind)
