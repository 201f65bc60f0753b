"""Standing queries over values that say their own time, or that a schema registry describes.  Starts a JVM."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from pybroker.sql.parsing.statements import CreateAs, statements
from pybroker.sql.relations.catalog import Column, Format, Relation
from pybroker.sql.standing.spark_plans import spark_plan
from pybroker.sql.standing.standing_plans import WrittenValue
from pybroker.values.avro_values import Reader
from pybroker.values.registry_header import Header, header_of
from tests.sql.registry_server import FIRST, SECOND, RegistryServer, written

pytestmark = pytest.mark.jvm(needs="spark")


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with RegistryServer() as server:
        yield server


def job_of(text: str, relation: Relation, value: WrittenValue | None = None) -> Any:
    from pybroker.sql.standing.standing_jobs import standing_job

    (found,) = statements(text)
    assert isinstance(found, CreateAs)
    plan = spark_plan(found.name, found.kind, found.select, lambda _: relation)
    return standing_job(replace(plan, value=value or WrittenValue()), found.name)


def timed(kind: str, **options: str) -> Relation:
    columns = (Column("ts", kind, "ts"), Column("v", "INTEGER", "v"))
    return Relation("s", "s", Format.JSON, columns, options={"timestamp": "ts", **options})


def piped(driver: Any, *rows: dict[str, Any]) -> None:
    from pybroker.pipeline.testing import Record

    driver.pipe("s", *(Record(None, json.dumps(row), "2026-01-01T00:00:00Z") for row in rows))


@pytest.mark.parametrize(
    ("relation", "times"),
    [
        (timed("VARCHAR", timestamp_format="dd.MM.yyyy HH:mm:ss"), ["31.01.2026 10:00:10", "31.01.2026 10:01:10"]),
        (timed("VARCHAR"), ["2026-01-31 10:00:10", "2026-01-31T10:01:10Z"]),
        (timed("BIGINT"), [1_769_853_610_000, 1_769_853_670_000]),
        (timed("TIMESTAMP"), ["2026-01-31 10:00:10", "2026-01-31 10:01:10"]),
    ],
    ids=("pattern", "text", "ms", "timestamp"),
)
def test_window_counts_by_the_time_that_a_column_says(drive: Any, relation: Relation, times: list[Any]) -> None:
    text = "CREATE TABLE t AS SELECT v, count(*) AS n FROM s WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY v"
    driver = drive(job_of(text, relation))
    piped(driver, *({"ts": each, "v": 1} for each in times), {"v": 1})
    starts = sorted(value["window_start"] for _, value in driver.read_pairs("t"))
    assert starts == ["2026-01-31 10:00:00.000", "2026-01-31 10:01:00.000"]


def test_record_that_is_written_has_the_time_of_the_one_that_it_is_made_of(drive: Any) -> None:
    """One that is to come a broker might refuse."""
    driver = drive(job_of("CREATE STREAM t AS SELECT v FROM s WHERE v < 3", timed("BIGINT")))
    piped(driver, {"ts": 1_577_872_800_000, "v": 1}, {"ts": 4_000_000_000_000, "v": 2})
    times = {record.json["v"]: record.timestamp for record in driver.read("t")}
    assert times == {1: 1_577_872_800_000, 2: None}


def test_value_of_avro_is_read_by_the_schema_of_its_id_and_written_with_one(
    drive: Any, registry: RegistryServer
) -> None:
    from pybroker.pipeline.testing import Record

    first, second = (registry.register("s-value", json.dumps(each)) for each in (FIRST, SECOND))
    options = {"schema": json.dumps(SECOND), "registry_header": str(second), "schema.registry.url": registry.url}
    columns = (Column("note", "VARCHAR", "note"), Column("id", "BIGINT", "id"))
    value = WrittenValue(Format.AVRO, {"schema": json.dumps(FIRST), "registry_header": "7"})
    text = "CREATE STREAM t AS SELECT id FROM s WHERE note IS NULL OR note = 'new'"
    driver = drive(job_of(text, Relation("s", "s", Format.AVRO, columns, options=options), value))
    values = [
        *(written(first, FIRST, {"id": 1}), written(second, SECOND, {"note": "new", "id": 2})),
        *(written(99, FIRST, {"id": 3}), b"no header"),
    ]
    driver.pipe("s", *(Record(None, each) for each in values))
    read = Reader(json.dumps(FIRST), None, Header(7))
    assert sorted(read(each)["id"] for _, each in driver.read_pairs("t", bytes)) == [1, 2]
    assert registry.asked.count(f"GET /schemas/ids/{first}") >= 1


def test_json_behind_a_header_is_read_and_other_values_do_not_fit(drive: Any) -> None:
    from pybroker.pipeline.testing import Record

    relation = Relation("s", "s", Format.JSON, (Column("v", "INTEGER", "v"),), options={"registry_header": "true"})
    driver = drive(job_of("CREATE STREAM t AS SELECT v, _offset AS at FROM s", relation))
    values = (header_of(5) + b'{"v": 1}', b'{"v": 2}', header_of(6) + b"x", None)
    driver.pipe("s", *(Record(None, each) for each in values))
    assert [value for _, value in driver.read_pairs("t")] == [{"v": 1, "at": 0}, {"v": None, "at": 3}]


def test_json_of_ksqldb_has_times_as_numbers_and_bytes_as_base64(drive: Any) -> None:
    """Milliseconds and days from 1970 on; texts are read, too, and what is neither leaves its record out."""
    kinds = {"t": "TIMESTAMP", "d": "DATE", "b": "BLOB", "s": "STRUCT(t TIMESTAMP, l DATE[], m MAP(VARCHAR, DATE))"}
    relation = Relation("s", "s", Format.JSON, tuple(Column(name, kind, name) for name, kind in kinds.items()))
    text = "CREATE STREAM t AS SELECT t, d, b, s.t AS u, s.l[1] AS l, s.m['x'] AS m, decode(b) AS word FROM s"
    driver = drive(job_of(text, relation))
    nested = {"t": 1_769_868_000_123, "l": [18_718, None], "m": {"x": 1}}
    misfits: tuple[dict[str, Any], ...] = (
        *({"t": 2**63 - 1}, {"t": 1.5}, {"t": True}, {"d": "x"}, {"d": 10**12}, {"b": "hi"}),
        *({"s": {"t": "x"}}, {"s": {"l": [1, "x"]}}, {"s": {"m": {"x": []}}}),
    )
    piped(
        driver,
        *misfits,
        {"t": 1_769_868_000_123, "d": 18_718, "b": "aGk=", "s": nested},
        {"t": "2026-01-31T14:00:00.123Z", "d": "2021-04-01", "b": "aGk=", "s": {**nested, "l": ["2021-04-01"]}},
        {"t": None},
    )
    at = "2026-01-31 14:00:00.123"
    row = {"t": at, "d": "2021-04-01", "b": "aGk=", "u": at, "l": "2021-04-01", "m": "1970-01-02", "word": "hi"}
    assert [value for _, value in driver.read_pairs("t")] == [row, row, dict.fromkeys(row)]


def test_texts_are_numbers_where_a_question_takes_them_for_such(drive: Any) -> None:
    """Spark's own casts take ``1d`` for a double, and years for dates."""
    from pybroker.pipeline.testing import Record

    kinds = {"k": "INTEGER", "n": "INTEGER", "v": "DOUBLE", "is_so": "BOOLEAN", "at": "TIMESTAMP", "d": "DATE"}
    columns = tuple(Column(name, kind, name, name == "k") for name, kind in kinds.items())
    driver = drive(job_of("CREATE STREAM t AS SELECT * FROM s", Relation("s", "s", Format.CSV, columns)))
    wrong = ["0x1F,,,,", "1_000,,,,", "5.5,,,,", ",1d,,,", ",0x1p3,,,", ",1_0.5,,,", ",, true ,,"]
    wrong += [",,,-9223372036854775808,", ",,,,20260131"]
    rows = [" +7 ,1.5e3,TRUE,1769868000123,18718", "-7,.5,no,2026-01-31 14:00:00.123,2021-04-01"]
    driver.pipe("s", *(Record(b"1", each.encode()) for each in (*wrong, *rows)), Record(b"0x1F", b",,,,"))
    same = {"at": "2026-01-31 14:00:00.123", "d": "2021-04-01"}
    assert [value for _, value in driver.read_pairs("t")] == [
        {"k": 1, "n": 7, "v": 1500.0, "is_so": True, **same},
        {"k": 1, "n": -7, "v": 0.5, "is_so": False, **same},
    ]
