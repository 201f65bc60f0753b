"""Declarations that another user has written: they are data, and do nothing on the machine of who asks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pybroker.sql.declared.kept_declarations import as_kept, record_of, relation_read
from pybroker.sql.fetching.short_queries import closed_connection
from pybroker.sql.parsing.column_types import column_type
from pybroker.sql.relations.catalog import Column, Format, Relation
from tests.sql.test_standing_statements import ORDERS, World

ESCAPED = "VARCHAR) AS c0, NULL AS misfit FROM raw; COPY (SELECT 'owned' AS x) TO '{path}'; SELECT CAST('z' AS VARCHAR"
DECLARED: dict[str, Any] = {
    "name": "orders",
    "topic": "orders",
    "format": "text",
    "columns": [{"name": "id", "type": "VARCHAR", "field": "id", "is_key": False}],
    "is_declared": True,
    "kind": "STREAM",
    "options": {},
    "query": None,
}


@pytest.fixture
def world() -> Iterator[World]:
    found = World()
    found.cluster.produce("orders", ORDERS)
    yield found
    found.engine.close()


def test_type_of_a_declaration_ends_no_statement_of_duckdb_s(world: World, tmp_path: Path) -> None:
    owned = tmp_path / "owned.csv"
    column = {**DECLARED["columns"][0], "type": ESCAPED.format(path=owned)}
    world.cluster.produce("sql-declarations", [{**DECLARED, "columns": [column]}], keys=["orders"])
    assert world.ask("SELECT id FROM orders LIMIT 1") == [{"id": 0}]
    assert not owned.exists()
    assert world.ask("SHOW STREAMS") == []


@pytest.mark.parametrize(
    "type_",
    [
        *(
            "VARCHAR) FROM raw",
            "VARCHAR; SELECT 1",
            "DECIMAL((SELECT 1))",
            "STRUCT(a INT DEFAULT (SELECT 1))",
            "nonsense",
        ),
        *("INT[(SELECT 3)]", "STRUCT(a INT CHECK (1 = 1))", "", None, 7, "STRUCT(" * 5_000),
    ],
)
def test_column_without_a_type_makes_no_declaration(type_: object) -> None:
    column = {**DECLARED["columns"][0], "type": type_}
    assert relation_read(json.dumps({**DECLARED, "columns": [column]})) is None


@pytest.mark.parametrize(
    "other",
    [
        {"format": "csv", "options": {"delimiter": ";;"}},
        {"format": "csv", "options": {"delimiter": 7}},
        {"format": "avro", "options": {"schema": "/etc/other.avsc "}},
        {"format": "protobuf", "options": {"schema": "/etc/passwd", "message": "M"}},
        {"format": "yaml"},
        {"options": [1]},
        {"kind": "VIEW"},
        {"name": 7},
        {"columns": [{"name": 1, "type": "INT"}]},
        {"columns": [{"name": "a", "type": "INT", "other": 1}]},
        {"columns": 7},
    ],
)
def test_record_that_no_declaration_of_this_version_makes_is_none(other: dict[str, Any]) -> None:
    assert relation_read(json.dumps({**DECLARED, **other})) is None


def test_document_that_is_too_deep_is_no_declaration() -> None:
    assert relation_read('{"a":' * 100_000) is None


@pytest.mark.parametrize(
    "type_",
    [
        *("BIGINT", "VARCHAR", "HUGEINT", "DECIMAL(38,2)", "TIMESTAMP WITH TIME ZONE", "VARCHAR[][]", "INTEGER[3]"),
        *('STRUCT("a"" INT, b" INTEGER, c STRUCT("d e" JSON))', "MAP(VARCHAR, DOUBLE)", "ENUM('a', 'b''c')", "BLOB"),
    ],
)
def test_types_are_the_same_to_duckdb_when_they_are_read_again(type_: str) -> None:
    again = column_type(type_)
    assert column_type(again) == again
    with closed_connection() as connection:
        ((one, other),) = connection.execute(
            f"SELECT typeof(CAST(NULL AS {type_})), typeof(CAST(NULL AS {again}))"
        ).fetchall()
    assert one == other


def test_declaration_of_a_schema_is_made_twice_without_a_mistake() -> None:
    columns = (Column("a", "VARCHAR", "a"), Column("b", "TIMESTAMP WITH TIME ZONE", "b"))
    found = Relation("o", "o", Format.JSON, columns, True)
    kept = as_kept(found)
    assert kept is not None
    assert [each.type for each in kept.columns] == ["VARCHAR", "TIMESTAMPTZ"]
    assert as_kept(kept) == kept == relation_read((record_of(kept).value or b"").decode())


def test_connections_that_decode_reach_no_file(tmp_path: Path) -> None:
    with closed_connection() as connection:
        with pytest.raises(duckdb.PermissionException):
            connection.execute(f"COPY (SELECT 1) TO '{tmp_path}/a.csv'")
        with pytest.raises(duckdb.Error, match="Cannot enable external access"):
            connection.execute("SET enable_external_access = true")


def test_type_that_duckdb_does_not_decode_is_a_mistake_with_a_sentence(world: World) -> None:
    column = {**DECLARED["columns"][0], "type": "OBJECT('a')"}
    world.cluster.produce("sql-declarations", [{**DECLARED, "columns": [column]}], keys=["orders"])
    assert "values are not read by these columns" in world.refusal("SELECT id FROM orders")
