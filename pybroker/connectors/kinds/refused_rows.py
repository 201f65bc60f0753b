"""Rows that PostgreSQL refuses: taken one by one behind a statement that failed, and noted with the reason.

PostgreSQL undoes a statement whole.  So where one fails for what a row is, each row is a transaction within that of the
micro-batch.  Those that are refused stand in ``pybroker_connect_refused`` from the same transaction on.  A supervisor
that ends before they are dead letters finds them there.

Owns the statements, and what a row's fault is: a value, a constraint or a trigger, and no table or right that is
missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from py4j.protocol import Py4JJavaError

from pybroker.connectors.kinds.dead_letters import TARGET
from pybroker.connectors.kinds.refused_records import Refusal

REFUSED_TABLE: Final = "pybroker_connect_refused"
REFUSED_COLUMNS: Final = (
    'connector text, table_name text, query_id text, topic text, "partition" integer, "offset" bigint, reason text'
)
# Columns of a staging table: what makes a row known, and why Spark says that it cannot be written.
TOPIC, PARTITION, OFFSET, FAULT = "staged_topic", "staged_partition", "staged_offset", "staged_fault"
# Within the table of one micro-batch.
ROW: Final = "ctid = pybroker_row.place"

_CODE: Final = "PB001"
_FAULTS: Final = " OR ".join(
    (
        "data_exception",
        "integrity_constraint_violation",
        "with_check_option_violation",
        "program_limit_exceeded",
        "raise_exception",
    )
)


def by_row_where_it_fails(
    staging: str, taken: Callable[[str], Sequence[str]], values: str, *, is_tolerant: bool
) -> str:
    """A block that takes rows over by ``taken``, which makes statements for a condition of rows.

    ``values`` begin the row of a record that is refused.  Where none is tolerated the first one ends the block.
    """
    place = f"pybroker_row.{TOPIC}, pybroker_row.{PARTITION}, pybroker_row.{OFFSET}"
    if is_tolerant:
        judged = f"INSERT INTO {REFUSED_TABLE} VALUES ({values}, {place}, pybroker_told)"
    else:
        message = f"format('the record of %s-%s at offset %s: {TARGET}: %s', {place}, pybroker_told)"
        judged = f"RAISE EXCEPTION USING ERRCODE = '{_CODE}', MESSAGE = {message}"
    # What is deferred to the end of the transaction is judged here, too.
    at_once = "SET CONSTRAINTS ALL IMMEDIATE"
    return f"""DECLARE
            pybroker_row record;
            pybroker_told text;
        BEGIN
            IF EXISTS (SELECT FROM {staging} WHERE {FAULT} IS NOT NULL) THEN RAISE data_exception; END IF;
            {_joined([*taken("TRUE"), at_once])}
        EXCEPTION WHEN {_FAULTS} THEN
            FOR pybroker_row IN
                SELECT ctid AS place, {TOPIC}, {PARTITION}, {OFFSET}, {FAULT} FROM {staging}
                ORDER BY {TOPIC}, {PARTITION}, {OFFSET}
            LOOP
                BEGIN
                    IF pybroker_row.{FAULT} IS NOT NULL THEN
                        RAISE data_exception USING MESSAGE = pybroker_row.{FAULT};
                    END IF;
                    {_joined([*taken(ROW), at_once])}
                EXCEPTION WHEN {_FAULTS} THEN
                    GET STACKED DIAGNOSTICS pybroker_told = MESSAGE_TEXT;
                    {judged};
                END;
            END LOOP;
        END"""


def refused_query(of_query: str) -> str:
    """The query for what the last micro-batch has left."""
    return f'SELECT topic, "partition", "offset", reason FROM {REFUSED_TABLE} WHERE {of_query}'


def refusal_of(row: Sequence[str | None]) -> Refusal:
    """What a row of `refused_query` says."""
    topic, partition, offset, reason = row
    return Refusal.by_target(topic or "", int(partition or 0), int(offset or 0), str(reason))


def refused_record(error: Exception) -> str | None:
    """What a block that tolerates none says of the record that ended it; None for any other error."""
    if not isinstance(error, Py4JJavaError):
        return None
    thrown = error.java_exception
    if thrown.getClass().getName() != "org.postgresql.util.PSQLException" or thrown.getSQLState() != _CODE:
        return None
    return str(thrown.getServerErrorMessage().getMessage())


def _joined(statements: Sequence[str]) -> str:
    return "".join(f"{each};\n" for each in statements)
