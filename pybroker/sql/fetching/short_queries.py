"""Short questions to DuckDB over tables of Arrow; and what a decoder of values is.

Owns how the connections beside that of a query are made: they reach no file, whatever a declaration or a schema says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import duckdb
import pyarrow as pa

# From the values of a batch their columns, and the reason why a value has none, null where it fits.
ValueDecoder: TypeAlias = Callable[[pa.Array], tuple[list[pa.Array], pa.Array]]


def closed_connection() -> duckdb.DuckDBPyConnection:
    """A database in memory that reads and writes no file, and loads no extension."""
    return duckdb.connect(config={"threads": 1, "enable_external_access": "false"})


def connection_values(sql: str, **tables: Any) -> list[tuple[Any, ...]]:
    """The rows of a short statement of DuckDB over tables of Arrow, as inference asks it."""
    with _connection() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        return connection.execute(sql).fetchall()


def connection_schema(sql: str) -> pa.Schema:
    """What the columns of a short statement are to Arrow."""
    with _connection() as connection:
        return connection.sql(sql).to_arrow_table().schema


@contextmanager
def _connection() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = closed_connection()
    try:
        yield connection
    finally:
        connection.close()
