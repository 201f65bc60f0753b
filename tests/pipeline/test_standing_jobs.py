"""Standing queries of SQL as jobs: what their statements say is what they write. Starts a JVM."""

import base64
import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import confluent_kafka
import pyarrow as pa
import pytest
from harness.waiting import wait_until

from pybroker.sql.parsing.queries import TableReference
from pybroker.sql.parsing.statements import CreateAs, statements
from pybroker.sql.relations.catalog import Column, Format, Relation
from pybroker.sql.standing.spark_plans import spark_plan
from pybroker.sql.standing.standing_plans import SparkPlan, WrittenValue
from pybroker.testing import Broker
from tests.cli.command import CommandLine

pytestmark = pytest.mark.jvm(needs="spark")

TOPICS = ("orders", "users", "levels", "written")
COLUMNS = (Column("id", "BIGINT", "id"), Column("who", "VARCHAR", "who"), Column("amount", "DOUBLE", "amount"))

AT = Column("at", "TIMESTAMP", "at")


def plan_of(text: str) -> SparkPlan:
    (found,) = statements(text)
    assert isinstance(found, CreateAs)
    return spark_plan(found.name, found.kind, found.select, relation_of)


def relation_of(reference: TableReference) -> Relation:
    """Names that begin so are tables."""
    name = reference.name
    if name.startswith("users"):
        return Relation(name, name, Format.JSON, (Column("city", "VARCHAR", "city"),), kind="TABLE")
    if name.startswith("levels"):
        columns = (Column("number", "BIGINT", "number", is_key=True), Column("level", "VARCHAR", "level"))
        return Relation(name, name, Format.JSON, columns, kind="TABLE")
    if name == "lines":
        return Relation(name, name, Format.CSV, (*COLUMNS, AT), options={"delimiter": ";"})
    if name == "numbers":
        return Relation(name, name, Format.TEXT, (Column("n", "BIGINT", "n"),))
    return Relation(name, name, Format.JSON, COLUMNS)


def job_of(text: str, value: WrittenValue | None = None) -> Any:
    from pybroker.sql.standing.standing_jobs import standing_job

    (found,) = statements(text)
    assert isinstance(found, CreateAs)
    return standing_job(replace(plan_of(text), value=value or WrittenValue()), found.name)


def order(number: int, who: str, amount: float, at: str) -> Any:
    from pybroker.pipeline.testing import Record

    return Record(None, json.dumps({"id": number, "who": who, "amount": amount}), f"2026-01-01T12:{at}Z")


def written(driver: Any, topic: str) -> list[tuple[str | None, dict[str, Any]]]:
    return [(key, json.loads(value)) for key, value in driver.read_pairs(topic, bytes.decode)]


def test_stream_has_the_rows_that_its_query_chooses(drive: Any) -> None:
    driver = drive(job_of("CREATE STREAM big AS SELECT *, upper(who) AS up FROM o WHERE amount > 5 PARTITION BY who"))
    driver.pipe("o", order(1, "ada", 7, "00:00"), order(2, "bob", 3, "00:01"))
    assert written(driver, "big") == [("ada", {"id": 1, "who": "ada", "amount": 7.0, "up": "ADA"})]


def test_a_column_keeps_its_name_whatever_characters_it_has(drive: Any) -> None:
    driver = drive(job_of('CREATE STREAM odd AS SELECT id AS "a`b.c", who FROM o PARTITION BY who'))
    driver.pipe("o", order(1, "ada", 7, "00:00"))
    assert written(driver, "odd") == [("ada", {"a`b.c": 1, "who": "ada"})]


def test_line_of_csv_has_its_columns_by_their_places(drive: Any) -> None:
    from pybroker.pipeline.testing import Record

    driver = drive(job_of("CREATE STREAM s AS SELECT at, id + 1 AS next, who FROM lines"))
    lines = ['1;"a; b";2.5;2026-01-31 12:00:00', "2;;;", "3;x", "x;y;;", "4;z;1e3;2026-13-01 00:00:00"]
    driver.pipe("lines", *(Record(None, line) for line in lines))
    assert [row for _, row in written(driver, "s")] == [
        {"at": "2026-01-31 12:00:00.000", "next": 2, "who": "a; b"},
        {"at": None, "next": 3, "who": None},
    ]


def test_text_that_is_no_number_does_not_fit_a_column_of_numbers(drive: Any) -> None:
    from pybroker.pipeline.testing import Record

    driver = drive(job_of("CREATE STREAM s AS SELECT n * 2 AS twice FROM numbers"))
    driver.pipe("numbers", *(Record(None, text) for text in ("7", "seven", None)))
    assert [row for _, row in written(driver, "s")] == [{"twice": 14}, {"twice": None}]


def test_row_is_as_a_question_shows_it(drive: Any) -> None:
    """Names as they are declared, timestamps with milliseconds or microseconds, and DuckDB's functions of lists."""
    driver = drive(
        job_of(
            "CREATE STREAM s AS SELECT ID, WHO AS Name, CAST('2026-01-31 12:00:00' AS TIMESTAMP) AS at, "
            "{'t': [TIMESTAMP '2026-01-31 12:00:00.000123', NULL]} AS inside, MAP {'a': _timestamp} AS by_name, "
            "unnest([id, 7]) AS item, list_extract([id], 1) AS one, list_slice([id, 7], 2, 2) AS some, "
            "list_reduce([id, 7], lambda a, b: a + b) AS total, list_reduce([id], lambda a, b: a + b) AS alone "
            "FROM o PARTITION BY Id, At"
        )
    )
    driver.pipe("o", order(1, "ada", 7, "00:00"))
    at = "2026-01-31 12:00:00.000"
    key = {"id": 1, "at": at}
    row = {
        **{"id": 1, "Name": "ada", "at": at, "inside": {"t": ["2026-01-31 12:00:00.000123", None]}},
        **{"by_name": {"a": "2026-01-01 12:00:00.000"}, "one": 1, "some": [7], "total": 8, "alone": 1},
    }
    found = [(json.loads(key or ""), value) for key, value in written(driver, "s")]
    assert [each for each, _ in found] == [key] * 2
    assert sorted(value.pop("item") for _, value in found) == [1, 7]
    assert [value for _, value in found] == [row] * 2


def test_stream_has_the_aggregates_that_refusals_name(drive: Any) -> None:
    from pybroker.sql.parsing.aggregates import STREAMS_HAVE

    of_amounts = (
        *("count", "sum", "avg", "min", "max", "median", "mode", "stddev", "variance", "any_value", "first", "last"),
        *("latest_by_offset", "earliest_by_offset", "count_distinct"),
    )
    calls = {name: f"{name}(amount)" for name in of_amounts}
    calls |= {name: f"{name}(amount, id)" for name in ("corr", "covar_pop", "covar_samp", "regr_slope")}
    calls |= {name: f"{name}(id, amount)" for name in ("arg_max", "arg_min")}
    calls |= {name: f"{name}(id > 1)" for name in ("count_if", "bool_and", "bool_or")}
    calls |= {name: f"{name}(id)" for name in ("bit_and", "bit_or", "bit_xor")}
    calls |= {"lists": "list_sort(list(amount))", "approx_quantile": "approx_quantile(amount, 0.5)"}
    calls |= {"string_agg": "string_agg(who, ',')"} | {name: f"{name}(amount, 2)" for name in ("topk", "topkdistinct")}
    assert set(calls) == set(STREAMS_HAVE.split(", "))
    columns = ", ".join(f"{call} AS c_{name}" for name, call in calls.items())
    driver = drive(job_of(f"CREATE TABLE t AS SELECT who, {columns}, list(DISTINCT id) AS ids FROM o GROUP BY who"))
    driver.pipe("o", *(order(number, "ada", 10 * number, f"00:0{number}") for number in (1, 2, 3)))
    ((_, row),) = written(driver, "t")
    assert {name: row[f"c_{name}"] for name in ("sum", "median", "stddev", "arg_max", "count_if", "bit_xor")} == {
        **{"sum": 60.0, "median": 20.0, "stddev": 10.0, "arg_max": 3, "count_if": 2, "bit_xor": 0}
    }
    assert row["c_topk"] == row["c_topkdistinct"] == [30.0, 20.0]
    assert (row["c_lists"], row["c_latest_by_offset"], sorted(row["ids"])) == ([10.0, 20.0, 30.0], 30.0, [1, 2, 3])


def test_functions_that_spark_is_said_to_have_are_there(spark: Any) -> None:
    from pybroker.sql.parsing.spark_functions import FUNCTIONS

    there = {row[0] for row in spark.sql("SHOW FUNCTIONS").collect()}
    assert FUNCTIONS - there == {"timestampadd", "timestampdiff", "try_cast"}


def test_table_has_each_key_s_last_row(drive: Any) -> None:
    text = "CREATE TABLE t AS SELECT who, count(*) AS n, latest_by_offset(amount) AS last FROM o GROUP BY who"
    driver = drive(job_of(text))
    driver.pipe("o", order(1, "ada", 7, "00:00"), order(2, "bob", 3, "00:01"))
    driver.pipe("o", order(3, "ada", 9, "00:02"))
    rows = dict(written(driver, "t"))
    assert rows == {"ada": {"who": "ada", "n": 2, "last": 9.0}, "bob": {"who": "bob", "n": 1, "last": 3.0}}


def test_window_that_is_final_is_told_once_it_is_over(drive: Any) -> None:
    text = (
        "CREATE TABLE t AS SELECT who, count(*) AS n FROM o WINDOW TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 30 SECONDS) "
        "GROUP BY who EMIT FINAL"
    )
    driver = drive(job_of(text))
    driver.pipe("o", order(1, "ada", 7, "00:10"), order(2, "ada", 3, "00:50"), order(3, "ada", 1, "01:10"))
    driver.pipe("o", order(4, "ada", 7, "02:00"))
    ((key, row),) = written(driver, "t")
    assert key is not None
    assert json.loads(key) == {"who": "ada", "window_start": "2026-01-01 12:00:00.000"}
    assert (row["n"], row["window_end"]) == (2, "2026-01-01 12:01:00.000")


def test_session_ends_with_its_gap(drive: Any) -> None:
    text = (
        "CREATE TABLE t AS SELECT who, count(*) AS n FROM o WINDOW SESSION (60 SECONDS, GRACE PERIOD 1 SECOND) "
        "GROUP BY who"
    )
    driver = drive(job_of(text))
    driver.pipe("o", order(1, "ada", 7, "00:10"), order(2, "ada", 3, "00:50"), order(3, "bob", 1, "01:10"))
    driver.pipe("o", order(4, "bob", 7, "05:00"))
    found = {
        row["who"]: (row["n"], row["window_start"][11:19], row["window_end"][11:19]) for _, row in written(driver, "t")
    }
    assert found == {"ada": (2, "12:00:10", "12:01:50"), "bob": (1, "12:01:10", "12:02:10")}


def test_streams_are_joined_within_a_time(drive: Any) -> None:
    text = (
        "CREATE STREAM j AS SELECT a.id, b.who AS other FROM a JOIN b WITHIN (1 MINUTE, 2 MINUTES) ON a.id = b.id "
        "PARTITION BY a.id"
    )
    driver = drive(job_of(text))
    driver.pipe("a", order(1, "ada", 7, "05:00"), order(2, "ada", 7, "05:00"), order(3, "ada", 7, "05:00"))
    driver.pipe("b", order(1, "near", 1, "06:59"), order(2, "late", 1, "07:01"), order(3, "early", 1, "03:59"))
    assert written(driver, "j") == [("1", {"id": 1, "other": "near"})]


def test_record_is_in_each_window_that_hops_over_it(drive: Any) -> None:
    text = (
        "CREATE TABLE t AS SELECT who, count(*) AS n FROM o "
        "WINDOW HOPPING (SIZE 2 MINUTES, ADVANCE BY 1 MINUTE, GRACE PERIOD 1 MINUTE) GROUP BY who"
    )
    driver = drive(job_of(text))
    driver.pipe("o", order(1, "ada", 7, "01:10"), order(2, "ada", 3, "02:50"), order(3, "bob", 1, "01:59"))
    driver.pipe("o", order(4, "ada", 7, "02:20"))
    found = {
        (row["who"], row["window_start"][14:19], row["window_end"][14:19]): row["n"] for _, row in written(driver, "t")
    }
    assert found == {
        ("ada", "00:00", "02:00"): 1,
        ("ada", "01:00", "03:00"): 3,
        ("ada", "02:00", "04:00"): 2,
        ("bob", "00:00", "02:00"): 1,
        ("bob", "01:00", "03:00"): 1,
    }


@pytest.mark.parametrize(("how", "others"), [("LEFT", []), ("FULL OUTER", [(None, "lone")])])
def test_row_that_meets_none_in_time_comes_once_when_its_time_is_over(
    drive: Any, how: str, others: list[tuple[int | None, str]]
) -> None:
    text = (
        f"CREATE STREAM j AS SELECT a.id, b.who AS other FROM a {how} JOIN b "
        "WITHIN 1 MINUTE GRACE PERIOD 1 SECOND ON a.id = b.id"
    )
    driver = drive(job_of(text))
    driver.pipe("a", order(1, "ada", 7, "05:00"), order(2, "ada", 7, "05:00"))
    driver.pipe("b", order(1, "near", 1, "05:30"), order(9, "lone", 1, "05:30"))
    assert [row for _, row in written(driver, "j")] == [{"id": 1, "other": "near"}]
    for at in ("20:00", "21:00"):
        driver.pipe("a", order(50, "late", 1, at))
        driver.pipe("b", order(50, "late", 1, at))
    rows = [(row["id"], row["other"]) for _, row in written(driver, "j") if row["id"] != 50]
    assert sorted(rows, key=str) == sorted([(2, None), *others], key=str)


def user(name: str, city: str | None, at: str) -> Any:
    from pybroker.pipeline.testing import Record

    return Record(name, None if city is None else json.dumps({"city": city}), f"2026-01-01T12:{at}Z")


def test_record_meets_the_row_that_a_table_has_for_its_key_when_it_comes(drive: Any) -> None:
    text = "CREATE STREAM j AS SELECT o.id, u.city FROM o JOIN users u ON o.who = u._key PARTITION BY o.id"
    driver = drive(job_of(text))
    driver.pipe("users", user("ada", "Bonn", "00:00"), user("bob", "Ulm", "00:00"), user("bob", None, "00:01"))
    driver.pipe("o", order(1, "ada", 7, "01:00"), order(2, "bob", 7, "01:00"), order(3, "eve", 7, "01:00"))
    driver.pipe("users", user("ada", "Jena", "02:00"))
    driver.pipe("o", order(4, "ada", 7, "03:00"))
    rows = [("1", {"id": 1, "city": "Bonn"}), ("4", {"id": 4, "city": "Jena"})]
    assert written(driver, "j") == rows


def test_left_join_keeps_records_without_a_row_and_goes_on_to_the_next_table(drive: Any) -> None:
    from pybroker.pipeline.testing import Record

    text = (
        "CREATE STREAM j AS SELECT o.*, city, upper(l.level) AS level FROM o LEFT JOIN users u ON o.who = u._key "
        "JOIN levels l ON o.id = l.number WHERE o.amount > 1 PARTITION BY o.id"
    )
    driver = drive(job_of(text))
    levels = [Record(str(number), json.dumps({"level": f"l{number}"}), "2026-01-01T12:00:00Z") for number in range(3)]
    driver.pipe_all({"users": [user("ada", "Bonn", "00:00")], "levels": levels})
    orders = [order(number, who, number, "01:00") for number, who in enumerate(("ada", "bob", "bob", "ada"))]
    driver.pipe("o", *orders)
    row = {"id": 2, "who": "bob", "amount": 2.0, "city": None, "level": "L2"}
    assert written(driver, "j") == [("2", row)]


def test_key_that_is_compared_with_another_type_is_refused(drive: Any) -> None:
    with pytest.raises(ValueError, match=r"ON o.amount = … compares double with a key, which is BIGINT: CAST it"):
        drive(job_of("CREATE STREAM j AS SELECT o.id FROM o JOIN levels l ON o.amount = l.number"))


ROW = pa.schema(
    [("who", pa.string()), ("n", pa.int64()), ("total", pa.float64()), ("days", pa.list_(pa.int32()))]
    + [(edge, pa.timestamp("us", "UTC")) for edge in ("window_start", "window_end")]
)
COUNTED = (
    "CREATE TABLE t AS SELECT who, count(*) AS n, nullif(sum(amount), 0) AS total, "
    "collect_list(day(_timestamp)) AS days FROM o WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY who"
)


def counted_rows(driver: Any, read: Any) -> list[tuple[str, int, float | None, list[int], int]]:
    """All that was written, of three records: the last field is the seconds of the window's end."""
    driver.pipe("o", order(1, "ada", 7, "00:10"), order(2, "ada", 3, "00:20"), order(3, "bob", 0, "01:00"))
    cells = pa.array([read(value) for _, value in driver.read_pairs("t", bytes)], pa.struct(list(ROW))).to_pylist()
    length = [(cell["window_end"] - cell["window_start"]).seconds for cell in cells]
    return sorted((c["who"], c["n"], c["total"], c["days"], seconds) for c, seconds in zip(cells, length, strict=True))


COUNTED_ROWS = [("ada", 2, 10.0, [1, 1], 60), ("bob", 1, None, [1], 60)]


def test_rows_are_written_as_avro(drive: Any) -> None:
    from pybroker.values.avro_schemas import avro_schema
    from pybroker.values.avro_values import Reader

    schema = json.dumps(avro_schema(ROW, "t"))
    driver = drive(job_of(COUNTED, WrittenValue(Format.AVRO, {"schema": schema})))
    assert counted_rows(driver, Reader(schema, None, None)) == COUNTED_ROWS


def test_rows_are_written_as_protobuf(drive: Any) -> None:
    from pybroker.values.protobuf_schemas import protobuf_schema
    from pybroker.values.protobuf_values import Definition, Reader

    files, message = protobuf_schema(ROW, "t")
    options = {"schema": "base64," + base64.b64encode(files).decode(), "message": message}
    driver = drive(job_of(COUNTED, WrittenValue(Format.PROTOBUF, options)))
    assert counted_rows(driver, Reader(Definition((files, message)))) == COUNTED_ROWS


def test_row_is_cast_to_the_types_of_its_schema_and_its_key_need_not_be_a_field(drive: Any) -> None:
    from pybroker.values.avro_values import Reader

    price = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    fields = [{"name": "ID", "type": "int"}, {"name": "amount", "type": price}]
    fields.append({"name": "note", "type": "string", "default": "-"})
    schema = json.dumps({"type": "record", "name": "r", "fields": fields})
    text = "CREATE STREAM s AS SELECT id, amount, who FROM o PARTITION BY who"
    driver = drive(job_of(text, WrittenValue(Format.AVRO, {"schema": schema})))
    driver.pipe("o", order(1, "ada", 7.25, "00:00"))
    ((key, value),) = driver.read_pairs("s", bytes)
    assert (key, Reader(schema, None, None)(value)) == ("ada", {"ID": 1, "amount": Decimal("7.25"), "note": "-"})


def test_table_of_a_join_is_read_whole_where_the_stream_begins_at_its_end(
    spark: Any, pybroker: Broker, tmp_path: Path
) -> None:
    """Each record that comes has one row, and those from before have none."""
    from pybroker.pipeline import BrokerTopics
    from pybroker.sql.standing.standing_runs import start_standing

    orders, users, joined = (f"{name}_{uuid4().hex[:8]}" for name in ("orders", "users", "joined"))
    for name in (orders, users, joined):
        pybroker.create_topic(name, partitions=2)
    cli = CommandLine(pybroker.bootstrap)

    def send(first: int) -> None:
        lines = "".join(f'{{"id": {n}, "who": "w{n % 10}", "amount": 1}}\n' for n in range(first, first + 50))
        cli.ok("produce", orders, stdin=lines.encode())

    cities = "".join(f'w{n}\t{{"city": "c{n}"}}\n' for n in range(20))
    cli.ok("produce", users, "-K", "\t", stdin=cities.encode())
    send(0)
    plan = plan_of(f"CREATE STREAM {joined} AS SELECT o.id, u.city FROM {orders} o JOIN {users} u ON o.who = u._key")
    options = {"startingOffsets": "latest", "maxOffsetsPerTrigger": "7"}
    for run in range(1, 3):
        running = start_standing(plan, joined, BrokerTopics(spark, pybroker.bootstrap, options), tmp_path)
        running.process_all()
        send(50 * run)
        running.process_all()
        assert running.failure is None
        running.stop()
    question = f"SELECT count(*) AS n, count(DISTINCT id) AS ids, min(id) AS first, count(city) AS cities FROM {joined}"
    (found,) = [json.loads(line) for line in cli.lines("sql", "--json", "-e", question)]
    assert found == {"n": 100, "ids": 100, "first": 50, "cities": 100}


def test_standing_query_goes_on_where_it_was_stopped(spark: Any, pybroker: Broker, tmp_path: Path) -> None:
    """However often it is stopped, its table is what the question over all records answers."""
    from pybroker.pipeline import BrokerTopics
    from pybroker.sql.standing.standing_runs import start_standing

    orders, totals = f"orders_{uuid4().hex[:8]}", f"totals_{uuid4().hex[:8]}"
    for name in (orders, totals):
        pybroker.create_topic(name, partitions=2)
    cli = CommandLine(pybroker.bootstrap)
    plan = plan_of(
        f"CREATE TABLE {totals} AS SELECT who, count(*) AS n, sum(amount) AS total FROM {orders} GROUP BY who"
    )
    for run in range(3):
        lines = "".join(f'{{"id": {n}, "who": "{"abc"[n % 3]}", "amount": {n * run}}}\n' for n in range(50))
        cli.ok("produce", orders, stdin=lines.encode())
        running = start_standing(plan, totals, BrokerTopics(spark, pybroker.bootstrap), tmp_path)
        running.process_all()
        assert running.failure is None
        running.stop()
    columns = "who, n, total"
    question = f"SELECT who, count(*) AS n, sum(amount) AS total FROM {orders} GROUP BY who ORDER BY who"
    table = f"CREATE TABLE t WITH (topic='{totals}', format='json'); SELECT {columns} FROM t ORDER BY who"
    found = [json.loads(line) for line in cli.lines("sql", "--json", "-e", table)]
    assert found == [json.loads(line) for line in cli.lines("sql", "--json", "-e", question)]
    assert [row["n"] for row in found] == [51, 51, 48]


def test_query_that_fails_says_why(spark: Any, pybroker: Broker, tmp_path: Path) -> None:
    from pybroker.pipeline import BrokerTopics
    from pybroker.sql.standing.standing_runs import start_standing

    orders, broken = f"orders_{uuid4().hex[:8]}", f"broken_{uuid4().hex[:8]}"
    for name in (orders, broken):
        pybroker.create_topic(name)
    CommandLine(pybroker.bootstrap).ok("produce", orders, stdin=b'{"id": 1, "who": "ada", "amount": 1}\n')
    plan = plan_of(f"CREATE STREAM {broken} AS SELECT raise_error('no ' || who) AS x FROM {orders}")
    running = start_standing(plan, broken, BrokerTopics(spark, pybroker.bootstrap), tmp_path)
    with pytest.raises(Exception, match="no ada"):
        running.process_all()
    assert running.failure is not None
    assert "no ada" in running.failure
    running.stop()


def sent(broker: Broker, topic: str, *records: tuple[bytes | None, bytes | None]) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    for key, value in records:
        producer.produce(topic, value, key, partition=0)
    assert producer.flush(30) == 0


MISFITS = [
    ("CREATE STREAM {w} AS SELECT id, who FROM {o}", 2, "at 1: value: "),
    ("CREATE TABLE {w} AS SELECT who, count(*) AS n FROM {o} GROUP BY who", 1, "at 1: value: "),
    ("CREATE STREAM {w} AS SELECT o.id, u.city FROM {o} o LEFT JOIN {u} u ON o.who = u._key", 2, "at 1: value: "),
    ("CREATE TABLE {w} AS SELECT city FROM {u}", 1, "at 1: key: a row of a table has one"),
    ("CREATE TABLE {w} AS SELECT number + 1 AS next FROM {l}", 1, "at 1: key: seven is no BIGINT"),
]


@pytest.mark.parametrize(("text", "count", "first"), MISFITS)
def test_records_that_do_not_fit_are_left_out_and_counted_and_the_first_is_told(
    spark: Any, pybroker: Broker, tmp_path: Path, text: str, count: int, first: str
) -> None:
    from pybroker.pipeline import BrokerTopics
    from pybroker.sql.standing.standing_runs import start_standing

    names = {short: f"{long}_{uuid4().hex[:8]}" for short, long in zip("oulw", TOPICS, strict=True)}
    for name in names.values():
        pybroker.create_topic(name)
    row = (None, b'{"id": 1, "who": "ada", "amount": 1}')
    sent(pybroker, names["o"], row, (None, b"no json"), row, (None, b'{"id": "x"}'), row)
    sent(pybroker, names["u"], (b"ada", b'{"city": "Ulm"}'), (None, b'{"city": "Bonn"}'))
    sent(pybroker, names["l"], (b"7", b'{"level": "a"}'), (b"seven", b'{"level": "b"}'))
    plan = plan_of(text.format(**names))
    running = start_standing(plan, names["w"], BrokerTopics(spark, pybroker.bootstrap), tmp_path / "skips")
    running.process_all()
    wait_until(lambda: running.remark is not None, "a remark")
    assert running.failure is None
    assert running.remark is not None
    topic = plan.sources[0].topic
    assert f"{count} of {topic}, first {topic}-0 {first}" in running.remark
    sent(pybroker, topic, (None, b"no json"))
    running.process_all()
    wait_until(lambda: f"{count + 1} of {topic}, first {topic}-0 {first}" in str(running.remark), "the next is counted")
    running.stop()
    strict = replace(plan, sources=tuple(replace(each, stops=True) for each in plan.sources))
    stopped = start_standing(strict, names["w"], BrokerTopics(spark, pybroker.bootstrap), tmp_path / "stops")
    with pytest.raises(Exception, match="does not fit"):
        stopped.process_all()
    assert str(stopped.failure).startswith(f"a record does not fit: {topic}-0 {first}")
    assert "SQLSTATE" not in str(stopped.failure)
    stopped.stop()
