"""EMIT CHANGES: what it answers, what it refuses, and what it sees while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Thread

import pytest
from harness.waiting import PATIENCE_S

from pybroker.sql.questions import tail
from pybroker.sql.sql_errors import Interrupted
from tests.sql.test_session import ORDERS, World

EARLIEST = "SET 'auto.offset.reset' = 'earliest';"


@pytest.fixture
def world() -> Iterator[World]:
    found = World()
    found.cluster.produce("orders", ORDERS)
    yield found
    found.engine.close()


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("SELECT * FROM (SELECT DISTINCT who FROM orders) q", "DISTINCT"),
        ("SELECT * FROM (SELECT id FROM orders ORDER BY id) q", "ORDER BY"),
        ("SELECT * FROM (SELECT id FROM orders LIMIT 2) q", "LIMIT"),
        ("WITH q AS (SELECT who FROM orders GROUP BY who) SELECT * FROM q", "GROUP BY"),
        ("SELECT * FROM (SELECT id FROM orders UNION VALUES (1)) q", "UNION"),
        ("SELECT histogram(amount) AS h FROM orders", "an aggregate"),
        ("SELECT product(amount) AS h FROM orders", "an aggregate"),
        ("SELECT latest_by_offset(amount) AS h FROM orders", "an aggregate"),
        ("SELECT row_number() OVER () AS n FROM orders", "an aggregate"),
        ("SELECT * FROM orders USING SAMPLE 3", "a sample"),
        ("SELECT * FROM orders TABLESAMPLE 3 ROWS", "a sample"),
        ("SELECT * FROM (PIVOT orders ON who USING first(id))", "PIVOT"),
    ],
)
def test_rows_that_need_former_records_are_refused(world: World, query: str, why: str) -> None:
    assert f"EMIT CHANGES with {why}" in world.refusal(f"{EARLIEST} {query} EMIT CHANGES LIMIT 1")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id FROM (SELECT id FROM orders WHERE id > 3) q",
        "WITH q AS (SELECT id FROM orders) SELECT id FROM q WHERE id > 3",
        "SELECT id FROM orders, (VALUES (3)) t(n) WHERE id > n",
        "SELECT DISTINCT_FROM.id FROM orders DISTINCT_FROM WHERE id > list_sum([1, 2])",
    ],
)
def test_rows_that_follow_from_one_record_are_told(world: World, query: str) -> None:
    assert world.ask(f"{EARLIEST} {query} EMIT CHANGES LIMIT 2") == [{"id": 4}, {"id": 5}]


def test_tail_that_is_ended_has_said_which_records_do_not_fit(world: World) -> None:
    world.ask("SELECT id FROM orders LIMIT 0")
    world.cluster.produce("orders", [{"id": "none"}])
    with pytest.raises(Interrupted):
        world.session.run("SELECT id FROM orders WHERE _offset >= 9 EMIT CHANGES", world.cluster.waits.is_set)
    told = "1 record does not fit and was left out; the first: orders partition 0 offset 10: id is no BIGINT"
    assert world.remarks == [told]


def test_query_that_fails_has_said_which_records_do_not_fit(world: World) -> None:
    world.ask("SELECT id FROM orders LIMIT 0")
    world.cluster.produce("orders", [{"id": "none"}])
    assert "could not convert" in world.refusal("SELECT CAST(who || max(id) AS INT) FROM orders GROUP BY who")
    assert world.remarks[0].startswith("1 record does not fit")


def test_partition_that_is_added_is_read_from_its_begin(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "_LOOKED_EVERY_S", 0.0)

    def add() -> None:
        assert world.cluster.waits.wait(PATIENCE_S)
        world.cluster.produce("orders", [{"id": 100}, {"id": 101}], partition=1)

    adding = Thread(target=add)
    adding.start()
    found = world.ask("SELECT id, _partition AS p FROM orders EMIT CHANGES LIMIT 2")
    adding.join()
    assert found == [{"id": 100, "p": 1}, {"id": 101, "p": 1}]


def test_partition_that_is_added_and_not_asked_for_is_not_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "_LOOKED_EVERY_S", 0.0)
    world.cluster.produce("orders", [{"id": 100}], partition=2)
    rows = "SELECT id FROM orders WHERE _partition IN (0, 7)"
    assert len(world.ask(f"{EARLIEST} {rows} EMIT CHANGES LIMIT 10")) == 10
    assert 2 in (world.cluster.partitions("orders") or ())


def test_topic_that_is_deleted_under_a_tail_ends_it_with_a_sentence(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "_LOOKED_EVERY_S", 0.0)

    def gone() -> bool:
        if world.cluster.waits.is_set():
            world.cluster.logs.pop("orders", None)
        return False

    with pytest.raises(Exception, match="topic orders is gone"):
        world.session.run("SELECT id FROM orders EMIT CHANGES", gone)


def test_explain_says_where_a_tail_begins_and_that_it_has_no_end(world: World) -> None:
    found = world.ask("EXPLAIN SELECT id FROM orders EMIT CHANGES")
    assert [(each["from"], each["to"]) for each in found] == [(10, None)]
    found = world.ask("EXPLAIN SELECT id FROM orders WHERE _offset >= 3 EMIT CHANGES")
    assert [(each["from"], each["to"]) for each in found] == [(3, None)]
    found = world.ask(f"{EARLIEST} EXPLAIN SELECT id FROM orders EMIT CHANGES")
    assert [(each["from"], each["to"]) for each in found] == [(0, None)]


TABLE = "CREATE TABLE cities (who VARCHAR PRIMARY KEY, n INT) WITH (topic='cities', format='json');"


def test_each_change_of_a_table_is_told_and_not_the_last_one_of_a_fetch(world: World) -> None:
    values = [{"n": 1}, {"n": 2}, None, {"n": 3}, {"n": 4}]
    world.cluster.produce("cities", values, keys=["a", "b", "a", "a", None])
    rows = world.ask(f"{EARLIEST} {TABLE} SELECT who, n FROM cities EMIT CHANGES LIMIT 3")
    assert rows == [{"who": "a", "n": 1}, {"who": "b", "n": 2}, {"who": "a", "n": 3}]
    assert world.ask("SELECT 7 AS seven FROM cities EMIT CHANGES LIMIT 3") == [{"seven": 7}] * 3
    assert world.ask("SELECT n FROM cities WHERE _offset >= 1 EMIT CHANGES LIMIT 1") == [{"n": 2}]
    assert world.ask("SELECT who, n FROM cities ORDER BY who") == [{"who": "a", "n": 3}, {"who": "b", "n": 2}]
