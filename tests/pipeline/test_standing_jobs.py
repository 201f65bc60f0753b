"""Standing queries of SQL as jobs: what their statements say is what they write. Starts a JVM."""

import json
from typing import Any

import pytest

from pybroker.sql.catalog import Column, Format, Relation
from pybroker.sql.spark_plans import spark_plan
from pybroker.sql.statements import CreateAs, statements

pytestmark = pytest.mark.jvm(needs="spark")

COLUMNS = (Column("id", "BIGINT", "id"), Column("who", "VARCHAR", "who"), Column("amount", "DOUBLE", "amount"))


def job_of(text: str) -> Any:
    from pybroker.sql.standing_jobs import standing_job

    (found,) = statements(text)
    assert isinstance(found, CreateAs)
    plan = spark_plan(
        found.name, found.kind, found.select, lambda each: Relation(each.name, each.name, Format.JSON, COLUMNS)
    )
    return standing_job(plan, found.name)


def order(number: int, who: str, amount: float, at: str) -> Any:
    from pybroker.pipeline.testing import Record

    return Record(None, json.dumps({"id": number, "who": who, "amount": amount}), f"2026-01-01T12:{at}Z")


def written(driver: Any, topic: str) -> list[tuple[str | None, dict[str, Any]]]:
    return [(key, json.loads(value)) for key, value in driver.read_pairs(topic, bytes.decode)]


def test_stream_has_the_rows_that_its_query_chooses(drive: Any) -> None:
    driver = drive(job_of("CREATE STREAM big AS SELECT *, upper(who) AS up FROM o WHERE amount > 5 PARTITION BY who"))
    driver.pipe("o", order(1, "ada", 7, "00:00"), order(2, "bob", 3, "00:01"))
    assert written(driver, "big") == [("ada", {"id": 1, "who": "ada", "amount": 7.0, "up": "ADA"})]


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
