"""Cells of a result that Python has no value for, as the texts that DuckDB has for them.

Owns which those are.  Of times of a day, bits, variants, shapes and numbers beyond a HUGEINT Arrow loses a part, so
that DuckDB casts them before.  Times before the year 1 or beyond the year 9999, ``infinity`` and nanoseconds are cast
where Python refuses them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import duckdb
import pyarrow as pa
from sqlglot import exp

from pybroker.sql.fetching.relation_decoding import quoted
from pybroker.sql.fetching.short_queries import closed_connection
from pybroker.sql.parsing.column_types import parsed_type
from pybroker.sql.questions.row_output import csv_cell

_LOST: Final = frozenset(
    {
        *(exp.DType.BIT, exp.DType.TIME, exp.DType.TIMETZ, exp.DType.TIME_NS, exp.DType.VARIANT),
        *(exp.DType.UINT128, exp.DType.BIGNUM, exp.DType.GEOMETRY),
    }
)
_WORDS: Final = ("BIT", "TIME", "VARIANT", "UHUGEINT", "BIGNUM", "GEOMETRY")
_NS_PER_US: Final = 1_000


def with_texts(relation: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """The relation, where values that Arrow loses are texts."""
    kinds = [_with_texts(str(kind)) for kind in relation.types]
    if not any(kinds):
        return relation
    columns = zip(relation.columns, kinds, strict=True)
    # By their places, since two columns may have one name.
    chosen = (
        f"{f'#{at}' if kind is None else f'CAST(#{at} AS {kind})'} AS {quoted(name)}"
        for at, (name, kind) in enumerate(columns, 1)
    )
    return relation.project(", ".join(chosen))


def _with_texts(kind: str) -> str | None:
    """The type with texts in it; None where it loses nothing."""
    if not any(word in kind for word in _WORDS):
        return None
    with suppress(ValueError):
        tree = parsed_type(kind)
        parts = [part for part in tree.find_all(exp.DataType) if part.this in _LOST]
        if parts and not any(part.this is exp.DType.UNION for part in tree.find_all(exp.DataType)):
            for part in parts:
                part.set("this", exp.DType.TEXT)
            return tree.sql(dialect="duckdb")
    return None


def rows_of(batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    """The rows of a batch as Python has them; a map is a dict."""
    if not batch.num_columns:
        return [()] * batch.num_rows
    return list(zip(*(_cells(column) for column in batch.columns), strict=True))


def _cells(column: pa.Array) -> list[Any]:
    if "[ns" not in str(column.type):
        # A key of a map that has parts is none of a dict.
        with suppress(OverflowError, ValueError, TypeError):
            return list(column.to_pylist(maps_as_pydicts="lossy"))
    return _one_by_one(column)


def _one_by_one(column: pa.Array) -> list[Any]:
    """The cells of a column that has a value which Python refuses."""
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return _moments(column)
    is_valid = column.is_valid().to_pylist()
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        rows = zip(*(_one_by_one(each) for each in column.flatten()), strict=True)
        fields = (dict(zip(names, row, strict=True)) for row in rows)
        return [found if valid else None for found, valid in zip(fields, is_valid, strict=True)]
    if pa.types.is_map(kind):
        keys = [csv_cell(key) if isinstance(key, (dict, list)) else key for key in _one_by_one(column.keys)]
        pairs = list(zip(keys, _one_by_one(column.items), strict=True))
        return _parts(column, is_valid, lambda start, end: dict(pairs[start:end]))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        items = _one_by_one(column.values)
        return _parts(column, is_valid, lambda start, end: items[start:end])
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError):  # as a list of a fixed size has them inside
        return _texts(column)


def _parts(column: pa.Array, is_valid: list[bool], part: Callable[[int, int], Any]) -> list[Any]:
    ends = column.offsets.to_pylist()
    return [part(*ends[at : at + 2]) if valid else None for at, valid in enumerate(is_valid)]


def _moments(column: pa.Array) -> list[Any]:
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        return _nanoseconds(column)
    cells: list[Any] = []
    texts: list[str | None] = []
    for at, each in enumerate(column):
        try:
            cells.append(each.as_py())
        except (OverflowError, ValueError):
            texts = texts or _texts(column)
            cells.append(texts[at])
    return cells


def _nanoseconds(column: pa.Array) -> list[Any]:
    """Without pandas, which has a class of its own for them where it is imported."""
    whole: list[Any] = column.cast(pa.timestamp("us", column.type.tz), safe=False).to_pylist()
    counts = column.cast(pa.int64()).to_pylist()
    if not any(count and count % _NS_PER_US for count in counts):
        return whole
    found = zip(whole, _texts(column), counts, strict=True)
    return [text if count and count % _NS_PER_US else cell for cell, text, count in found]


def _texts(column: pa.Array) -> list[str | None]:
    with closed_connection() as connection:
        connection.execute("SET TimeZone = 'UTC'").fetchall()
        connection.register("raw", pa.table({"t": column}).__arrow_c_stream__())
        return [text for (text,) in connection.execute("SELECT CAST(t AS VARCHAR) FROM raw").fetchall()]
