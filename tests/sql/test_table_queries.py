"""Standing queries over tables: which there are, and the expressions that Spark is given for their rows."""

from __future__ import annotations

import pytest

from pybroker.sql.standing.standing_plans import JoinKind, TableJoin, TableQuery
from tests.sql.test_spark_plans import plan, refusal

IS_THERE = "NOT value IS NULL"


def test_row_is_null_where_its_condition_does_not_hold() -> None:
    found = plan("CREATE TABLE rich AS SELECT u.who, amount * 2 AS twice FROM users u WHERE amount > 5")
    assert found.sql == (
        f"CASE WHEN {IS_THERE} AND u.amount > 5 THEN NAMED_STRUCT('who', u.who, 'twice', u.amount * 2) END"
    )
    assert (found.mode, found.key, found.joins, found.table) == ("append", (), (), TableQuery())
    assert [column.name for column in found.sources[0].columns] == ["who", "amount"]


def test_column_that_is_the_first_table_s_key_is_the_key_of_the_rows() -> None:
    assert plan("CREATE TABLE t AS SELECT place, number AS n FROM numbered").key == ("n",)
    assert plan("CREATE TABLE t AS SELECT u.id, u._key AS k FROM users u").key == ("k",)
    joined = "CREATE TABLE t AS SELECT u.id, n.number FROM users u JOIN numbered n ON u.id = n.number"
    assert plan(joined).key == ()


def test_tables_are_joined_by_their_keys_one_after_another() -> None:
    found = plan(
        "CREATE TABLE j AS SELECT a.id, b.who, c.amount FROM users a LEFT JOIN keyed b ON a._key = b._key "
        "FULL JOIN users c ON c._key = b._key"
    )
    assert found.joins == (TableJoin("", "STRING", "left"), TableJoin("", "STRING", "outer"))
    assert [source.alias for source in found.sources] == ["a", "b", "c"]


@pytest.mark.parametrize(("join", "how"), [("JOIN", "inner"), ("LEFT JOIN", "left")])
def test_table_is_joined_by_a_column_that_names_the_other_s_key(join: str, how: JoinKind) -> None:
    found = plan(f"CREATE TABLE j AS SELECT u.who, n.place FROM users u {join} numbered n ON n.number = u.id + 1")
    assert found.joins == (TableJoin("u.id + 1", "BIGINT", how),)


def test_group_has_sums_and_lists_of_what_its_aggregates_need() -> None:
    found = plan(
        "CREATE TABLE t AS SELECT upper(who) AS w, count(*) AS n, count(id) AS ids, sum(amount) / 2 AS half, "
        "avg(amount) AS mean, max(id) AS top, count(DISTINCT id) AS different, collect_list(id) AS list "
        "FROM users WHERE id > 0 GROUP BY upper(who) HAVING n > 1 AND sum(amount) < 100"
    )
    assert found.table == TableQuery(
        f"CASE WHEN {IS_THERE} AND users.id > 0 AND NOT (UPPER(users.who)) IS NULL "
        "THEN NAMED_STRUCT('w', UPPER(users.who)) END",
        (("a0", "CASE WHEN NOT (users.id) IS NULL THEN 1 END"), ("a1", "users.amount")),
        (("a2", "users.id"),),
    )
    assert found.key == ("w",)
    assert found.sql == (
        f"CASE WHEN {IS_THERE} AND ((value.`rows`) > 1 AND value.`a1`.sum < 100) THEN NAMED_STRUCT('w', key.`w`, "
        "'n', value.`rows`, 'ids', value.`a0`.count, 'half', value.`a1`.sum / 2, "
        "'mean', (CAST(value.`a1`.sum AS DOUBLE) / NULLIF(value.`a1`.count, 0)), 'top', ARRAY_MAX(value.`a2`), "
        "'different', SIZE(ARRAY_DISTINCT(value.`a2`)), 'list', value.`a2`) END"
    )


def test_group_of_several_columns_may_have_nulls() -> None:
    found = plan("CREATE TABLE t AS SELECT who, id AS i, count(*) AS n FROM users GROUP BY 1, i")
    assert found.key == ("who", "i")
    assert found.table is not None
    assert found.table.group == f"CASE WHEN {IS_THERE} THEN NAMED_STRUCT('who', users.who, 'i', users.id) END"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("CREATE STREAM s AS SELECT id FROM users", "the rows of a table change: CREATE TABLE"),
        ("CREATE TABLE t AS SELECT id FROM users PARTITION BY id", "a table keeps its key"),
        ("CREATE TABLE t AS SELECT who, count(*) AS n FROM users GROUP BY who EMIT FINAL", "are for streams"),
        (
            "CREATE TABLE t AS SELECT who, count(*) AS n FROM users WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY who",
            "are for streams",
        ),
        ("CREATE TABLE t AS SELECT a.id FROM users a JOIN keyed b WITHIN 1 HOUR ON a._key = b._key", "for two streams"),
        ("CREATE TABLE t AS SELECT count(*) AS n FROM users", "needs GROUP BY"),
        ("CREATE TABLE t AS SELECT who FROM users HAVING who = 'a'", "needs GROUP BY"),
        ("CREATE TABLE t AS SELECT who, rank() OVER (ORDER BY id) AS r FROM users", "OVER is not there"),
        ("CREATE TABLE t AS SELECT who, id, count(*) AS n FROM users GROUP BY who", "users.id is neither in GROUP BY"),
        ("CREATE TABLE t AS SELECT count(*) AS n FROM users GROUP BY who", "who of GROUP BY is the key"),
        (
            "CREATE TABLE t AS SELECT who, stddev(id) AS s FROM users GROUP BY who",
            "is not there over a table: count, sum",
        ),
        ("CREATE TABLE t AS SELECT who, sum(DISTINCT id) AS s FROM users GROUP BY who", "is not there over a table"),
        (
            "CREATE TABLE t AS SELECT who, count(*) FILTER (WHERE id > 1) AS n FROM users GROUP BY who",
            "is not there over a table",
        ),
        (
            "CREATE TABLE t AS SELECT who, latest_by_offset(id) AS l FROM users GROUP BY who",
            "is not there over a table",
        ),
        ("CREATE TABLE t AS SELECT id, who AS ID FROM users", "SELECT has two columns ID"),
        ("CREATE TABLE t AS SELECT u.id FROM users u JOIN numbered n ON u.who = n.place", "ON … = n.number"),
        ("CREATE TABLE t AS SELECT u.id FROM users u JOIN numbered n ON n.place = u._key", "FROM n JOIN u"),
        ("CREATE TABLE t AS SELECT u.id FROM users u FULL JOIN numbered n ON u.id = n.number", "is inner or left"),
        ("CREATE TABLE t AS SELECT u.id FROM users u CROSS JOIN numbered n", "inner, left, right and full joins"),
        ("CREATE TABLE t AS SELECT u.id FROM users u JOIN numbered n USING (id)", "ON … = n.number"),
        ("CREATE TABLE t AS SELECT value.id FROM users value", "AS gives it another"),
    ],
)
def test_what_cannot_be_is_refused(text: str, why: str) -> None:
    assert why in refusal(text)
