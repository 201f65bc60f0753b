"""What of a WHERE is not even fetched."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from pybroker.sql.parsing.pushdown import Restriction, restriction
from pybroker.sql.parsing.queries import table_references
from pybroker.sql.parsing.statements import Query, statements
from pybroker.sql.questions.engine import Engine

NOON_MS = int(datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp() * 1_000)


def of(where: str, source: str = "orders") -> Restriction:
    (query,) = statements(f"SELECT * FROM {source} WHERE {where}")
    assert isinstance(query, Query)
    engine = Engine("64MB")
    try:
        reference = next(each for each in table_references(query.tree) if each.name == "orders")
        return restriction(query.tree, reference.node, reference.alias, engine.value)
    finally:
        engine.close()


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("_partition = 1", Restriction(frozenset({1}))),
        ("_partition IN (1, 2) AND _partition IN (2, 3)", Restriction(frozenset({2}))),
        ("_partition > 1", Restriction()),
        ("_offset >= 10 AND _offset < 20", Restriction(first_offset=10, end_offset=20)),
        ("_offset > 10 AND 20 >= _offset", Restriction(first_offset=11, end_offset=21)),
        ("_offset BETWEEN 10 AND 20", Restriction(first_offset=10, end_offset=21)),
        ("_offset BETWEEN SYMMETRIC 20 AND 10", Restriction()),
        ("_offset IN (3, 5)", Restriction(first_offset=3, end_offset=6)),
        ("_offset = 2 * 21", Restriction(first_offset=42, end_offset=43)),
        ("(_offset > 1) AND amount > 3", Restriction(first_offset=2)),
        ("_offset > 1 OR amount > 3", Restriction()),
        ("NOT (_offset > 1)", Restriction()),
        ("_offset > 2.7", Restriction()),
        ("_offset > amount", Restriction()),
        ("_offset > (SELECT 1)", Restriction()),
        ("_timestamp >= '2026-01-31 12:00'", Restriction(first_ms=NOON_MS)),
        ("_timestamp > TIMESTAMP '2026-01-31 12:00'", Restriction(first_ms=NOON_MS)),
        ("_timestamp < '2026-01-31 12:00'", Restriction(end_ms=NOON_MS)),
        ("_timestamp <= '2026-01-31 12:00'", Restriction(end_ms=NOON_MS + 1)),
        ("_timestamp > 'nonsense'", Restriction()),
        ("_timestamp < '1969-12-31 23:59:59.998'", Restriction()),
        ("_timestamp > '1960-01-01'", Restriction()),
        ("_timestamp <= '9999-12-31 23:59:59.999998'", Restriction(end_ms=253_402_300_800_000)),
        ("o._offset > 1", Restriction()),
    ],
)
def test_conditions_that_all_rows_meet_are_pushed_down(where: str, found: Restriction) -> None:
    assert of(where) == found


def test_time_that_moves_bounds_nothing_from_above() -> None:
    assert of("_timestamp < now()") == Restriction()
    found = of("_timestamp > now() - INTERVAL 1 HOUR")
    assert found.first_ms is not None
    assert found.end_ms is None


def test_beside_another_table_the_column_has_to_say_whose_it_is() -> None:
    joined = "orders o JOIN users u USING (id)"
    assert of("_offset > 1", joined) == Restriction()
    assert of("o._offset > 1", joined) == Restriction(first_offset=2)
    assert of("u._offset > 1", joined) == Restriction()


@pytest.mark.parametrize(
    "joined",
    [
        *("users u ASOF JOIN orders o ON u.t <= o.id", "orders o ASOF LEFT JOIN users u ON u.t <= o.id"),
        *("users u POSITIONAL JOIN orders o", "orders o TABLESAMPLE 3 ROWS"),
    ],
)
def test_nothing_is_pushed_down_where_other_rows_decide_which_come_out(joined: str) -> None:
    assert of("o._offset > 1", joined) == Restriction()


def test_restriction_of_a_query_inside_is_its_own() -> None:
    assert of("id IN (SELECT id FROM users WHERE _offset > 1)") == Restriction()


def test_words_of_a_restriction() -> None:
    assert of("_partition IN (2, 1) AND _offset < 7 AND _timestamp >= '2026-01-31 12:00'").told() == [
        "_partition in [1, 2]",
        "_offset < 7",
        "_timestamp >= 2026-01-31 12:00:00.000",
    ]
