"""Texts are told apart into statements, and what is none is shown at its place."""

from __future__ import annotations

import pytest

from pybroker.sql.parsing.statements import (
    Create,
    DeclaredColumn,
    Describe,
    Drop,
    Exit,
    Explain,
    Query,
    Set,
    Show,
    Statement,
    is_complete,
    statements,
)
from pybroker.sql.sql_errors import SqlError, at_place, nearest


def one(text: str) -> Statement:
    (found,) = statements(text)
    return found


def refusal(text: str) -> str:
    with pytest.raises(SqlError) as caught:
        statements(text)
    return str(caught.value)


def test_semicolons_part_statements_and_one_at_the_end_makes_none() -> None:
    found = statements("SELECT 1; SHOW TOPICS;\n-- a remark; nothing more\nEXIT;")
    assert [type(each) for each in found] == [Query, Show, Exit]
    assert statements(" ;; -- nothing\n") == []


def test_semicolon_in_a_text_parts_nothing() -> None:
    assert isinstance(one("SELECT ';' AS a"), Query)


@pytest.mark.parametrize(
    ("text", "emits", "limit"),
    [
        ("SELECT a FROM t", False, None),
        ("SELECT a FROM t EMIT CHANGES", True, None),
        ("SELECT a FROM t WHERE a > 1 emit changes limit 3", True, 3),
    ],
)
def test_emit_changes_stands_behind_a_query(text: str, emits: bool, limit: int | None) -> None:
    found = one(text)
    assert isinstance(found, Query)
    assert (found.emits, found.limit) == (emits, limit)
    assert "EMIT" not in found.tree.sql(dialect="duckdb").upper()


def test_query_of_any_shape_is_one() -> None:
    for text in (
        "WITH a AS (SELECT 1) SELECT * FROM a",
        "FROM t SELECT x",
        "VALUES (1)",
        "SELECT 1 UNION ALL SELECT 2",
        "(SELECT 1)",
    ):
        assert isinstance(one(text), Query), text
    assert isinstance(one("EXPLAIN SELECT a FROM t"), Explain)


def test_declaration_has_columns_types_keys_and_options() -> None:
    found = one(
        "CREATE OR REPLACE STREAM orders (id VARCHAR KEY, amount DECIMAL(10, 2), tags ARRAY<STRING>, "
        "at TIMESTAMP, who STRUCT<name STRING>) WITH (KAFKA_TOPIC='orders.v1', VALUE_FORMAT='JSON');"
    )
    assert isinstance(found, Create)
    assert (found.kind, found.name, found.replaces, found.if_not_exists) == ("STREAM", "orders", True, False)
    assert found.columns[0] == DeclaredColumn("id", "VARCHAR", True)
    assert found.columns[1] == DeclaredColumn("amount", "DECIMAL(10, 2)", False)
    assert found.columns[2].type == "VARCHAR[]"
    assert found.columns[4].type == "STRUCT(name VARCHAR)"
    assert found.options == {"kafka_topic": "orders.v1", "value_format": "JSON"}


def test_fields_of_a_struct_may_have_names_in_backticks() -> None:
    found = one("CREATE STREAM s (v STRUCT<a INT, `B c` STRING, `d\"e` INT>, e ENUM('`x`')) WITH (topic='t')")
    assert isinstance(found, Create)
    kinds = ['STRUCT(a INTEGER, "B c" VARCHAR, "d""e" INTEGER)', "ENUM('`x`')"]
    assert [each.type for each in found.columns] == kinds


def test_table_has_a_primary_key_and_may_be_there_already() -> None:
    found = one("CREATE TABLE IF NOT EXISTS users (id BIGINT PRIMARY KEY, name STRING) WITH (topic='users')")
    assert isinstance(found, Create)
    assert (found.kind, found.if_not_exists) == ("TABLE", True)
    assert found.columns[0].is_key


def test_other_statements() -> None:
    assert one("SHOW TOPICS") == Show("topics")
    assert one("LIST STREAMS") == Show("streams")
    assert one("DROP STREAM IF EXISTS orders") == Drop("STREAM", "orders", True)
    assert one("DROP TABLE t DELETE TOPIC") == Drop("TABLE", "t", False, True)
    assert one("SET 'auto.offset.reset' = 'earliest'") == Set("auto.offset.reset", "earliest")
    assert one("SET misfits = stop") == Set("misfits", "stop")
    assert one("UNSET misfits") == Set("misfits", None)
    found = one('DESCRIBE "my-topic"')
    assert isinstance(found, Describe)
    assert found.name == "my-topic"
    dotted = one("DESC orders.v1")
    assert isinstance(dotted, Describe)
    assert dotted.name == "orders.v1"


def test_syntax_error_shows_its_line_with_carets() -> None:
    told = refusal("SELECT a\nFROM t\nWHERE a >")
    assert "syntax error" in told
    assert "line 3, column 9" in told
    assert told.endswith("  WHERE a >\n          ^")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("SELEC 1", "no statement begins with SELEC; SELECT?"),
        ("SHOW TOPIC", "SHOW TOPICS, SHOW STREAMS, SHOW TABLES or SHOW QUERIES is expected here"),
        ("SELECT a FROM t EMIT CHANGES LIMIT x", "a number is expected here"),
        ("SELECT a FROM t EMIT CHANGES 7", "the statement should end here"),
        ("CREATE STREAM a (b NONSENSE) WITH (topic='a')", "NONSENSE is no type"),
        ("CREATE STREAM a (b) WITH (topic='a')", "the type of b is expected here"),
        ("CREATE STREAM a (b INT) WITH (topic='a', topic='b')", "topic is given twice"),
        ("CREATE VIEW a AS SELECT 1", "TABLE is expected here"),
        ("DROP STREAM", "the statement ends too early"),
        ("SELECT 'a", "a quote or a comment is not closed"),
        ("DROP TABLE a b", "the statement should end here"),
    ],
)
def test_what_is_no_statement_is_refused_at_its_place(text: str, told: str) -> None:
    said = refusal(text)
    assert told in said
    assert said.startswith("line 1, column ")
    assert "^" in said.splitlines()[2]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("ASSERT TOPIC orders", "pybroker topics describe"),
        ("SHOW CONNECTORS", "pybroker connect list"),
        ("CREATE SINK CONNECTOR c WITH ('a'='b')", "pybroker connect create"),
        ("DESCRIBE CONNECTOR c", "pybroker connect status"),
        ("DESCRIBE FUNCTION lcase", "functions are DuckDB's"),
        ("ALTER STREAM s ADD COLUMN x INT", "CREATE OR REPLACE declares"),
        ("RUN SCRIPT 'a.sql'", "pybroker sql -f FILE"),
    ],
)
def test_statement_of_ksqldb_that_is_not_there_names_what_does_the_same(text: str, told: str) -> None:
    assert told in refusal(text)
    found = one("DESCRIBE connector")
    assert isinstance(found, Describe)
    assert one("SHOW QUERIES EXTENDED") == one("LIST QUERIES")


def test_prompt_hands_over_what_is_complete() -> None:
    assert is_complete("SELECT 1;")
    assert is_complete("")
    assert is_complete(" exit ")
    assert is_complete("help")
    assert not is_complete("SELECT 1")
    assert not is_complete("SELECT ';")
    assert is_complete("SELECT 1; -- said")


def test_place_is_that_of_the_character() -> None:
    assert at_place("wrong", "ab\n\tcd", 4, 2) == "line 2, column 2: wrong\n  \tcd\n  \t^^"
    assert at_place("ends", "ab", 9) == "line 1, column 3: ends\n  ab\n    ^"


def test_nearest_name_is_offered_in_its_own_case() -> None:
    assert nearest("ordrs", ["Orders", "users"]) == "; Orders?"
    assert nearest("zzz", ["Orders", "users"]) == ""


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT {'(' * 3_000}1{')' * 3_000}",
        f"SELECT * FROM {'(SELECT * FROM ' * 1_000}t{')' * 1_000}",
        f"CREATE STREAM s (a {'STRUCT<x ' * 2_000}INT{'>' * 2_000}) WITH (topic='t')",
    ],
)
def test_statement_that_is_nested_too_deeply_is_refused(text: str) -> None:
    with pytest.raises(SqlError, match="nested too deeply"):
        statements(text)


def test_lambda_without_arguments_is_refused() -> None:
    with pytest.raises(SqlError, match="syntax error"):
        statements("SELECT f(() => 1) FROM t")


def test_star_of_an_expression_is_left_to_duckdb() -> None:
    (query,) = statements("SELECT (s).* FROM t")
    assert isinstance(query, Query)
