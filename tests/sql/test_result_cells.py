"""Values that Python or Arrow has no room for are printed, as DuckDB spells them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

import pytest

from pybroker.sql.questions.row_output import OutputForm
from pybroker.sql.unwanted_imports import without_pandas
from tests.sql.fake_cluster import NOON_MS
from tests.sql.test_session import World


@pytest.fixture
def world() -> Iterator[World]:
    found = World()
    yield found
    found.engine.close()


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("'infinity'::TIMESTAMP", "infinity"),
        ("'-infinity'::TIMESTAMPTZ", "-infinity"),
        ("'infinity'::DATE", "infinity"),
        ("'12345-01-01'::DATE", "12345-01-01"),
        ("'0044-03-15 (BC)'::DATE", "0044-03-15 (BC)"),
        ("'12345-01-01 10:00:00'::TIMESTAMP", "12345-01-01 10:00:00"),
        ("'2026-01-01 00:00:00.123456789'::TIMESTAMP_NS", "2026-01-01 00:00:00.123456789"),
        ("'2026-01-01 00:00:00.123'::TIMESTAMP_NS", "2026-01-01 00:00:00.123"),
        ("'101'::BIT", "101"),
        ("'12:00:00+02'::TIMETZ", "12:00:00+02"),
        ("'24:00:00'::TIME", "24:00:00"),
        ("'12:30:00'::TIME", "12:30:00"),
        ("NULL::TIMESTAMP_NS", None),
        ("{'at': 'infinity'::TIMESTAMP, 'n': 1}", {"at": "infinity", "n": 1}),
        ("['infinity'::TIMESTAMP, NULL, '2026-01-01'::TIMESTAMP]", ["infinity", None, "2026-01-01 00:00:00.000"]),
        ("MAP {'a': ['12345-01-01'::DATE]}", {"a": ["12345-01-01"]}),
        ("array_value('infinity'::DATE, '2026-01-01'::DATE)", "[infinity, 2026-01-01]"),
        ("MAP {'101'::BIT: '12:00:00+02'::TIMETZ}", {"101": "12:00:00+02"}),
        ("{'bits': ['101'::BIT]}", {"bits": ["101"]}),
        ("170141183460469231731687303715884105727::HUGEINT", 2**127 - 1),
        ("340282366920938463463374607431768211455::UHUGEINT", str(2**128 - 1)),
        ("['123456789012345678901234567890'::BIGNUM]", ["123456789012345678901234567890"]),
        ("'POINT (1 2)'::GEOMETRY", "POINT (1 2)"),
        ("MAP {{'x': 1}: 2}", {'{"x": 1}': 2}),
        ("MAP {[1, NULL]: ['infinity'::DATE]}", {"[1, null]": ["infinity"]}),
        ("MAP {true: 1}", {"true": 1}),
        ("MAP {'\\xff'::BLOB: 1}", {"\\xff": 1}),
        ("MAP {TIMESTAMP '2026-01-31': 1}", {"2026-01-31 00:00:00.000": 1}),
        ("1.10::DECIMAL(10, 2)", 1.1),
    ],
)
def test_value_is_printed(world: World, expression: str, told: Any) -> None:
    with without_pandas():
        rows = world.ask(f"SELECT {expression} AS a, 1 AS b UNION ALL SELECT NULL, 2 ORDER BY b")
    assert rows == [{"a": told, "b": 1}, {"a": None, "b": 2}]


def test_columns_of_one_name_stay_apart(world: World) -> None:
    assert world.ask("SELECT '101'::BIT AS a, '12:00:00+02'::TIMETZ AS a, 7 AS a") == [
        {"a": "101", "a_1": "12:00:00+02", "a_2": 7}
    ]


def test_time_of_a_record_beyond_all_dates_is_told_beside_others(world: World) -> None:
    """As a producer has it that counts microseconds."""
    world.cluster.produce("times", [{"n": 1}, {"n": 2}], times=[NOON_MS * 1_000, NOON_MS])
    found = world.ask("SELECT _timestamp, n FROM times ORDER BY n")
    assert found[0]["_timestamp"].startswith("58")
    assert found[1] == {"_timestamp": "2026-01-31 12:00:00.000", "n": 2}
    assert world.ask("SELECT _timestamp, n FROM times WHERE _offset >= 0 EMIT CHANGES LIMIT 2") == found


def test_decimals_have_all_their_digits(world: World) -> None:
    nested = "{'c': [0.0000001::DECIMAL(10, 7)]}"
    text = f"SELECT 12345678901234567.89::DECIMAL(20, 2) AS a, 1.10::DECIMAL(4, 2) AS b, {nested} AS c"
    world.ask(text)
    told = b'{"a":12345678901234567.89,"b":1.10,"c":{"c":[0.0000001]}}\n'
    assert world.sheet.written.getvalue() == told
    world.session.settings["output"] = OutputForm.CSV
    world.sheet.written.seek(0)
    world.sheet.written.truncate()
    world.session.run(text)
    lines = b'a,b,c\n12345678901234567.89,1.10,"{""c"": [0.0000001]}"\n'
    assert world.sheet.written.getvalue() == lines
    world.session.settings["output"] = OutputForm.TABLE
    world.session.run("SELECT sum(x) AS s FROM (VALUES (12345678901234567.89::DECIMAL(20, 2)), (0.01)) t(x)")
    assert world.sheet.tables == [(["s"], [["12345678901234567.90"]])]


def test_numbers_of_json_have_all_their_digits(world: World) -> None:
    """An exponent stays, so that a short text makes no long one."""
    document = '{"p":0.1234567890123456789,"e":1e999999999,"t":-1.5e-400,"f":0.1,"n":-0.0,"i":12345678901234567890123}'
    world.ask(f"SELECT '{document}'::JSON AS a, ['0.12345678901234567'::JSON] AS b")
    told = document.replace("1e999999999", "1E+999999999").replace("-1.5e-400", "-1.5E-400")
    assert world.sheet.written.getvalue().decode() == f'{{"a":{told},"b":[0.12345678901234567]}}\n'
    assert world.ask("SELECT '{\"a\":1e99999999999999999999}'::JSON AS a") == [{"a": '{"a":1e99999999999999999999}'}]


def test_json_inside_of_a_list_is_written_once_in_csv_and_in_tables(world: World) -> None:
    """A column of JSON has its text."""
    cells = """['1'::JSON, '"x"', NULL, '{"a":0.5}'] AS a, {'j': '[1]'::JSON, 't': '[1]'} AS b, '"x"'::JSON AS c"""
    told = ['[1, "x", null, {"a": 0.5}]', '{"j": [1], "t": "[1]"}', '"x"']
    world.session.settings["output"] = OutputForm.TABLE
    world.session.run(f"SELECT {cells}")
    assert world.sheet.tables == [(["a", "b", "c"], [told])]
    world.session.settings["output"] = OutputForm.CSV
    world.session.run(f"SELECT {cells}")
    assert list(csv.reader(io.StringIO(world.sheet.written.getvalue().decode()))) == [["a", "b", "c"], told]
