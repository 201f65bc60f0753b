"""ksqlDB's spelling and functions: what DuckDB answers by them, and what Spark is given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pybroker.sql.relations.catalog import Column, Format, Relation
from pybroker.sql.standing.spark_plans import spark_plan
from tests.sql.fake_cluster import NOON_MS
from tests.sql.test_spark_plans import created, without_time
from tests.sql.test_standing_statements import World

ROW: dict[str, Any] = {
    "name": "ada lovelace",
    "code": "Ab-9",
    "ms": 1_588_554_000_000,
    "at": "2020-05-04 01:00:00",
    "zoned": "2020-05-04T03:00:00+02:00",
    "items": [3, 1, 2],
    "pairs": {"a": 1, "b": 2},
    "person": {"first": "Ada", "home": {"city": "Ulm"}, "tags": ["x", "y"]},
    "document": '{"log": {"cloud": "c1", "instance": 4}, "ids": [1, 2]}',
}
COLUMNS = (
    "name VARCHAR, code VARCHAR, ms BIGINT, at VARCHAR, zoned VARCHAR, items ARRAY<INT>, pairs MAP<VARCHAR, INT>, "
    "person STRUCT<first VARCHAR, home STRUCT<city VARCHAR>, tags ARRAY<VARCHAR>>, document VARCHAR"
)

# An expression over ``ROW``, and its value.
VALUES: dict[str, Any] = {
    "person->first": "Ada",
    "person->home->city": "Ulm",
    "person->tags[2]": "y",
    "UCASE(person->home->city)": "ULM",
    "`name`": "ada lovelace",
    "pairs['b']": 2,
    "STRUCT(a := 1, b := ARRAY[2])": {"a": 1, "b": [2]},
    "MAP('x' := STRUCT(y := 1), 'z' := STRUCT(y := 2))": {"x": {"y": 1}, "z": {"y": 2}},
    "TRANSFORM(items, x => x + 1)": [4, 2, 3],
    "TRANSFORM(pairs, (k, v) => UCASE(k), (k, v) => v * 10)": {"A": 10, "B": 20},
    "FILTER(items, x => x > 1)": [3, 2],
    "FILTER(pairs, (k, v) => k = 'a' OR v > 5)": {"a": 1},
    "REDUCE(items, 10, (s, x) => s + x)": 16,
    "list_transform(items, x -> x + 1)": [4, 2, 3],
    "document -> '$.log.cloud'": "c1",
    "code + ': ' + name": "Ab-9: ada lovelace",
    "code + name + CAST(ms AS VARCHAR)": "Ab-9ada lovelace1588554000000",
    "ms + '5'": 1_588_554_000_005,
    "hour(_timestamp + '2 hours')": 14,
    "AS_VALUE(code)": "Ab-9",
    "INITCAP(name)": "Ada Lovelace",
    "MASK(code)": "Xx-n",
    "MASK_KEEP_LEFT(code, 1)": "Ax-n",
    "MASK_KEEP_RIGHT(code, 2)": "Xx-9",
    "MASK_LEFT(code, 1)": "Xb-9",
    "MASK_RIGHT(code, 1)": "Ab-n",
    "SPLIT(name, ' ')[2]": "lovelace",
    "SPLIT_TO_MAP('a=1/b=2', '/', '=')": {"a": "1", "b": "2"},
    "REGEXP_EXTRACT('([a-z]+) ([a-z]+)', name, 2)": "lovelace",
    "REGEXP_SPLIT_TO_ARRAY(code, '-')": ["Ab", "9"],
    "EXTRACTJSONFIELD(document, '$.log.instance')": "4",
    "EXTRACTJSONFIELD(name, '$.log')": None,
    "JSON_ARRAY_CONTAINS(EXTRACTJSONFIELD(document, '$.ids'), 2)": True,
    "JSON_ARRAY_CONTAINS(name, 2)": False,
    "TO_JSON_STRING(items)": "[3,1,2]",
    "ARRAY_JOIN(items)": "3,1,2",
    "ARRAY_SORT(ARRAY_UNION(items, ARRAY[3, 4]))": [1, 2, 3, 4],
    "SLICE(items, 2, 3)": [1, 2],
    "AS_MAP(ARRAY['a'], ARRAY[1])": {"a": 1},
    "MAP_UNION(pairs, MAP('b' := 7))": {"a": 1, "b": 7},
    "ROUND(GEO_DISTANCE(48.4, 10.0, 52.5, 13.4))": 515.0,
    "ROUND(GEO_DISTANCE(48.4, 10.0, 52.5, 13.4, 'miles'))": 320.0,
    "TIMESTAMPTOSTRING(ms, 'yyyy-MM-dd''T''HH:mm:ss.SSSX')": "2020-05-04T01:00:00.000Z",
    "TIMESTAMPTOSTRING(ms, 'HH:mm', 'America/Denver')": "19:00",
    "TIMESTAMPTOSTRING(_timestamp, 'd MMM yy')": "31 Jan 26",
    "TIMESTAMPTOSTRING(ROWTIME, 'EEEE')": "Saturday",
    "FORMAT_TIMESTAMP(FROM_UNIXTIME(ms), 'yyyy-MM-dd HH:mm:ss')": "2020-05-04 01:00:00",
    "FORMAT_TIMESTAMP(FROM_UNIXTIME(_timestamp), 'HH')": "12",
    "STRINGTOTIMESTAMP(at, 'yyyy-MM-dd HH:mm:ss')": 1_588_554_000_000,
    "STRINGTOTIMESTAMP(at, 'yyyy-MM-dd HH:mm:ss', 'Europe/Berlin')": 1_588_546_800_000,
    "UNIX_TIMESTAMP(PARSE_TIMESTAMP(zoned, 'yyyy-MM-dd''T''HH:mm:ssXXX'))": 1_588_554_000_000,
    "UNIX_TIMESTAMP(PARSE_TIMESTAMP('2020-05-04T01:00:00Z', 'yyyy-MM-dd''T''HH:mm:ssX'))": 1_588_554_000_000,
    "FORMAT_DATE(PARSE_DATE('04.05.2020', 'dd.MM.yyyy'), 'yyyy-MM-dd')": "2020-05-04",
    "FORMAT_TIMESTAMP(CONVERT_TZ(FROM_UNIXTIME(ms), 'UTC', 'America/Denver'), 'HH:mm')": "19:00",
    "UNIX_DATE(FROM_DAYS(18386))": 18_386,
    "UNIX_TIMESTAMP() > ms AND UNIX_DATE() > 18386": True,
    "FORMAT_TIMESTAMP(TIMESTAMPADD(HOURS, 2, FROM_UNIXTIME(ms)), 'HH')": "03",
    "FORMAT_DATE(DATESUB(DAYS, 1, FROM_DAYS(18386)), 'dd')": "03",
    "ROWTIME": NOON_MS,
    "ROWPARTITION + ROWOFFSET": 0,
}

NO_LIST = "CAST(NULL AS INTEGER[])"

# What ksqlDB's documentation says of NULL, of what is empty, and of places that are negative or not there.
EDGES: dict[str, Any] = {
    "INSTR('CORPORATE FLOOR', 'OR', 3)": 5,
    "INSTR(repeat(name, 200000), 'y', ms - ms + 2)": 0,
    "INSTR('CORPORATE FLOOR', 'OR', 3, 2)": 14,
    "INSTR('CORPORATE FLOOR', 'OR', -3)": 5,
    "INSTR('CORPORATE FLOOR', 'OR', -3, 2)": 2,
    "INSTR('CORPORATE FLOOR', 'OR', -1)": 14,
    "INSTR('CORPORATE FLOOR', 'OR', 3, 3)": 0,
    "INSTR('CORPORATE FLOOR', 'OR', 3, 0)": 0,
    "INSTR('CORPORATE FLOOR', 'OR', 99) + INSTR('CORPORATE FLOOR', 'OR', -99) + INSTR('', 'a', 1)": 0,
    "INSTR(name, 'a', ms - ms + 1, items[3])": 3,
    "ARRAY_DISTINCT(ARRAY['apple', 'apple', NULL, 'cherry'])": ["apple", None, "cherry"],
    "list_distinct([NULL, 1, 1])": [1],
    "ARRAY_EXCEPT(ARRAY['b', 'a', 'b', NULL, 'c'], ARRAY['c'])": ["b", "a", None],
    "ARRAY_EXCEPT(ARRAY[1, NULL], ARRAY[NULL])": [1],
    f"ARRAY_EXCEPT(items, {NO_LIST})": None,
    "ARRAY_INTERSECT(ARRAY[3, 1, NULL, 3, 2], ARRAY[NULL, 1, 3])": [3, 1, None],
    f"ARRAY_INTERSECT(items, {NO_LIST})": None,
    "ARRAY_REMOVE(ARRAY[false, NULL, true, true], false)": [None, True, True],
    "ARRAY_REMOVE(ARRAY['a', NULL, 'b'], NULL)": ["a", "b"],
    "TRANSFORM(items, x => ARRAY_REMOVE(items, x))": [[1, 2], [3, 2], [3, 1]],
    "ARRAY_UNION(ARRAY['b', 'b', NULL, 'a'], ARRAY['c', 'a'])": ["b", None, "a", "c"],
    f"ARRAY_UNION(items, {NO_LIST})": None,
    f"ARRAY_DISTINCT({NO_LIST})": None,
    "SPLIT_TO_MAP('a=1/b=2//c/=4/a=3=5', '/', '=')": {"a": "3", "b": "2", "": "4"},
    "SPLIT_TO_MAP('', '/', '=')": {},
    "SPLIT_TO_MAP(code, '', '=')": None,
    "SPLIT_TO_MAP(code, '-', '-')": None,
    "MAP_UNION(pairs, CAST(NULL AS MAP(VARCHAR, INTEGER)))": {"a": 1, "b": 2},
    f"ARRAY_CONCAT(items, {NO_LIST})": [3, 1, 2],
    "REGEXP_REPLACE('banana', 'a', 'o')": "bonono",
    "REGEXP_REPLACE('banana', '(a)(n)', '$2$1$3')": "bna$3na$3a",
    "regexp_replace('banana', 'A', 'o', 'i')": "bonana",
    "REGEXP_EXTRACT_ALL('l.', name)": ["lo", "la"],
}


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    found = World()
    found.cluster.produce("rows", [ROW])
    found.ask(f"CREATE STREAM rows ({COLUMNS}) WITH (topic='rows', format='json')")
    yield found
    found.engine.close()


def test_expressions_of_ksqldb_have_its_values(world: World) -> None:
    wanted = {**VALUES, **EDGES}
    chosen = ", ".join(f"{text} AS c{number}" for number, text in enumerate(wanted))
    (row,) = world.ask(f"SELECT {chosen} FROM rows")
    assert dict(zip(wanted, row.values(), strict=True)) == wanted


def test_columns_of_ksqldb_have_the_names_that_it_gives(world: World) -> None:
    world.cluster.produce("deep", [{"b": {"d": {"x": {"f": True}}}}])
    world.ask("CREATE STREAM deep (b STRUCT<d MAP<VARCHAR, STRUCT<f BOOLEAN>>>) WITH (topic='deep', format='json')")
    assert world.ask("SELECT b->d['x']->f, RowTime FROM deep") == [{"f": True, "RowTime": NOON_MS}]
    world.ask("CREATE STREAM flat AS SELECT b->d['x']->f FROM deep")
    assert world.ask("DESCRIBE flat")[0]["column"] == "f"


def test_column_of_a_topic_is_meant_before_ksqldb_s_of_its_name(world: World) -> None:
    world.cluster.produce("own", [{"rowtime": "mine"}])
    assert world.ask("SELECT rowtime FROM own") == [{"rowtime": "mine"}]


def test_latest_value_is_the_last_one_that_is_there(world: World) -> None:
    world.cluster.produce("gaps", [{"v": 1, "w": None}, {"v": None, "w": 2}, {"v": 3, "w": None}])
    rows = world.ask("SELECT LATEST_BY_OFFSET(v) AS v, LATEST_BY_OFFSET(w) AS w, EARLIEST_BY_OFFSET(w) AS e FROM gaps")
    assert rows == [{"v": 3, "w": 2, "e": 2}]


def test_topk_has_the_largest_values(world: World) -> None:
    world.cluster.produce("prices", [{"p": each} for each in (1, 3, 3, 2)])
    rows = world.ask("SELECT TOPK(p, 2) AS top, TOPKDISTINCT(p, 2) AS topd, STDDEV_SAMPLE(p) > 0 AS s FROM prices")
    assert rows == [{"top": [3, 3], "topd": [3, 2], "s": True}]


def spark(expression: str) -> str:
    found = created(f"CREATE STREAM s AS SELECT {expression} AS x FROM rows")
    columns = (
        Column("a", "VARCHAR", "a"),
        Column("m", "MAP(VARCHAR, INTEGER)", "m"),
        Column("s", "STRUCT(f INT)", "s"),
    )
    relation = Relation("rows", "rows", Format.JSON, columns)
    sql = without_time(spark_plan(found.name, found.kind, found.select, lambda _: relation).sql)
    return sql.removeprefix("SELECT ").removesuffix(" AS x FROM s_0 AS rows")


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("s->f", "s.f"),
        ("TRANSFORM(m, (k, v) => UCASE(k), (k, v) => v + 5)", "MAP_FROM_ENTRIES(TRANSFORM(MAP_ENTRIES(m), entry -> "),
        ("FILTER(m, (k, v) => v > 5)", "MAP_FROM_ENTRIES(FILTER(MAP_ENTRIES(m), entry -> entry.value > 5))"),
        ("REDUCE(ARRAY[1], 0, (s, x) => s + x)", "AGGREGATE(ARRAY(1), 0, (s, x) -> s + x)"),
        ("a + '!'", "a || '!'"),
        ("EXTRACTJSONFIELD(a, '$.x')", "(GET_JSON_OBJECT(a, '$.x'))"),
        ("UCASE(EXTRACTJSONFIELD(a, '$.x'))", "UPPER((GET_JSON_OBJECT(a, '$.x')))"),
        ("INITCAP(a)", "INITCAP(a)"),
        ("REGEXP_EXTRACT('x+', a)", "REGEXP_EXTRACT(a, 'x+', 0)"),
        ("REGEXP_SPLIT_TO_ARRAY(a, 'x')", "SPLIT(a, 'x')"),
        ("FORMAT_TIMESTAMP(_timestamp, 'yyyy')", "DATE_FORMAT(CAST(_timestamp AS TIMESTAMP), 'yyyy')"),
        ("PARSE_TIMESTAMP(a, 'yyyy-MM-dd''T''HH:mm')", "TO_TIMESTAMP(a, 'yyyy-MM-dd\\'T\\'HH:mm')"),
        ("STRINGTOTIMESTAMP(a, 'yyyy')", "UNIX_MILLIS(TO_TIMESTAMP(a, 'yyyy'))"),
        ("UNIX_TIMESTAMP(_timestamp)", "UNIX_MILLIS(CAST(_timestamp AS TIMESTAMP))"),
        ("TIMESTAMPADD(DAYS, 1, _timestamp)", "(_timestamp + 1 * INTERVAL '1' DAY)"),
        ("REGEXP_REPLACE(a, '(x)', '$1$2')", r"REGEXP_REPLACE(a, '(x)', '$1\\$2')"),
        (r"regexp_replace(a, '(x)', '<\1>', 'gi')", "REGEXP_REPLACE(a, '(?i)' || '(x)', '<$1>')"),
        ("REGEXP_EXTRACT_ALL('l.', a)", "REGEXP_EXTRACT_ALL(a, 'l.', 0)"),
        ("INSTR(a, 'x')", "LOCATE('x', a)"),
        (
            "INSTR(a, 'x', -1)",
            "CASE WHEN -1 > 0 AND -1 <= LENGTH(a) THEN COALESCE(NULLIF(LOCATE('x', a, -1), 0), 0) ELSE ",
        ),
        ("ARRAY_DISTINCT(ARRAY[1])", "ARRAY_DISTINCT(ARRAY(1))"),
        ("list_distinct(ARRAY[1])", "ARRAY_COMPACT(ARRAY_DISTINCT(ARRAY(1)))"),
        ("ARRAY_REMOVE(ARRAY[1], 2)", "FILTER(ARRAY(1), __item -> NOT __item IS NOT DISTINCT FROM 2)"),
        ("ARRAY_UNION(ARRAY[1], ARRAY[2])", "ARRAY_UNION(ARRAY(1), ARRAY(2))"),
        ("AS_MAP(ARRAY['a'], ARRAY[1])", "MAP_FROM_ARRAYS(ARRAY('a'), ARRAY(1))"),
        ("EXPLODE(ARRAY[1])", "EXPLODE(ARRAY(1))"),
    ],
)
def test_expression_of_ksqldb_is_spark_s_in_a_standing_query(expression: str, found: str) -> None:
    assert spark(expression).startswith(found)


@pytest.mark.timeout(60)
def test_text_that_begins_as_a_number_is_told_from_one_at_once() -> None:
    text = "1" * 30 + "_"
    assert spark(f"a + '{text}'") == f"a || '{text}'"


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("LATEST_BY_OFFSET(name, 3)", "latest_by_offset takes 1 argument: latest_by_offset(name, 3)"),
        ("GEO_DISTANCE(1, 2)", "geo_distance takes 4 or 5 arguments"),
        ("ENTRIES(pairs, true)", "there is no function entries: map_entries(m) may stand in its place"),
        ("ENCODE(name, 'utf8', 'hex')", "there is no function encode: from_base64(x)"),
        ("FORMAT_TIMESTAMP(_timestamp, name)", "the pattern is a text"),
        ("FORMAT_TIMESTAMP(_timestamp, 'QQQ')", "QQQ in the pattern QQQ is not there"),
        ("FORMAT_TIMESTAMP(_timestamp, 'HH X', 'Asia/Tokyo')", "X in the pattern HH X is not there"),
    ],
)
def test_function_of_ksqldb_that_is_not_there_names_what_does_the_same(world: World, expression: str, why: str) -> None:
    assert why in world.refusal(f"SELECT {expression} FROM rows")
    assert why in world.refusal(f"CREATE TABLE t AS SELECT code, max({expression}) AS m FROM rows GROUP BY code")


def test_window_s_length_is_in_ms_and_its_retention_is_passed_over(world: World) -> None:
    world.ask(
        "CREATE TABLE lengths AS SELECT name, WINDOWEND - WINDOWSTART AS ms, "
        "TIMESTAMPTOSTRING(WINDOWSTART, 'HH') AS h, count(*) AS n FROM rows "
        "WINDOW TUMBLING (SIZE 1 HOUR, RETENTION 1000 DAYS) GROUP BY name"
    )
    kinds = {row["column"]: row["type"] for row in world.ask("DESCRIBE lengths")}
    assert (kinds["ms"], kinds["h"], kinds["window_start"]) == ("BIGINT", "VARCHAR", "TIMESTAMP")
    assert world.ask("SELECT * FROM lengths WHERE WINDOWSTART >= '2020-01-01'") == []


def test_expression_of_partition_by_is_a_column_more(world: World) -> None:
    world.ask("CREATE STREAM keyed AS SELECT name, upper(name) FROM rows PARTITION BY SPLIT(name, ' ')[1]")
    assert [row["column"] for row in world.ask("DESCRIBE keyed")][:3] == ["name", "KSQL_COL_0", "KSQL_COL_1"]
    assert '"key":["KSQL_COL_1"]' in world.supervisor.configs["keyed"]["plan"]


def test_names_of_a_join_s_star_begin_with_their_topics_where_two_have_one(world: World) -> None:
    declared = "CREATE TABLE codes (code VARCHAR PRIMARY KEY, at VARCHAR)"
    world.ask(f"{declared} WITH (topic='codes', format='json', partitions=1)")
    world.ask("CREATE STREAM starred AS SELECT * EXCLUDE (name) FROM rows r JOIN codes c ON r.code = c.code")
    columns = [row["column"] for row in world.ask("DESCRIBE starred")][:-5]
    assert columns == ["r_code", "ms", "r_at", "zoned", "items", "pairs", "person", "document", "c_code", "c_at"]


def test_table_of_a_query_is_joined_by_the_column_that_groups_it(world: World) -> None:
    world.ask("CREATE TABLE last_codes AS SELECT name, LATEST_BY_OFFSET(code) AS code FROM rows GROUP BY name")
    world.ask("CREATE STREAM enriched AS SELECT r.ms, t.code FROM rows r LEFT JOIN last_codes t ON r.name = t.name")
    assert '"key":"r.name","key_type":"STRING","how":"left"' in world.supervisor.configs["enriched"]["plan"]
    told = world.refusal("CREATE STREAM other AS SELECT r.ms FROM rows r JOIN last_codes t ON r.name = t.code")
    assert "a join with a table is by its key: ON … = t.name" in told


def test_print_shows_records_with_their_times_and_keys(world: World) -> None:
    world.cluster.produce("printed", [{"a": 1}, {"a": 2}, {"a": 3}], keys=["x", "y", None])
    found = world.ask("PRINT printed FROM BEGINNING LIMIT 2")
    assert [(row["_key"], row["a"]) for row in found] == [("x", 1), ("y", 2)]
    assert found[0]["_timestamp"] == "2026-01-31 12:00:00.000"
    assert [row["a"] for row in world.ask("PRINT 'printed' FROM BEGINNING INTERVAL 2 LIMIT 2;")] == [1, 3]
    assert "there is no topic printd; printed?" in world.refusal("PRINT printd FROM BEGINNING LIMIT 1")


def test_setting_of_ksqldb_s_own_is_passed_over_with_a_word(world: World) -> None:
    world.ask("SET 'ksql.streams.cache.max.bytes.buffering' = '0'")
    assert world.remarks[-1] == "ksql.streams.cache.max.bytes.buffering has no effect here"
