"""Short questions to DuckDB over tables of Arrow; and what a decoder of values is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import duckdb
import pyarrow as pa

# From the values of a batch their columns, and the reason why a value has none, null where it fits.
ValueDecoder: TypeAlias = Callable[[pa.Array], tuple[list[pa.Array], pa.Array]]


def connection_values(sql: str, **tables: Any) -> list[tuple[Any, ...]]:
    """The rows of a short statement of DuckDB over tables of Arrow, as inference asks it."""
    connection = duckdb.connect(config={"threads": 1})
    try:
        for name, table in tables.items():
            connection.register(name, table)
        return connection.execute(sql).fetchall()
    finally:
        connection.close()
