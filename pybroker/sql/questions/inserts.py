"""INSERT INTO … VALUES: rows as records of a topic, by what is declared or known of its columns.

Owns what a row is written as.  DuckDB computes the values and checks their types; the command sends the records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pybroker.sql.fetching.relation_decoding import quoted
from pybroker.sql.parsing.statements import InsertValues
from pybroker.sql.questions.engine import Engine
from pybroker.sql.relations.catalog import PSEUDO_COLUMNS, Column, Format, Relation
from pybroker.sql.relations.format_options import header_written
from pybroker.sql.sql_errors import SqlError, at_place, nearest

_WRITTEN: Final = (Format.JSON, Format.TEXT, Format.AVRO, Format.PROTOBUF)
_KEY: Final = Column("_key", PSEUDO_COLUMNS["_key"], is_key=True)


def records_of(engine: Engine, relation: Relation, wanted: InsertValues) -> list[tuple[bytes | None, bytes | None]]:
    """The keys and values to write; raises ``SqlError`` for what does not fit the relation.

    A column that is not named is null, and of JSON left out.  ``_key`` is the key where no column is.
    """
    if relation.format not in _WRITTEN:
        raise SqlError(f"INSERT INTO writes {', '.join(_WRITTEN)}, and {relation.name} is {relation.format}")
    columns = _columns(relation, wanted)
    for row in wanted.rows:
        if len(row.expressions) != len(columns):
            raise SqlError(
                f"a row has a value for each column; columns: {len(columns)}, values: {len(row.expressions)}"
            )
    places = [f"c{number}" for number in range(len(columns))]
    casts = ", ".join(f"CAST({at} AS {column.type}) AS {at}" for at, column in zip(places, columns, strict=True))
    rows = ", ".join(row.sql(dialect="duckdb") for row in wanted.rows)
    keys = [at for at, column in zip(places, columns, strict=True) if column.is_key]
    fields = [(at, column) for at, column in zip(places, columns, strict=True) if not column.is_key]
    key = f"CAST({keys[0]} AS VARCHAR)" if keys else "NULL"
    typed = f"SELECT {casts} FROM (VALUES {rows}) AS t({', '.join(places)})"
    sql = f"SELECT {key} AS k, {_value(relation, fields)} AS v FROM ({typed})"
    found = [(row["k"], row["v"]) for row in engine.rows_over(sql, {}).to_pylist(maps_as_pydicts="strict")]
    if relation.kind == "TABLE" and any(key is None for key, _ in found):
        raise SqlError(f"a row of the table {relation.name} has a key")
    if relation.format in (Format.JSON, Format.TEXT):
        front = header_written(relation.options)
        return [(_bytes(key), None if value is None else front + value.encode()) for key, value in found]
    from pybroker.sql.fetching.value_encoders import value_encoder

    encode = value_encoder(relation)
    return [(_bytes(key), None if value is None else encode(value)) for key, value in found]


def _columns(relation: Relation, wanted: InsertValues) -> list[Column]:
    if not wanted.columns:
        return list(relation.columns)
    found = []
    for name in wanted.columns:
        column = _KEY if name.lower() == _KEY.name else relation.column(name)
        if column is None:
            known = [each.name for each in relation.columns]
            message = f"{relation.name} has no column {name}{nearest(name, known)}"
            raise SqlError(at_place(message, wanted.text, wanted.text.find(name, wanted.start), len(name)))
        found.append(column)
    if len({column.name for column in found}) < len(found):
        raise SqlError("a column is named twice")
    if sum(column.is_key for column in found) > 1:
        raise SqlError("a record has one key")
    return found


def _value(relation: Relation, fields: Sequence[tuple[str, Column]]) -> str:
    if not fields:
        return "NULL"
    if relation.format is Format.TEXT:
        return f"CAST({fields[0][0]} AS VARCHAR)"
    row = f"struct_pack({', '.join(f'{quoted(each.field)} := {at}' for at, each in fields)})"
    return f"CAST(to_json({row}) AS VARCHAR)" if relation.format is Format.JSON else row


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
