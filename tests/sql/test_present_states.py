"""The present state of tables, columns that came later, and what of times may stay unfetched."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sql.fake_cluster import NOON_MS
from tests.sql.test_session import World

CUSTOMERS = "CREATE TABLE customers (k VARCHAR PRIMARY KEY, v VARCHAR) WITH (topic='customers', format='json');"


@pytest.fixture
def world() -> Iterator[World]:
    found = World()
    yield found
    found.engine.close()


def test_row_of_a_key_in_several_partitions_is_the_latest(world: World) -> None:
    """As it is after partitions were added: an offset of the old one is higher."""
    keys = [*(f"k{n}" for n in range(8)), "a", "b"]
    world.cluster.produce("customers", [{"v": "old"}] * 10, keys=keys, times=[NOON_MS] * 10)
    world.cluster.produce("customers", [{"v": "new"}, None], keys=["a", "b"], partition=1, times=[NOON_MS + 1] * 2)
    rows = world.ask(f"{CUSTOMERS} SELECT k, v FROM customers WHERE k IN ('a', 'b')")
    assert rows == [{"k": "a", "v": "new"}]
    assert world.ask("SELECT k FROM customers WHERE _partition = 0 AND k = 'a'") == []


def test_row_of_a_key_in_one_partition_is_that_of_the_highest_offset(world: World) -> None:
    values = [{"v": "first"}, {"v": "last"}]
    world.cluster.produce("customers", values, keys=["a", "a"], times=[NOON_MS + 5_000, NOON_MS])
    assert world.ask(f"{CUSTOMERS} SELECT v FROM customers") == [{"v": "last"}]


def test_field_that_comes_later_is_a_column_of_a_session_that_knows_the_topic(world: World) -> None:
    world.cluster.produce("users", [{"who": "a"}])
    world.ask("SELECT who FROM users")
    world.cluster.produce("users", [{"who": "b", "city": "Ulm"}])
    assert world.ask("SELECT city FROM users WHERE _offset = 1") == [{"city": "Ulm"}]
    world.cluster.produce("users", [{"who": "c", "town": "Bonn"}])
    assert [row["column"] for row in world.ask("DESCRIBE users")[:3]] == ["who", "city", "town"]
    world.cluster.produce("users", [{"age": 7}])
    found = world.ask("SELECT age FROM users WHERE _offset >= 3 EMIT CHANGES LIMIT 1")
    assert found == [{"age": 7}]
    assert "there is no column cty; city?" in world.refusal("SELECT cty FROM users")


WHERE = "_timestamp < '2026-01-31 12:00:00.010'"


def test_end_of_a_range_of_times_is_not_pushed_down_where_producers_gave_the_times_once(world: World) -> None:
    """Until the topic had the broker's: a record of an old time may stand behind a later one."""
    world.cluster.produce("times", [{"n": 1}, {"n": 2}], times=[NOON_MS + 60_000, NOON_MS], per_batch=1)
    world.cluster.broker_times.add("times")
    world.cluster.produce("times", [{"n": 3}], times=[NOON_MS + 90_000])
    assert world.ask(f"SELECT n FROM times WHERE {WHERE}") == [{"n": 2}]
    (row,) = world.ask(f"EXPLAIN SELECT n FROM times WHERE {WHERE}")
    told = "the end of the range of _timestamp, because producers gave the timestamps once"
    assert (row["to"], row["not_pushed"]) == (3, told)
    later = "SELECT n FROM times WHERE _timestamp < '2026-01-31 12:01:30'"
    assert sorted(row["n"] for row in world.ask(later)) == [1, 2]
    assert world.ask(f"EXPLAIN {later}")[0]["to"] == 2


def test_latest_by_offset_is_the_latest_by_time_and_of_one_time_by_offset(world: World) -> None:
    """Offsets of several partitions have no order; `docs/ksqldb.md` tells the difference."""
    world.cluster.produce("events", [{"v": 1}, {"v": 2}, {"v": 3}], times=[NOON_MS + 9, NOON_MS, NOON_MS + 5])
    world.cluster.produce("events", [{"v": 4}, {"v": 5}], partition=1, times=[NOON_MS + 10, NOON_MS + 10])
    question = "SELECT latest_by_offset(v) AS last, earliest_by_offset(v) AS first FROM events"
    assert world.ask(question) == [{"last": 5, "first": 2}]
    assert world.ask(f"{question} WHERE _partition = 0") == [{"last": 1, "first": 2}]
