"""INSERT … VALUES: a value is written as it is, or refused."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.sql.test_standing_statements import ORDERS, World

DECLARED = {
    "d": "CREATE STREAM d (k INT KEY, v DOUBLE, n BIGINT, l DOUBLE[]) WITH (topic='d', format='json', partitions=1)",
    "t": "CREATE STREAM t (a VARCHAR, b VARCHAR) WITH (topic='t', format='text', partitions=1)",
}


@pytest.fixture
def world() -> Iterator[World]:
    found = World()
    found.cluster.produce("orders", ORDERS)
    for text in DECLARED.values():
        found.ask(text)
    found.changes.written.clear()
    yield found
    found.engine.close()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("INSERT INTO orders (id) VALUES (1), (1.6)", "1.6 is no BIGINT"),
        ("INSERT INTO orders (id) VALUES ('1.6')", "1.6 is no BIGINT"),
        ("INSERT INTO d (k, v) VALUES (1.5, 1)", "1.5 is no INTEGER"),
        ("INSERT INTO d (k, v) VALUES (1, 'nan')", "JSON has no NaN"),
        ("INSERT INTO d (k, l) VALUES (1, ['1', 'infinity'])", "JSON has no Infinity"),
        ("INSERT INTO t (a, b) VALUES ('x', 'y')", "a value of text is one column, not a and b"),
        ("INSERT INTO t VALUES ('x', 'y')", "a value of text is one column, not a and b"),
    ],
)
def test_value_that_would_be_another_one_is_refused(world: World, text: str, why: str) -> None:
    assert why in world.refusal(text)
    assert world.changes.written == []


def test_whole_numbers_in_other_spellings_are_written(world: World) -> None:
    world.ask("INSERT INTO d (k, n) VALUES (1, 2.0), ('2', '7'), (3, 9223372036854775807), (4, NULL)")
    ((_, records),) = world.changes.written
    assert [each[1] for each in records] == [
        b'{"n":2}',
        b'{"n":7}',
        b'{"n":9223372036854775807}',
        b'{"n":null}',
    ]
    world.ask("INSERT INTO t (b) VALUES ('y')")
    assert [each[1] for each in world.changes.written[-1][1]] == [b"y"]


def test_format_whose_library_is_not_installed_names_what_installs_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.ask("CREATE STREAM a (n BIGINT) WITH (topic='a', format='avro', partitions=1)")
    monkeypatch.setitem(sys.modules, "fastavro", None)
    for text in (
        "INSERT INTO a (n) VALUES (1)",
        "CREATE STREAM b (n BIGINT) WITH (topic='b', format='avro', partitions=1)",
        "CREATE STREAM c WITH (format='avro') AS SELECT n FROM d",
    ):
        assert "format avro needs fastavro: pip install " in world.refusal(text), text


def test_time_with_a_zone_is_written_as_that_time_in_utc(world: World) -> None:
    world.ask("CREATE STREAM u (at TIMESTAMP) WITH (topic='u', format='json', partitions=1)")
    world.ask("INSERT INTO u (at, _timestamp) VALUES ('2026-01-31 14:00+02', '2026-01-31T13:00:00+01:00')")
    assert world.ask("SELECT at, _timestamp FROM u") == [dict.fromkeys(("at", "_timestamp"), "2026-01-31 12:00:00.000")]


KEYED = "ks (id INT, who VARCHAR) WITH (topic='ks', format='json', partitions=1, key='who')"


@pytest.mark.parametrize("kind", ["STREAM", "TABLE"])
def test_key_is_the_text_of_the_column_that_the_declaration_names(world: World, kind: str) -> None:
    world.ask(f"CREATE {kind} {KEYED}")
    world.ask("INSERT INTO ks VALUES (1, 'ada'), (2, 'bob'); INSERT INTO ks (_key, id, who) VALUES ('eve', 3, 'eve')")
    rows = [{"_key": "ada", "id": 1}, {"_key": "bob", "id": 2}, {"_key": "eve", "id": 3}]
    assert world.ask("SELECT _key, id FROM ks ORDER BY id") == rows


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO ks (_key, id, who) VALUES ('ada', 2, 'bob')",
        "INSERT INTO ks (_key, id, who) VALUES ('ada', 2, NULL)",
        "INSERT INTO ks (_key, id) VALUES ('ada', 2)",
    ],
)
def test_key_that_is_another_one_than_the_column_that_the_declaration_names_is_refused(world: World, text: str) -> None:
    world.ask(f"CREATE STREAM {KEYED}")
    world.changes.written.clear()
    assert "the key of ks is the text of who, and _key says another one" in world.refusal(text)
    assert world.changes.written == []


def test_row_of_a_table_without_a_value_of_the_column_that_is_its_key_is_refused(world: World) -> None:
    world.ask(f"CREATE TABLE {KEYED}")
    assert "a row of the table ks has a key" in world.refusal("INSERT INTO ks (id) VALUES (1)")
