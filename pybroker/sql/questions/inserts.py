"""INSERT INTO … VALUES: rows as records of a topic, by what is declared or known of its columns.

Owns what a row is written as.  DuckDB computes the values and checks their types; the command sends the records.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from sqlglot import exp

from pybroker.sql.fetching.relation_decoding import literal, quoted
from pybroker.sql.fetching.text_casts import written_as_json
from pybroker.sql.parsing.column_types import parsed_type, type_of_text
from pybroker.sql.parsing.statements import InsertValues
from pybroker.sql.questions.engine import Engine
from pybroker.sql.relations.catalog import KEY, PSEUDO_COLUMNS, Column, Format, Relation
from pybroker.sql.relations.cluster_port import Written
from pybroker.sql.relations.format_options import check_written, header_written
from pybroker.sql.sql_errors import SqlError, at_place, nearest

_WRITTEN: Final = (Format.JSON, Format.TEXT, Format.AVRO, Format.PROTOBUF)
_KEY: Final = Column("_key", PSEUDO_COLUMNS["_key"], is_key=True)
_TIME: Final = Column("_timestamp", PSEUDO_COLUMNS["_timestamp"])
_ROWTIME: Final = Column("ROWTIME", "BIGINT")
# How the time of a record, in ms, comes of such a column.
_TIMES: Final = {_TIME: "epoch_ms({})", _ROWTIME: "{}"}
_OF_RECORDS: Final = {each.name.lower(): each for each in (_KEY, _TIME, _ROWTIME)}


def records_of(engine: Engine, relation: Relation, wanted: InsertValues) -> list[Written]:
    """The records to write; raises ``SqlError`` for what does not fit the relation.

    A column that is not named is null, and of JSON left out.  ``_key`` is the key where no column is, and no option
    ``key`` names one.  ``_timestamp`` is the time, which ``ROWTIME`` has in ms.
    """
    if relation.format not in _WRITTEN:
        raise SqlError(f"INSERT INTO writes {', '.join(_WRITTEN)}, and {relation.name} is {relation.format}")
    check_written(relation.options)
    columns = _columns(relation, wanted)
    for row in wanted.rows:
        if len(row.expressions) != len(columns):
            raise SqlError(
                f"a row has a value for each column; columns: {len(columns)}, values: {len(row.expressions)}"
            )
    places = [f"c{number}" for number in range(len(columns))]
    casts = ", ".join(f"{_cast(at, column.type)} AS {at}" for at, column in zip(places, columns, strict=True))
    rows = ", ".join(row.sql(dialect="duckdb") for row in wanted.rows)
    fields = [(at, each) for at, each in zip(places, columns, strict=True) if not each.is_key and each not in _TIMES]
    times = [template.format(at) for at, each in zip(places, columns, strict=True) if (template := _TIMES.get(each))]
    key = _key(relation, list(zip(places, columns, strict=True)))
    typed = f"SELECT {casts} FROM (VALUES {rows}) AS t({', '.join(places)})"
    sql = f"SELECT {key} AS k, {_value(relation, fields)} AS v, {times[0] if times else 'NULL'} AS t FROM ({typed})"
    found = [(row["k"], row["v"], row["t"]) for row in engine.rows_over(sql, {}).to_pylist(maps_as_pydicts="strict")]
    if relation.kind == "TABLE" and any(key is None for key, _, _ in found):
        raise SqlError(f"a row of the table {relation.name} has a key")
    if any(time is not None and time < 0 for _, _, time in found):
        raise SqlError("a record has a time from 1970 on")
    if relation.format is Format.TEXT and len(fields) > 1:
        named = " and ".join(each.name for _, each in fields)
        raise SqlError(f"a value of text is one column, not {named}")
    if relation.format is Format.JSON:
        for _, value, _ in found:
            _check_numbers(value)
    if relation.format in (Format.JSON, Format.TEXT):
        encode: Callable[[Any], bytes] = _TextEncoder(header_written(relation.options))
    else:
        from pybroker.sql.fetching.value_encoders import value_encoder

        encode = value_encoder(relation)
    return [
        Written(None if key is None else key.encode(), None if value is None else encode(value), time)
        for key, value, time in found
    ]


class _TextEncoder:
    """Texts as bytes, behind what stands in front of each."""

    def __init__(self, front: bytes) -> None:
        self._front = front

    def __call__(self, text: str) -> bytes:
        return self._front + text.encode()


def _columns(relation: Relation, wanted: InsertValues) -> list[Column]:
    if not wanted.columns:
        return list(relation.columns)
    found = []
    for name in wanted.columns:
        column = relation.column(name) or _OF_RECORDS.get(name.lower())
        if column is None:
            known = [each.name for each in relation.columns]
            message = f"{relation.name} has no column {name}{nearest(name, known)}"
            raise SqlError(at_place(message, wanted.text, wanted.text.find(name, wanted.start), len(name)))
        found.append(column)
    if len({column.name for column in found}) < len(found):
        raise SqlError("a column is named twice")
    if sum(column.is_key for column in found) > 1:
        raise SqlError("a record has one key")
    if sum(column in _TIMES for column in found) > 1:
        raise SqlError("a record has one time")
    return found


def _key(relation: Relation, placed: Sequence[tuple[str, Column]]) -> str:
    """The key of a row, whose columns are at these places; an error of DuckDB where the row says two."""
    said = next((f"CAST({at} AS VARCHAR)" for at, column in placed if column.is_key), None)
    named = relation.column(relation.options.get(KEY, ""))
    if named is None or named.is_key or any(column.is_key for column in relation.columns):
        return said or "NULL"
    meant = next((f"CAST({at} AS VARCHAR)" for at, column in placed if column == named), "NULL")
    if said is None:
        return meant
    wrong = literal(f"the key of {relation.name} is the text of {named.name}, and _key says another one")
    return f"CASE WHEN {said} IS DISTINCT FROM {meant} THEN error({wrong}) ELSE {meant} END"


def _cast(at: str, kind: str) -> str:
    """A value as its column's type; a fraction is no whole number, to which DuckDB would round it."""
    read_as = type_of_text(kind)
    cast = f"CAST({at} AS {kind})" if read_as == kind else f"CAST(CAST({at} AS {read_as}) AS {kind})"
    if parsed_type(kind).this not in exp.DataType.INTEGER_TYPES:
        return cast
    number = f"TRY_CAST(CAST({at} AS VARCHAR) AS DOUBLE)"
    wrong = f"error(concat({at}, {literal(f' is no {kind}')}))"
    return f"CASE WHEN {number} <> trunc({number}) THEN {wrong} ELSE {cast} END"


def _check_numbers(document: str | None) -> None:
    """``SqlError`` for a number that JSON has not: DuckDB writes it, and strict readers refuse the whole record."""

    def refuse(name: str) -> None:
        raise SqlError(f"JSON has no {name}")

    try:
        json.loads("null" if document is None else document, parse_constant=refuse)
    except RecursionError:
        raise SqlError("a value is nested too deep") from None


def _value(relation: Relation, fields: Sequence[tuple[str, Column]]) -> str:
    if not fields:
        return "NULL"
    if relation.format is Format.TEXT:
        return f"CAST({fields[0][0]} AS VARCHAR)"
    is_json = relation.format is Format.JSON
    cells = [(quoted(each.field), written_as_json(at, each.type) if is_json else at) for at, each in fields]
    row = f"struct_pack({', '.join(f'{name} := {cell}' for name, cell in cells)})"
    return f"CAST(to_json({row}) AS VARCHAR)" if is_json else row
