"""Which column a name or a place means: what a query does not have cannot be in its answer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pybroker.sql.declared import inference
from tests.sql.test_session import ORDERS, World


@pytest.fixture
def world() -> Iterator[World]:
    found = World()
    found.cluster.produce("orders", ORDERS)
    yield found
    found.engine.close()


def test_rows_without_a_column_have_none_by_any_name(world: World) -> None:
    assert world.refusal("SELECT rows FROM orders").startswith("line 1, column 8: there is no column rows")
    assert world.ask("SELECT 1 AS rows FROM orders WHERE rows = 1 LIMIT 1") == [{"rows": 1}]
    assert world.ask("SELECT count(*) AS rows FROM orders HAVING rows > 1") == [{"rows": 10}]


def test_place_of_a_column_is_that_among_all(world: World) -> None:
    assert world.ask("SELECT #3 AS third, id FROM orders WHERE id = 1") == [{"third": "b", "id": 1}]
    assert world.ask("SELECT #1 AS first FROM orders LIMIT 1") == [{"first": 0}]


def test_table_may_have_columns_of_any_name(world: World) -> None:
    values = [{"_place": 1, "_rank": 5, "_is_tombstone": True}, {"_place": 2, "_rank": 7, "_is_tombstone": True}]
    world.cluster.produce("places", values, keys=["a", "a"])
    world.ask(
        "CREATE TABLE places (k VARCHAR PRIMARY KEY, _place INT, _rank INT, _is_tombstone BOOLEAN) "
        "WITH (topic='places', format='json')"
    )
    assert world.ask("SELECT * FROM places") == [{"k": "a", "_place": 2, "_rank": 7, "_is_tombstone": True}]


def test_column_of_every_record_that_an_inner_star_leaves_out_is_said_to_be_missing_there(world: World) -> None:
    told = world.refusal("SELECT id FROM (SELECT * FROM orders) WHERE _offset = 1")
    assert "there is no column _offset; * leaves it out, so that the inner SELECT has to name it" in told
    assert world.ask("SELECT id FROM (SELECT *, _offset FROM orders) WHERE _offset = 1") == [{"id": 1}]


def test_function_without_such_arguments_is_refused_in_one_sentence(world: World) -> None:
    told = world.refusal("SELECT who + id FROM orders")
    assert "Candidate" not in told
    assert len(told) < 200


def test_declaration_has_no_column_that_every_record_has(world: World) -> None:
    told = world.refusal("CREATE STREAM o (_Offset BIGINT) WITH (topic='orders', format='json')")
    assert told == "o: _Offset is a column that every record has, whatever its value says"


def test_field_that_comes_after_the_first_samples_has_its_case(world: World) -> None:
    world.cluster.produce("late", [{"Id": 1}])
    world.ask("CREATE STREAM late (k VARCHAR KEY, id BIGINT, name VARCHAR) WITH (topic='late', format='json')")
    assert world.ask("SELECT id, name FROM late") == [{"id": 1, "name": None}]
    world.cluster.produce("late", [{"Id": 2, "Name": "b"}])
    assert world.ask("SELECT id, name FROM late WHERE id = 2") == [{"id": 2, "name": "b"}]


def test_fields_are_sampled_once_where_all_declared_columns_are_among_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.ask("CREATE STREAM o (k VARCHAR KEY, ID BIGINT) WITH (topic='orders', format='json')")
    world.ask("SELECT id FROM o LIMIT 1")
    monkeypatch.setattr(inference, "field_names", lambda *_: pytest.fail("fields are sampled again"))
    world.ask("SELECT id FROM o LIMIT 1")
