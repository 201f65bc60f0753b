"""Statements and their answers, over a cluster in memory."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import duckdb
import pytest
from harness.waiting import PATIENCE_S

from pybroker.sql.questions.engine import Engine
from pybroker.sql.questions.row_output import OutputForm
from pybroker.sql.session import End, Session
from pybroker.sql.sql_errors import Interrupted, SqlError
from tests.sql.fake_cluster import NOON_MS, FakeChanges, FakeCluster
from tests.sql.test_row_output import Sheet

ORDERS: list[dict[str, Any]] = [{"id": number, "amount": number * 10, "who": "ab"[number % 2]} for number in range(10)]
USERS = [{"who": "a", "city": "Bonn"}, {"who": "b", "city": "Ulm"}]


class World:
    """A session, what it printed, and what it said beside that."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.sheet = Sheet()
        self.remarks: list[str] = []
        self.engine = Engine("256MB")
        self.session = Session(
            self.cluster, self.cluster.connect, self.engine, self.sheet, self.remarks.append, output=OutputForm.JSON
        )

    def ask(self, text: str) -> list[dict[str, Any]]:
        self.sheet.written.seek(0)
        self.sheet.written.truncate()
        self.session.run(text)
        return [json.loads(line) for line in self.sheet.written.getvalue().splitlines()]

    def refusal(self, text: str) -> str:
        with pytest.raises(SqlError) as caught:
            self.session.run(text)
        return str(caught.value)


@pytest.fixture
def world() -> Iterator[World]:
    found = World()
    found.cluster.produce("orders", ORDERS[:5])
    found.cluster.produce("orders", ORDERS[5:], partition=1)
    found.cluster.produce("users", USERS)
    yield found
    found.engine.close()


def test_topic_is_filtered_grouped_and_ordered(world: World) -> None:
    found = world.ask(
        "SELECT who, count(*) AS n, sum(amount) AS total FROM orders WHERE id > 0 GROUP BY who ORDER BY who"
    )
    assert found == [{"who": "a", "n": 4, "total": 200}, {"who": "b", "n": 5, "total": 250}]


def test_records_have_their_pseudo_columns(world: World) -> None:
    found = world.ask("SELECT _partition, _offset, _timestamp, _key FROM orders WHERE id = 6")
    assert found == [{"_partition": 1, "_offset": 1, "_timestamp": "2026-01-31 12:00:00.001", "_key": None}]


def test_star_has_the_columns_of_the_value_alone(world: World) -> None:
    assert world.ask("SELECT * FROM orders WHERE _offset = 0 AND _partition = 0") == [ORDERS[0]]


def test_json_is_no_text_within_json(world: World) -> None:
    value: dict[str, Any] = {"free": {"a": [1, {"b": "c"}]}, "list": [1, "x"], "nested": {"any": {}}, "none": None}
    world.cluster.produce("texts", [value, {"free": 1, "list": [], "nested": {"any": 2}}])
    rows = [value, {"free": 1, "list": [], "nested": {"any": 2}, "none": None}]
    assert world.ask("SELECT free, list, nested, none FROM texts ORDER BY _offset") == rows
    assert world.ask("SELECT * FROM texts WHERE _offset >= 0 EMIT CHANGES LIMIT 2") == rows
    assert world.ask("SELECT MAP {'a': free, 'b': NULL} AS m, [MAP {'c': free}] AS l FROM texts WHERE _offset = 0") == [
        {"m": {"a": value["free"], "b": None}, "l": [{"c": value["free"]}]}
    ]
    assert world.ask("SELECT typeof(free) AS free, typeof(nested) AS nested FROM texts LIMIT 1") == [
        {"free": "JSON", "nested": 'STRUCT("any" JSON)'}
    ]


def test_whole_numbers_beyond_a_bigint_are_answered(world: World) -> None:
    numbers = [2**64 - 1, 1]
    world.cluster.produce("numbers", [{"n": each, "m": -each} for each in numbers])
    assert world.ask("SELECT n FROM numbers ORDER BY n DESC") == [{"n": each} for each in numbers]


def test_topics_are_joined_and_named_twice(world: World) -> None:
    joined = world.ask("SELECT o.id, u.city FROM orders o JOIN users u USING (who) WHERE o.id < 2 ORDER BY o.id")
    assert joined == [{"id": 0, "city": "Bonn"}, {"id": 1, "city": "Ulm"}]
    twice = world.ask("WITH big AS (SELECT * FROM orders WHERE id > 7) SELECT a.id FROM big a JOIN big b USING (id)")
    assert sorted(row["id"] for row in twice) == [8, 9]
    itself = world.ask("SELECT count(*) AS n FROM orders a JOIN orders b ON a.id = b.id")
    assert itself == [{"n": 10}]


def test_file_stands_beside_a_topic(world: World, tmp_path: Path) -> None:
    path = tmp_path / "rates.parquet"
    duckdb.sql(f"COPY (SELECT 'a' AS who, 2 AS rate) TO '{path}'")
    found = world.ask(f"SELECT sum(amount * rate) AS x FROM orders JOIN read_parquet('{path}') USING (who)")
    assert found == [{"x": 400}]
    world.ask(f"COPY (SELECT * FROM orders) TO '{tmp_path}/orders.parquet'")
    with duckdb.connect() as connection:
        assert connection.execute(f"SELECT count(*) FROM '{tmp_path}/orders.parquet'").fetchall() == [(10,)]


@pytest.mark.parametrize("written", ["orders", "orders (id, who)", "(SELECT id, who FROM orders)"])
def test_topic_is_copied_to_a_file_by_its_name_or_by_a_query(world: World, tmp_path: Path, written: str) -> None:
    path = tmp_path / "orders.parquet"
    world.ask(f"COPY {written} TO '{path}'")
    with duckdb.connect() as connection:
        found = connection.execute(f"SELECT id, who FROM '{path}' ORDER BY id").fetchall()
    assert found == sorted((row["id"], row["who"]) for row in ORDERS)


def test_topic_is_summarized_by_its_name(world: World) -> None:
    assert world.ask("SUMMARIZE orders") == world.ask("SUMMARIZE SELECT * FROM orders")


@pytest.mark.parametrize(
    "text",
    [
        "PIVOT orders ON who USING sum(amount)",
        "SELECT * FROM (PIVOT orders ON who USING sum(amount))",
        "WITH wide AS (PIVOT orders ON who USING sum(amount)) FROM wide",
    ],
)
def test_pivot_finds_its_columns_in_the_topic(world: World, text: str) -> None:
    """DuckDB reads the values first and the rows then, and a stream can be read once."""
    for _ in range(2):
        rows = world.ask(text)
        assert {name for row in rows for name in row} >= {row["who"] for row in ORDERS}
        of_a = sum(row["a"] for row in rows if row["a"] is not None)
        assert of_a == sum(row["amount"] for row in ORDERS if row["who"] == "a")


def test_limit_ends_the_fetch_early(world: World) -> None:
    # Much more than is fetched ahead of a decoder that is slow, which is 14 MB.
    world.cluster.produce("long", [{"n": number, "pad": "x" * 1_000} for number in range(60_000)])
    size = sum(map(len, world.cluster.logs["long"][0]))
    world.ask("DESCRIBE long")
    world.cluster.fetched_bytes = 0
    assert len(world.ask("SELECT n FROM long LIMIT 10")) == 10
    assert world.cluster.fetched_bytes < size / 2


def test_offsets_and_partitions_that_are_not_wanted_are_not_fetched(world: World) -> None:
    world.cluster.produce("long", [{"n": number} for number in range(20_000)])
    world.ask("DESCRIBE long")
    world.cluster.fetched_bytes = 0
    assert world.ask("SELECT min(n) AS low, count(*) AS n FROM long WHERE _offset >= 19000") == [
        {"low": 19_000, "n": 1_000}
    ]
    assert world.cluster.fetched_bytes < sum(map(len, world.cluster.logs["long"][0])) / 10


def test_times_that_are_not_wanted_are_not_fetched_as_far_as_they_ascend(world: World) -> None:
    where = "WHERE _timestamp >= '2026-01-31 12:00:00.200' AND _timestamp < '2026-01-31 12:00:00.300'"
    world.cluster.produce("times", [{"n": number} for number in range(1_000)])
    assert world.ask(f"SELECT count(*) AS n FROM times {where}") == [{"n": 100}]
    (by_producers,) = world.ask(f"EXPLAIN SELECT n FROM times {where}")
    assert (by_producers["from"], by_producers["to"]) == (200, 1_000)
    assert by_producers["not_pushed"] == "the end of the range of _timestamp, because producers give the timestamps"
    world.cluster.broker_times.add("timed")
    world.cluster.produce("timed", [{"n": number} for number in range(1_000)])
    (by_broker,) = world.ask(f"EXPLAIN SELECT n FROM timed {where}")
    assert (by_broker["from"], by_broker["to"]) == (200, 300)
    assert world.ask(f"SELECT count(*) AS n FROM timed {where}") == [{"n": 100}]


def test_records_of_a_time_that_a_later_record_stands_before_are_found(world: World) -> None:
    world.cluster.produce("late", [{"n": 1}, {"n": 2}], times=[NOON_MS + 60_000, NOON_MS], per_batch=1)
    assert world.ask("SELECT n FROM late WHERE _timestamp <= '2026-01-31 12:00:00'") == [{"n": 2}]


def test_explain_says_what_is_fetched(world: World) -> None:
    found = world.ask("EXPLAIN SELECT id FROM orders WHERE _partition = 1 AND _offset > 1 AND amount > 3")
    assert found == [
        {
            "engine": "duckdb",
            "topic": "orders",
            "format": "json",
            "columns": "id, amount, _partition, _offset",
            "pushed": "_partition in [1] and _offset >= 2",
            "not_pushed": None,
            "partition": 1,
            "from": 2,
            "to": 5,
        }
    ]


def test_describe_shows_what_was_inferred_and_declared(world: World) -> None:
    rows = world.ask("DESCRIBE orders")
    assert rows[:3] == [
        {"column": "id", "type": "BIGINT", "from": "inferred, as json"},
        {"column": "amount", "type": "BIGINT", "from": "inferred, as json"},
        {"column": "who", "type": "VARCHAR", "from": "inferred, as json"},
    ]
    assert [row["column"] for row in rows[3:]] == ["_key", "_partition", "_offset", "_timestamp", "_headers"]


def test_topics_and_declarations_are_shown(world: World) -> None:
    assert world.ask("SHOW TOPICS") == [{"topic": "orders", "partitions": 2}, {"topic": "users", "partitions": 1}]
    world.ask("CREATE STREAM o (id BIGINT) WITH (topic='orders', format='json')")
    assert world.ask("SHOW STREAMS") == [{"stream": "o", "topic": "orders", "format": "json", "query": None}]
    assert world.ask("SHOW TABLES") == []
    world.ask("DROP STREAM o")
    assert world.ask("SHOW STREAMS") == []


def test_declared_columns_are_cast_and_found_in_any_case(world: World) -> None:
    world.cluster.produce("events", [{"orderId": 1, "at": "2026-01-31 12:00:00"}], keys=["7"])
    world.ask(
        "CREATE STREAM e (K BIGINT KEY, ORDERID INT, AT TIMESTAMP) WITH (KAFKA_TOPIC='events', VALUE_FORMAT='JSON')"
    )
    assert world.ask("SELECT k, orderid, at FROM e") == [{"K": 7, "ORDERID": 1, "AT": "2026-01-31 12:00:00.000"}]


def test_declaration_of_a_topic_that_was_empty_has_the_names_of_its_records(world: World) -> None:
    world.cluster.logs["rides"] = [[]]
    declared = "CREATE STREAM rides (RIDERID INT, at VARCHAR) WITH (topic='rides', format='json')"
    world.ask(declared)
    world.cluster.produce("rides", [{"riderId": 1, "AT": "x", "at": "y"}])
    for text in ("SHOW STREAMS", declared):  # the same text once more is no mistake
        world.ask(text)
    assert world.ask("SELECT riderid, at FROM rides") == [{"RIDERID": 1, "at": "y"}]


def test_csv_is_declared(world: World) -> None:
    world.cluster.produce("lines", [b"1;a", b"2;b"])
    world.ask("CREATE STREAM lines (n INT, name STRING) WITH (format='delimited', delimiter=';')")
    assert world.ask("SELECT sum(n) AS n, max(name) AS name FROM lines") == [{"n": 3, "name": "b"}]


def test_text_is_one_column(world: World) -> None:
    world.cluster.produce("log", [b"an error", b"all well"])
    assert world.ask("SELECT value FROM log WHERE value LIKE '%error%'") == [{"value": "an error"}]


def test_table_has_the_last_row_of_each_key_unless_it_was_deleted(world: World) -> None:
    values = [{"city": "Bonn"}, {"city": "Ulm"}, {"city": "Jena"}, None]
    world.cluster.produce("moves", values, keys=["a", "b", "a", "b"])
    world.ask("CREATE TABLE moves (who VARCHAR PRIMARY KEY, city VARCHAR) WITH (topic='moves', format='json')")
    assert world.ask("SELECT * FROM moves") == [{"who": "a", "city": "Jena"}]
    assert world.ask("SELECT count(*) AS n FROM moves WHERE _offset < 2") == [{"n": 0}]


def test_misfits_are_counted_or_stop_the_query(world: World) -> None:
    world.ask("DESCRIBE orders")
    world.cluster.produce("orders", [{"id": "none", "amount": 1}, b"nonsense"], partition=1)
    assert world.ask("SELECT count(id) AS n FROM orders") == [{"n": 10}]
    assert world.remarks[-1] == (
        "2 records do not fit and were left out; the first: orders partition 1 offset 5: id is no BIGINT"
    )
    world.ask("SET misfits = stop")
    told = world.refusal("SELECT id FROM orders")
    assert told == "a record does not fit: orders partition 1 offset 5: id is no BIGINT"


def test_empty_topic_has_no_rows(world: World) -> None:
    world.cluster.logs["empty"] = [[]]
    assert world.ask("SELECT * FROM empty") == []
    assert world.ask("SELECT count(*) AS n FROM empty") == [{"n": 0}]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("SELECT * FROM ordrs", "line 1, column 15: there is no topic ordrs; orders?\n  SELECT * FROM ordrs\n"),
        ("SELECT amnt FROM orders", "line 1, column 8: there is no column amnt; amount?\n  SELECT amnt FROM orders\n"),
        ("SELECT o._ofset FROM orders o", "there is no column _ofset; _offset?"),
        ("DESCRIBE ordrs", "there is no topic ordrs; orders?"),
        ("CREATE STREAM o WITH (topic='ordrs')", "there is no topic ordrs; orders?"),
        ("CREATE STREAM o WITH (topic='orders', formt='json')", "there is no option formt; format?"),
        ("CREATE STREAM o WITH (topic='orders', format='jsn')", "there is no format jsn; json?"),
        ("CREATE STREAM o (a INT) WITH (topic='orders', format='csv', delimiter='ab')", "a delimiter is one character"),
        ("CREATE STREAM o WITH (topic='orders', delimiter=';')", "delimiter is no option of format json"),
        ("CREATE STREAM o WITH (topic='orders', format='text', schema='a.avsc')", "schema is no option of format text"),
        ("CREATE STREAM o WITH (topic='orders', format='avro', message='M')", "message is no option of format avro"),
        ("CREATE STREAM o WITH (topic='orders', format='csv')", "CSV has no names of columns; declare them"),
        ("CREATE STREAM o WITH (topic='orders', partitions=3)", "the topic orders has 2 partitions, not 3"),
        ("CREATE STREAM o WITH (topic='new', format='json', partitions=3)", "this session makes no topics"),
        ("CREATE STREAM o WITH (topic='new', partitions='²')", "partitions is a number from 1 on, not ²"),
        ("CREATE STREAM o (a INT, A INT) WITH (topic='orders')", "o: the column A is declared twice"),
        ("CREATE STREAM o WITH (topic='orders', kafka_topic='empty')", "topic is given twice"),
        (
            "CREATE STREAM o WITH (topic='orders', format='avro', schema='/no.avsc')",
            "/no.avsc: No such file or directory",
        ),
        ("SELECT id FROM orders LIMIT -1", "LIMIT/OFFSET cannot be negative"),
        ("DROP STREAM o", "o is not declared"),
        ("SET misfit = 'stop'", "there is no option misfit; misfits?"),
        ("SET misfits = 'go'", "misfits is skip or stop, not go"),
        ("SELECT CAST('a' AS INT) AS n", "could not convert"),
        (
            "SELECT who, count(*) FROM orders GROUP BY who EMIT CHANGES",
            "EMIT CHANGES with GROUP BY is a standing query",
        ),
        ("SELECT count(*) FROM orders EMIT CHANGES", "EMIT CHANGES with an aggregate is a standing query"),
        ("SELECT 1 EMIT CHANGES", "EMIT CHANGES with a query over 0 topics is a standing query"),
        ("COPY orders FROM 'a.csv'", "COPY … FROM writes no topic: pybroker produce TOPIC --file FILE does"),
    ],
)
def test_what_is_wrong_is_said_with_the_nearest_name(world: World, text: str, told: str) -> None:
    assert told.lower() in world.refusal(text).lower()


def test_declaration_is_made_once(world: World) -> None:
    create = "STREAM o (id INT) WITH (topic='orders', format='json')"
    world.ask(f"CREATE {create}")
    world.ask(f"CREATE {create}")
    other = create.replace("id", "amount")
    assert "o is declared already" in world.refusal(f"CREATE {other}")
    world.ask("CREATE STREAM IF NOT EXISTS o (amount INT) WITH (topic='orders', format='json')")
    world.ask(f"CREATE OR REPLACE {create}")
    assert world.ask("SELECT max(id) AS id FROM o") == [{"id": 9}]


def test_exit_ends_a_text(world: World) -> None:
    with pytest.raises(End):
        world.session.run("EXIT; SELECT nonsense")


def test_rows_are_told_as_they_arrive(world: World) -> None:
    def produce() -> None:
        assert world.cluster.waits.wait(PATIENCE_S)
        world.cluster.produce(
            "orders", [{"id": 100, "amount": 7}, {"id": 101, "amount": 70}, {"id": 102, "amount": 71}]
        )

    producing = Thread(target=produce)
    producing.start()
    found = world.ask("SELECT id, _offset FROM orders WHERE amount > 50 EMIT CHANGES LIMIT 2")
    producing.join()
    assert found == [{"id": 101, "_offset": 6}, {"id": 102, "_offset": 7}]


def test_tail_begins_where_the_query_or_the_session_says(world: World) -> None:
    found = world.ask("SELECT id FROM orders WHERE _offset >= 3 AND _partition = 0 EMIT CHANGES LIMIT 2")
    assert found == [{"id": 3}, {"id": 4}]
    world.ask("SET 'auto.offset.reset' = 'earliest'")
    assert len(world.ask("SELECT id FROM orders EMIT CHANGES LIMIT 10")) == 10


def test_interruption_ends_a_query_and_a_tail_and_not_the_session(world: World) -> None:
    with pytest.raises(Interrupted):
        world.session.run("SELECT id FROM orders EMIT CHANGES", lambda: True)
    with pytest.raises(Interrupted):
        world.session.run("SELECT count(*) FROM range(10000000000) a", lambda: True)
    assert world.ask("SELECT count(*) AS n FROM orders") == [{"n": 10}]


def test_query_that_fails_in_the_middle_of_a_fetch_says_why(world: World) -> None:
    log = bytearray(world.cluster.logs["users"][0][0])
    world.ask("DESCRIBE users")
    log[-1] ^= 1
    world.cluster.logs["users"][0][0] = bytes(log)
    with pytest.raises(Exception, match="the batch at offset 0 has another checksum than it says"):
        world.session.run("SELECT who FROM users")


def test_query_beyond_its_memory_spills(world: World) -> None:
    world.engine.close()
    world.engine = Engine("64MB")
    session = Session(world.cluster, world.cluster.connect, world.engine, world.sheet, world.remarks.append)
    world.cluster.produce("long", [{"n": number, "pad": f"{number}" * 60} for number in range(100_000)])
    session.run("SELECT n, pad FROM long ORDER BY pad, n LIMIT 1 OFFSET 90000")
    (columns, rows) = world.sheet.tables[0]
    assert columns == ["n", "pad"]
    assert len(rows) == 1


def test_query_that_cannot_spill_is_refused_with_its_memory_and_the_next_one_is_answered(world: World) -> None:
    world.engine.close()
    world.engine = Engine("32MB")
    session = Session(world.cluster, world.cluster.connect, world.engine, world.sheet, world.remarks.append)
    world.cluster.produce("long", [{"n": number, "pad": f"{number}" * 60} for number in range(100_000)])
    with pytest.raises(SqlError, match=r"needs more than its 32MB of memory.*--memory"):
        session.run("SELECT len(list(pad)) AS n FROM long")
    session.run("SELECT count(*) AS n FROM long")
    assert world.sheet.tables[-1] == (["n"], [[100_000]])


def test_memory_that_is_no_size_is_refused() -> None:
    with pytest.raises(SqlError, match="--memory lots"):
        Engine("lots")


def test_help_lists_the_statements(world: World) -> None:
    assert len(world.ask("HELP")) > 5


def test_query_that_takes_long_shows_how_far_it_has_fetched_until_its_first_row(world: World) -> None:
    shown: list[tuple[int, int]] = []
    is_shown, is_over = Event(), Event()

    @contextmanager
    def show(total: int) -> Iterator[Callable[[int], None]]:
        def told(done: int) -> None:
            shown.append((done, total))
            is_shown.set()

        yield told
        is_over.set()

    @contextmanager
    def once_shown() -> Iterator[FakeCluster]:
        assert is_shown.wait(PATIENCE_S)
        yield world.cluster

    session = Session(world.cluster, once_shown, world.engine, world.sheet, world.remarks.append, show_progress=show)
    session.run("SELECT sum(id) AS total FROM orders")
    assert shown[0] == (0, 10)
    assert is_over.is_set()
    assert world.sheet.tables == [(["total"], [[45]])]


def written_by(world: World, text: str) -> list[tuple[str, list[tuple[bytes | None, bytes | None]]]]:
    changes = FakeChanges(world.cluster)
    session = Session(
        world.cluster, world.cluster.connect, world.engine, world.sheet, world.remarks.append, changes=changes
    )
    session.run(text)
    return [
        (topic, [(each.key, each.value) for each in records])
        for topic, records in changes.written
        if topic != session.kept.topic
    ]


def test_values_become_records_by_the_columns_that_are_declared(world: World) -> None:
    declared = "CREATE STREAM o (who VARCHAR KEY, id BIGINT, at TIMESTAMP) WITH (topic='orders', format='json');"
    found = written_by(world, f"{declared} INSERT INTO o VALUES ('ada', 40 + 2, '2026-01-31'), (NULL, 1, NULL)")
    records = [(b"ada", b'{"id":42,"at":"2026-01-31 00:00:00"}'), (None, b'{"id":1,"at":null}')]
    assert found == [("orders", records)]
    assert world.remarks[-1] == "2 records written to orders"


def test_values_of_a_topic_without_a_declaration_have_the_types_that_its_records_have(world: World) -> None:
    found = written_by(world, "INSERT INTO orders (_key, amount) VALUES (7, '12')")
    assert found == [("orders", [(b"7", b'{"amount":12}')])]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("INSERT INTO orders (amuont) VALUES (1)", "orders has no column amuont; amount?"),
        ("INSERT INTO orders (id) VALUES (1, 2)", "a row has a value for each column; columns: 1, values: 2"),
        ("INSERT INTO orders (id) VALUES ('x')", "could not convert string 'x' to INT64"),
        ("INSERT INTO ordrs VALUES (1)", "there is no topic ordrs; orders?"),
        (
            "CREATE TABLE t (k INT PRIMARY KEY, v INT) WITH (topic='orders', format='json'); "
            "INSERT INTO t (v) VALUES (1)",
            "a row of the table t has a key",
        ),
    ],
)
def test_values_that_do_not_fit_are_refused_and_nothing_is_written(world: World, text: str, why: str) -> None:
    with pytest.raises(SqlError, match=re.escape(why)):
        written_by(world, text)


def test_latest_record_of_a_join_is_that_of_the_topic_that_is_named(world: World) -> None:
    join = "FROM orders o JOIN users u ON o.who = u.who"
    question = f"SELECT u.city, latest_by_offset(o.id) AS last, earliest_by_offset(O.id) AS first {join}"
    rows = world.ask(f"{question} WHERE o._partition = 0 GROUP BY u.city ORDER BY 1")
    assert rows == [{"city": "Bonn", "last": 4, "first": 0}, {"city": "Ulm", "last": 3, "first": 1}]
    told = "latest_by_offset(id) over a join says whose record counts: latest_by_offset(o.…)"
    assert world.refusal(f"SELECT latest_by_offset(id) AS last {join}") == told


def test_mean_is_the_average(world: World) -> None:
    assert world.ask("SELECT mean(id) AS m FROM orders") == [{"m": 4.5}]
