"""Where a query names topics, which columns it uses, and what DuckDB is given in their place."""

from __future__ import annotations

import pytest

from pybroker.sql.parsing.queries import replace_tables, table_references, used_columns
from pybroker.sql.parsing.statements import Query, statements
from pybroker.sql.relations.catalog import Column, Format, Relation
from pybroker.sql.sql_errors import SqlError

ORDERS = Relation(
    "orders", "orders", Format.JSON, tuple(Column(name, "BIGINT", name) for name in ("id", "amount", "who"))
)


def tree_of(text: str) -> Query:
    (found,) = statements(text)
    assert isinstance(found, Query)
    return found


def names(text: str) -> list[tuple[str, str]]:
    return [(each.name, each.alias) for each in table_references(tree_of(text).tree)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("SELECT * FROM orders", [("orders", "orders")]),
        ("SELECT * FROM orders AS o", [("orders", "o")]),
        ('SELECT * FROM "my-topic" JOIN users u USING (id)', [("my-topic", "my-topic"), ("users", "u")]),
        ("SELECT * FROM orders.v1", [("orders.v1", "v1")]),
        ("SELECT * FROM read_parquet('a.parquet')", []),
        ("SELECT * FROM 'a.parquet' JOIN orders USING (id)", [("orders", "orders")]),
        ("WITH a AS (SELECT * FROM orders) SELECT * FROM a", [("orders", "orders")]),
        ("WITH orders AS (SELECT * FROM orders) SELECT * FROM orders", [("orders", "orders")]),
        ("WITH a AS (SELECT 1), b AS (SELECT * FROM a) SELECT * FROM b, a", []),
        ("SELECT (SELECT max(id) FROM users) FROM orders", [("orders", "orders"), ("users", "users")]),
        ("SELECT 1", []),
    ],
)
def test_tables_that_are_no_definitions_and_no_files_are_topics(text: str, found: list[tuple[str, str]]) -> None:
    assert sorted(names(text)) == sorted(found)


def used(text: str) -> list[str]:
    tree = tree_of(text).tree
    (reference,) = table_references(tree)
    return [column.name for column in used_columns(tree, reference, ORDERS)]


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("SELECT count(*) FROM orders", []),
        ("SELECT amount FROM orders WHERE ID > 1", ["id", "amount"]),
        ("SELECT * FROM orders", ["id", "amount", "who"]),
        ("SELECT o.* FROM orders o WHERE _offset > 1", ["id", "amount", "who", "_offset"]),
        ("SELECT _key, _timestamp FROM orders", ["_key", "_timestamp"]),
        ("SELECT orders FROM orders", ["id", "amount", "who"]),
        ("SELECT sum(amount) FROM orders GROUP BY who.name", ["amount", "who"]),
    ],
)
def test_columns_that_a_query_names_are_used(text: str, columns: list[str]) -> None:
    assert used(text) == columns


def replaced(text: str, view: str | None = None) -> str:
    tree = tree_of(text).tree
    references = table_references(tree)
    relations = {id(each.node): f"topic_{number}" for number, each in enumerate(references)}
    columns = {id(each.node): used_columns(tree, each, ORDERS) for each in references}
    views = {} if view is None else {id(each.node): view for each in references}
    return replace_tables(tree, relations, columns, views)


def test_topic_keeps_its_name_in_the_query() -> None:
    assert replaced("SELECT orders.id FROM orders") == 'SELECT orders.id FROM "topic_0" AS "orders"'
    assert replaced("SELECT o.id FROM orders AS o") == 'SELECT o.id FROM "topic_0" AS o'


def test_star_leaves_out_pseudo_columns_that_the_query_names() -> None:
    assert "EXCLUDE (_offset)" in replaced("SELECT * FROM orders WHERE _offset > 1")
    assert "EXCLUDE" not in replaced("SELECT * FROM orders WHERE id > 1")
    assert "EXCLUDE" not in replaced("SELECT count(*) FROM orders WHERE _offset > 1")


def test_definition_that_is_named_twice_is_computed_once() -> None:
    twice = "WITH a AS (SELECT id FROM orders) SELECT * FROM a x JOIN a y USING (id)"
    assert "AS MATERIALIZED (" in replaced(twice)
    assert "MATERIALIZED" not in replaced("WITH a AS (SELECT id FROM orders) SELECT * FROM a")


def test_recursive_query_over_a_topic_is_refused() -> None:
    with pytest.raises(SqlError, match="a recursive query over a topic is not there"):
        replaced("WITH RECURSIVE a AS (SELECT id FROM orders UNION SELECT a.id FROM a, orders) SELECT * FROM a")


def test_table_is_the_view_of_its_state() -> None:
    text = replaced("SELECT id FROM orders AS o", "SELECT id FROM topic_0 WHERE x = 1")
    assert text == 'SELECT id FROM (SELECT id FROM topic_0 WHERE x = 1) AS "o"'
