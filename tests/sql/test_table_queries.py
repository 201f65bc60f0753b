"""Standing queries over tables: which there are, and the expressions that Spark is given for their rows."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pybroker.sql.standing.standing_plans import JoinKind, TableJoin, TableQuery, plan_read
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
        "FULL JOIN users c ON c._key = a._key"
    )
    assert found.joins == (TableJoin("", "STRING", "left"), TableJoin("", "STRING", "outer"))
    assert [source.alias for source in found.sources] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("joins", "last"),
    [
        ("LEFT JOIN keyed b ON a._key = b._key JOIN users c ON b._key = c._key", ("b._key", "inner")),
        ("LEFT JOIN keyed b ON a._key = b._key JOIN users c ON a._key = c._key", ("", "inner")),
        ("RIGHT JOIN keyed b ON a._key = b._key LEFT JOIN users c ON a._key = c._key", ("a._key", "left")),
        ("RIGHT JOIN keyed b ON a._key = b._key FULL JOIN users c ON b._key = c._key", ("", "outer")),
        ("FULL JOIN keyed b ON a._key = b._key FULL JOIN users c ON coalesce(b._key, a._key) = c._key", ("", "outer")),
    ],
)
def test_key_that_may_be_null_is_not_that_of_the_rows(joins: str, last: tuple[str, str]) -> None:
    found = plan(f"CREATE TABLE j AS SELECT a.id FROM users a {joins}").joins[-1]
    assert (found.key, found.how) == last


def test_key_column_of_a_join_is_one_that_is_never_null() -> None:
    select = "CREATE TABLE j AS SELECT a._key AS a, b._key AS b, coalesce(a._key, b._key) AS c FROM users a"
    keys = {join: plan(f"{select} {join} JOIN keyed b ON a._key = b._key").key for join in ("LEFT", "RIGHT", "FULL")}
    assert keys == {"LEFT": ("a",), "RIGHT": ("b",), "FULL": ("c",)}


def test_text_that_is_declared_and_text_of_every_record_are_one_type() -> None:
    """A declaration calls it TEXT."""
    assert plan("CREATE TABLE j AS SELECT u.id FROM users u FULL JOIN named n ON u._key = n.name").joins[0].key == ""


@pytest.mark.parametrize(
    "text", ["WHO, count() AS n FROM users GROUP BY who", 'who, count(*) AS n FROM users GROUP BY ("Who")']
)
def test_names_have_no_case_and_a_column_that_of_its_declaration(text: str) -> None:
    found = plan(f"CREATE TABLE t AS SELECT {text} HAVING Users.wHO <> 'a'")
    assert found.key == ("who",)
    assert found.sql == (
        f"CASE WHEN {IS_THERE} AND key.`who` <> 'a' THEN NAMED_STRUCT('who', key.`who`, 'n', value.`rows`) END"
    )


def test_names_of_select_stand_for_their_expressions() -> None:
    found = plan("CREATE TABLE t AS SELECT id * 2 AS twice, twice + 1 AS more, who AS id FROM users WHERE twice > id")
    assert found.sql == (
        f"CASE WHEN {IS_THERE} AND (users.id * 2) > users.id "
        "THEN NAMED_STRUCT('twice', users.id * 2, 'more', (users.id * 2) + 1, 'id', users.who) END"
    )
    found = plan("CREATE TABLE t AS SELECT who, sum(id) AS id FROM users GROUP BY who HAVING id > 5 AND max(id) > 3")
    assert "(value.`a0`.sum) > 5 AND ARRAY_MAX(value.`a1`) > 3" in found.sql


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
        (("a0", "id"), ("a1", "amount"), ("a2", "id")),
    )
    assert found.key == ("w",)
    assert found.sql == (
        f"CASE WHEN {IS_THERE} AND ((value.`rows`) > 1 AND value.`a1`.sum < 100) THEN NAMED_STRUCT('w', key.`w`, "
        "'n', value.`rows`, 'ids', value.`a0`.count, 'half', value.`a1`.sum / 2, "
        "'mean', (CAST(value.`a1`.sum AS DOUBLE) / NULLIF(value.`a1`.count, 0)), 'top', ARRAY_MAX(value.`a2`), "
        "'different', SIZE(ARRAY_DISTINCT(value.`a2`)), 'list', value.`a2`) END"
    )


def test_errors_have_the_user_s_words_for_what_an_aggregate_is_of() -> None:
    found = plan(
        "CREATE TABLE t AS SELECT U.who, sum(U.amount * 2) AS a, count(length(who)) AS n, collect_set(AMOUNT) AS l, "
        "list(DISTINCT log(amount)) AS m, mean(id) AS i FROM users U GROUP BY U.who"
    )
    assert found.table is not None
    assert dict(found.table.told) == {
        "a0": "U.amount * 2",
        "a1": "length(who)",
        "a2": "AMOUNT",
        "a3": "log(amount)",
        "a4": "id",
    }


def test_mean_and_list_of_distinct_values_are_there_by_their_other_names() -> None:
    found = plan("CREATE TABLE t AS SELECT who, mean(id) AS m, list(DISTINCT id) AS l FROM users GROUP BY who")
    other = plan("CREATE TABLE t AS SELECT who, avg(id) AS m, collect_set(id) AS l FROM users GROUP BY who")
    assert (found.sql, found.table) == (other.sql, other.table)


def test_plan_has_the_user_s_words_after_it_was_json() -> None:
    found = plan("CREATE TABLE t AS SELECT who, sum(amount) AS a FROM users GROUP BY who")
    document = json.loads(json.dumps(found.document()))
    assert plan_read(document) == found
    del document["table"]["told"]
    assert found.table is not None
    assert plan_read(document).table == replace(found.table, told=())


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
            "latest_by_offset(id) is not there over a table",
        ),
        (
            "CREATE TABLE t AS SELECT a.who, Earliest_By_Offset(b.id) AS l FROM users a "
            "JOIN keyed b ON a._key = b._key GROUP BY a.who",
            "earliest_by_offset(b.id) is not there over a table: count, sum",
        ),
        ("CREATE TABLE t AS SELECT who, product(id) AS p FROM users GROUP BY who", "product(id) is not there over a"),
        ("CREATE TABLE t AS SELECT who, histogram(id) AS p FROM users GROUP BY who", "histogram(id) is not there over"),
        ("CREATE TABLE t AS SELECT product(id) AS p FROM users", "needs GROUP BY"),
        ("CREATE TABLE t AS SELECT who, any_value(id) AS p FROM users GROUP BY who", "any_value(id) is not there over"),
        ("CREATE TABLE t AS SELECT who, max(id, 3) AS p FROM users GROUP BY who", "max(id, 3) is not there over"),
        ("CREATE TABLE t AS SELECT unnest(id) AS i FROM users", "unnest(id) makes several rows of one"),
        ("CREATE TABLE t AS SELECT COLUMNS('i.*') FROM users", "COLUMNS is not there in a standing query: name the"),
        ("CREATE TABLE t AS SELECT * REPLACE (1 AS id) FROM users", "* has EXCLUDE, and neither REPLACE nor RENAME"),
        ("CREATE TABLE t AS SELECT id, who AS ID FROM users", "SELECT has two columns ID"),
        ("CREATE TABLE t AS SELECT u.id FROM users u JOIN numbered n ON u.who = n.place", "ON … = n.number"),
        ("CREATE TABLE t AS SELECT u.id FROM users u JOIN numbered n ON n.place = u._key", "FROM n JOIN u"),
        ("CREATE TABLE t AS SELECT u.id FROM users u FULL JOIN numbered n ON u.id = n.number", "is inner or left"),
        ("CREATE TABLE t AS SELECT u.id FROM users u CROSS JOIN numbered n", "inner, left, right and full joins"),
        ("CREATE TABLE t AS SELECT u.id FROM users u JOIN numbered n USING (id)", "ON … = n.number"),
        ("CREATE TABLE t AS SELECT u.id FROM users u JOIN keyed U ON u._key = U._key", "two topics of the query are u"),
        (
            "CREATE TABLE t AS SELECT a.id FROM users a FULL JOIN keyed b ON a._key = b._key "
            "FULL JOIN users c ON a._key = c._key",
            "a._key may be null",
        ),
        ("CREATE TABLE t AS SELECT collect_list(id) AS l FROM users", "needs GROUP BY"),
        ("CREATE TABLE t AS SELECT id FROM users u JOIN 'some.parquet' s ON s.x = u.who", "and nothing else"),
        ("CREATE TABLE t AS SELECT id FROM users u, UNNEST([1]) AS l(x)", "and nothing else"),
        ("CREATE TABLE t AS SELECT id FROM users WHERE EXISTS (SELECT 1 FROM keyed)", "and nothing else"),
        ("CREATE TABLE t AS SELECT id FROM users USING SAMPLE 10%", "SAMPLE, PIVOT and UNPIVOT are not there"),
        ("CREATE TABLE t AS SELECT who FROM users UNPIVOT (v FOR n IN (id, amount))", "SAMPLE, PIVOT and UNPIVOT"),
        ("CREATE TABLE t AS SELECT value.id FROM users value", "AS gives it another"),
    ],
)
def test_what_cannot_be_is_refused(text: str, why: str) -> None:
    assert why in refusal(text)
