"""Statements of standing queries: how they are read, and what Spark is to run for them."""

from __future__ import annotations

import json
import re

import pytest
from sqlglot import parse_one

from pybroker.sql.parsing.queries import TableReference
from pybroker.sql.parsing.spark_text import spark_text
from pybroker.sql.parsing.standing_selects import JoinWindow, TimeWindow, WindowKind
from pybroker.sql.parsing.statements import Control, CreateAs, InsertSelect, InsertValues, ShowQueries, Verb, statements
from pybroker.sql.relations.catalog import Column, Format, Relation
from pybroker.sql.sql_errors import SqlError
from pybroker.sql.standing.spark_plans import spark_plan, spark_type
from pybroker.sql.standing.standing_plans import SparkPlan, TableJoin, plan_read, topics_of

COLUMNS = (Column("id", "BIGINT", "id"), Column("who", "VARCHAR", "who"), Column("amount", "DOUBLE", "amount"))
MINUTE_MS, HOUR_MS = 60_000, 3_600_000


def created(text: str) -> CreateAs:
    (found,) = statements(text)
    assert isinstance(found, CreateAs)
    return found


OTHER_COLUMNS = {
    "tagged": (Column("tag", "BIGINT", "tag"), Column("tags", "BIGINT[]", "tags"), Column("name", "VARCHAR", "name")),
    "named": (Column("name", "TEXT", "name", is_key=True),),
    "numbered": (Column("number", "BIGINT", "number", is_key=True), Column("place", "VARCHAR", "place")),
}


def resolved(reference: TableReference) -> Relation:
    kind = "TABLE" if reference.name in ("users", "keyed", "numbered", "named") else "STREAM"
    columns = OTHER_COLUMNS.get(reference.name, COLUMNS)
    return Relation(reference.name, f"topic-{reference.name}", Format.JSON, columns, kind=kind)


def plan(text: str) -> SparkPlan:
    found = created(text)
    return spark_plan(found.name, found.kind, found.select, resolved)


def without_time(sql: str) -> str:
    """Spark's SQL of a stream without the column that has each record's time."""
    return re.sub(r", (\w+\._timestamp|GREATEST\([^)]*\)) AS __record_time", "", sql)


def refusal(text: str) -> str:
    with pytest.raises(SqlError) as caught:
        plan(text)
    return str(caught.value)


@pytest.mark.parametrize(
    ("window", "found"),
    [
        ("TUMBLING (SIZE 1 HOUR)", TimeWindow(WindowKind.TUMBLING, HOUR_MS, HOUR_MS)),
        (
            "HOPPING (SIZE 2 HOURS, ADVANCE BY 30 MINUTES, GRACE PERIOD 1 MINUTE)",
            TimeWindow(WindowKind.HOPPING, 2 * HOUR_MS, 30 * MINUTE_MS, MINUTE_MS),
        ),
        ("SESSION (90 SECONDS)", TimeWindow(WindowKind.SESSION, 90_000, 90_000)),
    ],
)
def test_window_is_read_and_is_no_part_of_the_query(window: str, found: TimeWindow) -> None:
    select = created(f"CREATE TABLE c AS SELECT who, count(*) AS n FROM orders o WINDOW {window} GROUP BY who").select
    assert select.window == found
    assert select.tree.sql() == "SELECT who, COUNT(*) AS n FROM orders AS o GROUP BY who"


def test_within_stands_beside_its_join() -> None:
    select = created(
        "CREATE STREAM s AS SELECT a.id FROM a JOIN t ON a.id = t.id JOIN b WITHIN (1 HOUR, 5 MINUTES) ON a.id = b.id"
    ).select
    assert select.within == (None, JoinWindow(HOUR_MS, 5 * MINUTE_MS))


def test_partition_by_of_the_query_is_not_that_of_a_function() -> None:
    select = created("CREATE STREAM s AS SELECT id, max(x) OVER (PARTITION BY y) AS m FROM a PARTITION BY id").select
    assert [each.sql() for each in select.partition_by] == ["id"]
    assert "PARTITION BY y" in select.tree.sql()


def test_other_statements_of_standing_queries_are_read() -> None:
    text = "INSERT INTO o SELECT * FROM a; PAUSE o; RESUME QUERY o; TERMINATE ALL; SHOW QUERIES"
    insert, *rest = statements(text)
    assert isinstance(insert, InsertSelect)
    assert rest == [Control(Verb.PAUSE, "o"), Control(Verb.RESUME, "o"), Control(Verb.TERMINATE, None), ShowQueries()]
    (values,) = statements("INSERT INTO o (id, who) VALUES (1, 'ada'), (2, NULL)")
    assert isinstance(values, InsertValues)
    assert (values.name, values.columns, len(values.rows)) == ("o", ("id", "who"), 2)


def test_rows_of_a_stream_are_told_once_by_their_key() -> None:
    found = plan("CREATE STREAM big AS SELECT *, upper(who) AS up FROM orders WHERE amount > 5 PARTITION BY who")
    assert (
        without_time(found.sql)
        == "SELECT * EXCEPT (_offset, _timestamp), UPPER(who) AS up FROM big_0 AS orders WHERE amount > 5"
    )
    assert (found.mode, found.key) == ("append", ("who",))
    assert list(topics_of(found)) == ["topic-orders"]


def test_aggregate_without_a_window_tells_its_changes() -> None:
    found = plan("CREATE TABLE t AS SELECT who AS w, latest_by_offset(amount) AS last FROM orders GROUP BY who")
    assert without_time(found.sql) == (
        "SELECT who AS w, MAX_BY(amount, CASE WHEN NOT amount IS NULL "
        "THEN STRUCT(_timestamp AS _timestamp, _offset AS _offset) END) AS last FROM t_0 AS orders GROUP BY who"
    )
    assert (found.mode, found.key, found.sources[0].grace_ms) == ("update", ("w",), None)


def test_window_has_its_edges_among_the_columns_and_its_start_in_the_key() -> None:
    text = (
        "CREATE TABLE t AS SELECT who, count(*) AS n FROM orders "
        "WINDOW HOPPING (SIZE 1 HOUR, ADVANCE BY 30 MINUTES, GRACE PERIOD 1 MINUTE) GROUP BY who EMIT FINAL"
    )
    found = plan(text)
    assert without_time(found.sql) == (
        "SELECT who, COUNT(*) AS n, window.start AS window_start, window.end AS window_end FROM t_0 AS orders "
        "GROUP BY who, WINDOW(_timestamp, '3600000 milliseconds', '1800000 milliseconds')"
    )
    assert (found.mode, found.key, found.sources[0].grace_ms) == ("append", ("who", "window_start"), MINUTE_MS)
    named = plan(
        "CREATE TABLE t AS SELECT who, WINDOWSTART AS at, count(*) AS n FROM orders WINDOW TUMBLING (SIZE 1 DAY) "
        "GROUP BY who"
    )
    assert (named.mode, named.key) == ("update", ("who", "at"))
    assert "window.start AS at" in named.sql


def test_session_is_told_when_it_is_over() -> None:
    found = plan("CREATE TABLE t AS SELECT who, count(*) AS n FROM orders WINDOW SESSION (60 SECONDS) GROUP BY who")
    assert found.mode == "append"
    assert "GROUP BY who, SESSION_WINDOW(_timestamp, '60000 milliseconds')" in found.sql


def test_columns_without_a_name_are_named_as_ksqldb_does() -> None:
    found = plan("CREATE TABLE t AS SELECT upper(who), count(*), CAST(max(id) AS INT), who FROM orders GROUP BY 1, 4")
    assert found.key == ("KSQL_COL_0", "who")
    assert [part.rpartition(" AS ")[2] for part in found.sql.split(" FROM ")[0].split(", ")] == [
        *(f"KSQL_COL_{number}" for number in range(3)),
        "who",
    ]


def test_join_of_streams_is_bounded_in_time() -> None:
    found = plan(
        "CREATE STREAM j AS SELECT a.id, b.amount FROM a LEFT JOIN b WITHIN (1 HOUR, 5 MINUTES) ON a.id = b.id"
    )
    assert without_time(found.sql) == (
        "SELECT a.id, b.amount FROM j_0 AS a LEFT JOIN j_1 AS b ON a.id = b.id AND b._timestamp BETWEEN "
        "a._timestamp - INTERVAL '3600000 milliseconds' AND a._timestamp + INTERVAL '300000 milliseconds'"
    )
    assert [source.grace_ms for source in found.sources] == [24 * HOUR_MS] * 2


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("STREAM s AS SELECT id FROM orders", "orders._timestamp"),
        ("STREAM s AS SELECT o.id FROM orders o JOIN keyed u ON o.who = u._key", "o._timestamp"),
        ("STREAM s AS SELECT a.id FROM a JOIN b WITHIN 1 HOUR ON a.id = b.id", "GREATEST(a._timestamp, b._timestamp)"),
        ("TABLE s AS SELECT who, count(*) AS n FROM orders GROUP BY who", None),
        ("TABLE s AS SELECT who FROM users", None),
    ],
)
def test_record_of_a_stream_has_the_time_of_the_record_that_it_is_made_of(text: str, time: str | None) -> None:
    found = plan(f"CREATE {text}").sql
    assert (f"{time} AS __record_time" in found) if time else ("__record_time" not in found)


@pytest.mark.parametrize(
    ("duckdb", "spark"),
    [
        ("dayofweek(_timestamp)", "(DAYOFWEEK(_timestamp) - 1)"),
        ("weekday(_timestamp)", "(DAYOFWEEK(_timestamp) - 1)"),
        ("extract(dow FROM _timestamp)", "(DAYOFWEEK(_timestamp) - 1)"),
        ("date_part('dow', _timestamp)", "(DAYOFWEEK(_timestamp) - 1)"),
        ("isodow(_timestamp)", "(WEEKDAY(_timestamp) + 1)"),
        ("extract(isodow FROM _timestamp)", "(WEEKDAY(_timestamp) + 1)"),
        ("date_part('isodow', _timestamp)", "(WEEKDAY(_timestamp) + 1)"),
        ("extract(hour FROM _timestamp)", "EXTRACT(HOUR FROM _timestamp)"),
        ("week(_timestamp)", "WEEKOFYEAR(_timestamp)"),
        ("dayname(dayofweek(_timestamp))", "DATE_FORMAT((DAYOFWEEK(_timestamp) - 1), 'EEEE')"),
        ("monthname(_timestamp)", "DATE_FORMAT(_timestamp, 'MMMM')"),
        ("log(amount)", "LOG(10, amount)"),
        ("log(2, amount)", "LOG(2, amount)"),
        ("datepart('dow', _timestamp)", "(DAYOFWEEK(_timestamp) - 1)"),
        ("extract(second FROM _timestamp)", "SECOND(_timestamp)"),
        ("date_part('second', _timestamp)", "SECOND(_timestamp)"),
        ("second(_timestamp)", "SECOND(_timestamp)"),
        (
            "date_diff('day', _timestamp, current_date)",
            "TIMESTAMPDIFF(DAY, DATE_TRUNC('DAY', _timestamp), DATE_TRUNC('DAY', CURRENT_DATE))",
        ),
        (
            "datediff('week', _timestamp, current_date)",
            "TIMESTAMPDIFF(WEEK, DATE_TRUNC('DAY', _timestamp), DATE_TRUNC('DAY', CURRENT_DATE))",
        ),
        ("list_extract([1, 2], 2)", "TRY_ELEMENT_AT(ARRAY(1, 2), 2)"),
        ("list_element([1, 2], id)", "TRY_ELEMENT_AT(ARRAY(1, 2), NULLIF(id, 0))"),
        ("list_slice([1, 2, 3], 2, 3)", "SLICE(ARRAY(1, 2, 3), 2, GREATEST(3 - 2 + 1, 0))"),
        (
            "list_slice([1], 0, 2)",
            "SLICE(ARRAY(1), CASE WHEN 0 = 0 THEN 1 ELSE 0 END, "
            "GREATEST(2 - CASE WHEN 0 = 0 THEN 1 ELSE 0 END + 1, 0))",
        ),
        ("list_concat([1], [2])", "COALESCE(CONCAT(ARRAY(1), ARRAY(2)), ARRAY(1), ARRAY(2))"),
        ("strlen(who)", "OCTET_LENGTH(who)"),
        ("left(who, 2)", "LEFT(who, 2)"),
        ("left(who, -1)", "LEFT(who, CASE WHEN -1 < 0 THEN GREATEST(LENGTH(who) + -1, 0) ELSE -1 END)"),
        ("right(who, id)", "RIGHT(who, CASE WHEN id < 0 THEN GREATEST(LENGTH(who) + id, 0) ELSE id END)"),
        ("substr(who, 2, 3)", "SUBSTRING(who, 2, 3)"),
        ("substr(who, 0, 2)", "SUBSTRING(who, 0, CASE WHEN 0 = 0 THEN 2 - 1 ELSE 2 END)"),
        (r"who LIKE 'x\%'", r"who LIKE 'x\\\\%'"),
        ("who NOT ILIKE upper(who)", r"who NOT ILIKE REPLACE(UPPER(who), '\\', '\\\\')"),
        (r"who LIKE ANY ('x\%', 'y%')", r"who LIKE ANY ('x\\\\%', 'y%')"),
        ("who LIKE 'x$%' ESCAPE '$'", "who LIKE 'x$%' ESCAPE '$'"),
        ("id % 2", "id % 2"),
        ("id % id", "id % NULLIF(id, 0)"),
        ("id // (id - 1)", "id DIV NULLIF(id - 1, 0)"),
        ("epoch(_timestamp)", "(UNIX_MICROS(CAST(_timestamp AS TIMESTAMP)) / 1e6)"),
        ("date_part('epoch', _timestamp)", "(UNIX_MICROS(CAST(_timestamp AS TIMESTAMP)) / 1e6)"),
        ("list_position([1, 2], id)", "CAST(NULLIF(ARRAY_POSITION(ARRAY(1, 2), id), 0) AS INT)"),
        ("array_position([1, 2], 2)", "CAST(NULLIF(ARRAY_POSITION(ARRAY(1, 2), 2), 0) AS INT)"),
        ("MAP {'a': id, 'b': MAP {1: 2}}", "MAP('a', id, 'b', MAP(1, 2))"),
        ("CAST('2026-01-31' AS TIMESTAMP)", "CAST('2026-01-31' AS TIMESTAMP)"),
        ("TIMESTAMP '2026-01-31'", "CAST('2026-01-31' AS TIMESTAMP)"),
        ("who::DATETIME[]", "CAST(who AS ARRAY<TIMESTAMP>)"),
        ("TRY_CAST(who AS TIMESTAMP_MS)", "TRY_CAST(who AS TIMESTAMP)"),
        ("array_slice([1, 2, 3], 2, 3)", "SLICE(ARRAY(1, 2, 3), 2, GREATEST(3 - 2 + 1, 0))"),
        (
            "array_slice([1, 2, 3], 1 + 1, weekday(_timestamp))",
            "SLICE(ARRAY(1, 2, 3), CASE WHEN (1 + 1) = 0 THEN 1 ELSE 1 + 1 END, GREATEST((DAYOFWEEK(_timestamp) - 1) - "
            "CASE WHEN (1 + 1) = 0 THEN 1 ELSE 1 + 1 END + 1, 0))",
        ),
    ],
)
def test_function_that_spark_takes_otherwise_is_translated(duckdb: str, spark: str) -> None:
    found = plan(f"CREATE STREAM s AS SELECT {duckdb} AS x FROM orders PARTITION BY {duckdb}")
    assert found.sql.removeprefix("SELECT ").partition(" AS x")[0] == spark
    assert found.key == ("x",)


@pytest.mark.parametrize(
    ("text", "sql", "key"),
    [
        ("STREAM s AS SELECT WHO, Orders.ID, upper(Who) AS Up FROM orders PARTITION BY wHO", "who, Orders.id", "who"),
        ("STREAM s AS SELECT WHO AS Name, ID FROM orders PARTITION BY name", "who AS Name, id", "Name"),
        ("STREAM s AS SELECT _KEY, O.ID FROM orders O PARTITION BY ID", "_key, O.id", "id"),
        ("TABLE s AS SELECT WHO, max(ID) AS m FROM orders GROUP BY Who", "who, MAX(id) AS m", "who"),
    ],
)
def test_column_of_a_stream_has_the_case_of_its_declaration(text: str, sql: str, key: str) -> None:
    found = plan(f"CREATE {text}")
    assert found.sql.removeprefix("SELECT ").startswith(sql)
    assert found.key == (key,)


def test_list_is_told_row_by_row_by_a_stream_alone() -> None:
    found = plan("CREATE STREAM s AS SELECT name, unnest(tags) AS t FROM tagged")
    assert without_time(found.sql) == "SELECT name, EXPLODE(tags) AS t FROM s_0 AS tagged"


def test_row_of_a_stream_meets_that_of_a_table_by_its_key() -> None:
    found = plan(
        "CREATE STREAM j AS SELECT o.id, o.amount > 5 AS big, u.who AS name FROM orders o JOIN keyed u "
        "ON upper(o.who) = u._key PARTITION BY o.id"
    )
    assert without_time(found.sql) == "SELECT o.id, o.amount > 5 AS big, u.who AS name FROM j_0"
    assert found.joins == (TableJoin("UPPER(o.who)", "STRING", "inner"),)
    assert (found.mode, found.key) == ("append", ("id",))
    read = [(each.alias, each.topic, [column.name for column in each.columns]) for each in found.sources]
    assert read == [("o", "topic-orders", ["id", "who", "amount", "_timestamp"]), ("u", "topic-keyed", ["who", "_key"])]


def test_columns_of_a_join_with_a_table_are_found_without_their_topic() -> None:
    """A star has those of all topics, one after another, but for what is left out."""
    found = plan(
        "CREATE STREAM j AS SELECT * EXCLUDE (name), list_transform(tags, e -> e + number) AS t, o._offset AS at "
        "FROM tagged o LEFT JOIN numbered ON o.tag = number PARTITION BY tag"
    )
    assert without_time(found.sql) == (
        "SELECT o.tag, o.tags, numbered.number, numbered.place, "
        "TRANSFORM(o.tags, e -> e + numbered.number) AS t, o._offset AS at FROM j_0"
    )
    assert found.joins == (TableJoin("o.tag", "BIGINT", "left"),)
    assert [column.name for column in found.sources[0].columns] == ["tag", "tags", "_offset", "_timestamp"]
    assert found.key == ("tag",)


def test_stream_is_joined_with_one_table_after_another() -> None:
    found = plan(
        "CREATE STREAM j AS SELECT o.tag FROM tagged o JOIN users u ON o.name = u._key LEFT JOIN numbered n "
        "ON n.number = u.id"
    )
    assert [(each.key, each.how) for each in found.joins] == [("o.name", "inner"), ("u.id", "left")]
    assert [each.alias for each in found.sources] == ["o", "u", "n"]


@pytest.mark.parametrize(
    "text",
    [
        "CREATE STREAM j AS SELECT a.*, b.who AS other FROM a JOIN b WITHIN 1 HOUR ON a.id = b.id",
        "CREATE STREAM j AS SELECT o.id FROM orders o LEFT JOIN users u ON o.who = u._key",
    ],
)
def test_plan_is_the_same_after_it_was_json(text: str) -> None:
    found = plan(text)
    assert plan_read(json.loads(json.dumps(found.document()))) == found


def test_what_spark_cannot_say_is_refused_and_not_left_out() -> None:
    with pytest.raises(SqlError, match="cannot say this: Argument 'count' is not supported"):
        spark_text(parse_one("arg_max(id, amount, 2)", dialect="duckdb"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("CREATE TABLE t AS SELECT id FROM orders", "a table needs GROUP BY"),
        ("CREATE STREAM s AS SELECT who, count(*) AS n FROM orders GROUP BY who", "CREATE TABLE"),
        ("CREATE STREAM s AS SELECT id FROM orders ORDER BY id", "have no meaning for rows without an end"),
        ("CREATE STREAM s AS SELECT id FROM (SELECT id FROM orders)", "make the inner one a stream of its own"),
        ("CREATE STREAM s AS SELECT u.id FROM users u JOIN orders o ON u._key = o.who", "FROM names the stream"),
        ("CREATE TABLE t AS SELECT count(*) AS n FROM orders", "an aggregate needs GROUP BY"),
        ("CREATE TABLE t AS SELECT who, count(*) AS n FROM orders GROUP BY ALL", "GROUP BY names columns of SELECT"),
        ("CREATE TABLE t AS SELECT who, count(*) AS n FROM orders GROUP BY CUBE (who)", "GROUP BY names columns"),
        ("CREATE TABLE t AS SELECT who, count(*) AS n FROM orders GROUP BY 3", "SELECT has no column 3"),
        (
            "CREATE STREAM s AS SELECT a.id FROM a JOIN b WITHIN 1 HOUR ON a.id = b.id JOIN users u ON a.who = u._key",
            "make the join of the streams a stream of its own",
        ),
        ("CREATE STREAM s AS SELECT a.id FROM a JOIN users u WITHIN 1 HOUR ON a.who = u._key", "WITHIN is for two"),
        ("CREATE STREAM s AS SELECT a.id FROM a JOIN users u ON a.who = u.who", "by its key: ON … = u._key"),
        ("CREATE STREAM s AS SELECT a.id FROM a JOIN users u ON a.who = u._key AND a.id > 1", "ON … = u._key"),
        ("CREATE STREAM s AS SELECT a.id FROM a JOIN users u ON u.who = u._key", "ON … = u._key"),
        ("CREATE STREAM s AS SELECT a.id FROM a JOIN users u USING (who)", "ON … = u._key"),
        ("CREATE STREAM s AS SELECT a.id FROM a FULL JOIN users u ON a.who = u._key", "inner and left joins"),
        ("CREATE STREAM s AS SELECT id FROM a JOIN users u ON a.who = u._key", "id is a column of a and u"),
        ("CREATE STREAM s AS SELECT key.id FROM a AS key JOIN users u ON key.who = u._key", "AS gives it another"),
        (
            "CREATE TABLE t AS SELECT u.who, count(*) AS n FROM a JOIN users u ON a.who = u._key GROUP BY u.who",
            "make the join a stream of its own",
        ),
        ("CREATE STREAM s AS SELECT a.id FROM a JOIN b ON a.id = b.id", "needs WITHIN"),
        ("CREATE STREAM s AS SELECT id FROM a JOIN b WITHIN 1 HOUR USING (id)", "needs ON"),
        ("CREATE TABLE t AS SELECT count(*) AS n FROM orders GROUP BY who", "who of GROUP BY is the key"),
        ("CREATE STREAM s AS SELECT id FROM orders PARTITION BY who", "who of PARTITION BY is the key"),
        ("CREATE TABLE t AS SELECT who, count(*) AS n FROM orders GROUP BY who EMIT FINAL", "needs a WINDOW"),
        ("CREATE TABLE t AS SELECT count(*) AS n FROM orders WINDOW SESSION (1 HOUR)", "needs GROUP BY"),
        ("CREATE STREAM s AS SELECT 1 AS one", "reads a topic"),
        (
            "CREATE TABLE t AS SELECT a.id, latest_by_offset(b.who) AS l FROM a JOIN b WITHIN 1 HOUR ON a.id = b.id "
            "GROUP BY a.id",
            "a join with an aggregate is not there",
        ),
        ("CREATE STREAM s AS SELECT product(id) AS p FROM orders", "an aggregate needs GROUP BY"),
        (
            "CREATE TABLE t AS SELECT who, product(id) AS p FROM orders GROUP BY who",
            "product(id) is not there in a standing query; the aggregates are count, sum",
        ),
        ("CREATE TABLE t AS SELECT who, histogram(id) AS p FROM orders GROUP BY who", "histogram(id) is not there in"),
        ("CREATE TABLE t AS SELECT who, kurtosis(id) AS p FROM orders GROUP BY who", "kurtosis(id) is not there in a"),
        ("CREATE TABLE t AS SELECT who, max(id, 3) AS p FROM orders GROUP BY who", "max(id, 3) is not there in a"),
        (
            "CREATE TABLE t AS SELECT who, count(DISTINCT id) AS p FROM orders GROUP BY who",
            "count(DISTINCT id) is not there over a stream: count_distinct",
        ),
        (
            "CREATE TABLE t AS SELECT who, first(id ORDER BY amount) AS p FROM orders GROUP BY who",
            "first(id ORDER BY amount) is not there over a stream: list_sort",
        ),
        ("CREATE STREAM s AS SELECT upper(unnest(tags)) AS t FROM tagged", "unnest(tags) is a column of its own"),
        ("CREATE STREAM s AS SELECT unnest(tags) AS t, unnest(tags) AS u FROM tagged", "the only one of its kind"),
        ("CREATE STREAM s AS SELECT unnest(tags, recursive := true) AS t FROM tagged", "is a column of its own"),
        ("CREATE TABLE t AS SELECT unnest(tags) AS t, count(*) AS n FROM tagged GROUP BY 1", "beside an aggregate"),
        ("CREATE STREAM s AS SELECT COLUMNS('i.*') FROM orders", "COLUMNS is not there in a standing query"),
        ("CREATE STREAM s AS SELECT * RENAME (id AS i) FROM orders", "* has EXCLUDE, and neither REPLACE nor RENAME"),
    ],
)
def test_query_that_streams_do_not_have_is_refused(text: str, why: str) -> None:
    assert why in refusal(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("CREATE TABLE t AS SELECT id FROM o WINDOW TUMBLING (SIZE 1 FORTNIGHT)", "a time as 10 MILLISECONDS or 10"),
        ("CREATE TABLE t AS SELECT id FROM o WINDOW HOPPING (SIZE 1 HOUR, ADVANCE BY 2 HOURS)", "by its size at most"),
        ("CREATE TABLE t AS SELECT id FROM o WINDOW TUMBLING (SIZE 1 HOUR, SLIDE 1 HOUR)", "is expected here"),
        ("CREATE TABLE t (id INT) AS SELECT id FROM o", "those of its SELECT"),
        ("CREATE TABLE t AS id FROM o", "SELECT is expected here"),
        ("CREATE STREAM t AS SELECT id FROM o EMIT ROWS", "CHANGES is expected here"),
        ("TERMINATE", "the statement ends too early"),
    ],
)
def test_mistake_in_a_frame_is_shown_at_its_place(text: str, why: str) -> None:
    with pytest.raises(SqlError) as caught:
        statements(text)
    assert why in str(caught.value)
    assert "^" in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("VARCHAR", "STRING"),
        ("STRUCT(a UBIGINT, t TIMESTAMP[])", "STRUCT<a: DECIMAL(20, 0), t: ARRAY<TIMESTAMP>>"),
        ("HUGEINT", "DECIMAL(38, 0)"),
        ("MAP(VARCHAR, UINTEGER)", "MAP<STRING, BIGINT>"),
    ],
)
def test_types_are_spark_s(kind: str, found: str) -> None:
    assert spark_type(kind) == found


@pytest.mark.parametrize("kind", ["TIME", "STRUCT(a TIME)", "TIME[]"])
def test_time_of_a_day_is_refused(kind: str) -> None:
    """A column that has such a name is none."""
    columns = (Column("t", kind, "t"), Column("time", "STRUCT(TIME BIGINT)", "time"))
    found = created("CREATE STREAM o AS SELECT * FROM s")

    def planned(*known: Column) -> SparkPlan:
        return spark_plan("o", "STREAM", found.select, lambda _: Relation("s", "s", Format.JSON, known))

    with pytest.raises(SqlError, match=r"has no TIME: t is "):
        planned(*columns)
    assert planned(columns[1]).sources[0].columns[0].name == "time"
