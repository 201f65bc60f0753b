"""Statements of the sink into PostgreSQL, as text; what they do is tested with a database."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")


def test_names_and_texts_are_quoted() -> None:
    from pybroker.connectors.kinds.jdbc_sink import columns_query, marked
    from pybroker.pipeline.postgres_text import identifier, literal

    assert identifier('mart.we"ird') == '"mart"."we""ird"'
    assert literal("it's") == "'it''s'"
    assert "to_regclass('\"a''b\"')" in columns_query("a'b")
    insert, block = marked(["INSERT INTO t VALUES ('x')"], "c'1", "t", "q", 7)
    assert "'c''1'" in insert
    assert "VALUES (''x'')" in block
    assert "epoch = 7" in block


def test_without_a_key_all_rows_are_added() -> None:
    from pybroker.connectors.kinds.jdbc_sink import takeover

    (statement,) = takeover("s", "t", {"id": "bigint", "at": "timestamptz"}, [])
    assert statement == (
        'INSERT INTO "t" ("id", "at") SELECT "id"::bigint, "at"::timestamptz FROM "s" '
        "WHERE TRUE AND NOT staged_is_deleted"
    )


@pytest.mark.parametrize(
    ("kind", "of_bytes", "item"),
    [("bytea[]", True, "decode(item, 'base64')"), ("bytea[]", False, "item"), ("text[]", True, "item")],
)
def test_only_bytes_of_a_list_are_made_of_base64(kind: str, of_bytes: bool, item: str) -> None:
    from pybroker.connectors.kinds.jdbc_sink import takeover

    (statement,) = takeover("s", "t", {"parts": kind}, [], lists={"parts": of_bytes})
    elements = f'ARRAY(SELECT {item} FROM jsonb_array_elements_text("parts"::jsonb) AS item)'
    assert f'CASE WHEN "parts" IS NOT NULL THEN {elements}::{kind} END' in statement


def test_a_table_of_keys_alone_is_not_updated() -> None:
    from pybroker.connectors.kinds.jdbc_sink import takeover

    assert takeover("s", "t", {"id": "bigint"}, ["id"])[1].endswith('ON CONFLICT ("id") DO NOTHING')


def test_new_rows_are_asked_for_in_order_and_those_of_one_value_together() -> None:
    from pybroker.connectors.kinds.jdbc_source import rows_query, until_now

    text = rows_query('"t"', ["at", "id"], ["it's", "7"], 10, until_now("date", "UTC", 500))
    assert "(source.\"at\", source.\"id\") > ('it''s', '7')" in text
    assert "source.\"at\" < (now() AT TIME ZONE 'UTC') - interval '500 milliseconds'" in text
    assert 'ORDER BY source."at", source."id" FETCH FIRST 10 ROWS WITH TIES' in text
    assert " > " not in rows_query('"t"', ["id"], [], 10, "")


@pytest.mark.parametrize("query", ["SELECT id FROM t;", " SELECT id FROM t ; ;\n", "SELECT id FROM t -- all"])
def test_query_that_ends_with_a_semicolon_or_a_comment_stands_inside_of_another_one(query: str) -> None:
    from pybroker.connectors.kinds.jdbc_source import nested

    lines = nested(query).split("\n")
    assert lines[-1] == ")"
    assert lines[0].rstrip() in ("(SELECT id FROM t", "(SELECT id FROM t -- all")
