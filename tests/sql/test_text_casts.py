"""Which texts and values of JSON are of a column's type: as ksqlDB writes them, and as Spark reads them, too."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import pytest

from pybroker.sql.relations.catalog import Column, Format
from pybroker.values.text_spellings import DECIMAL
from tests.sql.test_relation_decoding import decoded, relation
from tests.sql.test_standing_statements import World

AT = datetime(2026, 1, 31, 14, 0, 0, 123_000)


@pytest.fixture
def world() -> Iterator[World]:
    found = World()
    yield found
    found.engine.close()


def read(form: Format, kind: str, *values: str) -> tuple[list[Any], int]:
    """The cells that fit, and how many do not."""
    rows, misfits = decoded(relation(form, [Column("a", kind, "a")]), [each.encode() for each in values])
    return [row["a"] for row in rows], misfits.count


@pytest.mark.parametrize(
    ("kind", "documents", "cells"),
    [
        ("TIMESTAMP", ["1769868000123", '"2026-01-31T14:00:00.123Z"', "null"], [AT, AT, None]),
        ("TIMESTAMP_MS", ["1769868000123", '"2026-01-31T16:00:00.123+02:00"'], [AT, AT]),
        ("DATE", ["18718", '"2021-04-01"', "-1"], [date(2021, 4, 1), date(2021, 4, 1), date(1969, 12, 31)]),
        ("TIME", ["3723000", '"01:02:03"', "86399999"], [time(1, 2, 3), time(1, 2, 3), time(23, 59, 59, 999_000)]),
        ("BLOB", ['"aGk="', '""', "null"], [b"hi", b"", None]),
        ("TIMESTAMP[2]", ["[1769868000123,null]"], [[AT, None]]),
        ("MAP(VARCHAR, DATE)", ['{"x":1}', "null"], [[("x", date(1970, 1, 2))], None]),
        ("MAP(DATE, BIGINT)", ['{"2026-01-01":1}'], [[(date(2026, 1, 1), 1)]]),
        ("STRUCT(t TIMESTAMP, n INT)[]", ['[{"t":1769868000123,"n":1},null]'], [[{"t": AT, "n": 1}, None]]),
        ('STRUCT("it\'s a" BLOB, "q""r" TIME)', ['{"it\'s a":"aGk="}', "null"], [{"it's a": b"hi", 'q"r': None}, None]),
    ],
)
def test_json_of_ksqldb_has_times_as_numbers_and_bytes_as_base64(
    kind: str, documents: list[str], cells: list[Any]
) -> None:
    assert read(Format.JSON, kind, *(f'{{"a":{each}}}' for each in documents)) == (cells, 0)


@pytest.mark.parametrize(
    ("kind", "documents"),
    [
        ("TIMESTAMP", [str(2**63 - 1), "1e300", "1.5", "true", "{}", '"noon"']),
        ("DATE", [str(2**31), "1.5", '"x"']),
        ("TIME", ["-1", "86400000", '"x"']),
        ("BLOB", ['"hi"', '"aGk"', "5", '"%"']),
        ("STRUCT(l STRUCT(t TIMESTAMP)[])", ['{"l":[null,{"t":"x"}]}', '{"l":[{"t":1},{"t":1.5}]}']),
        ("MAP(VARCHAR, BLOB)", ['{"x":"aGk=","y":"hi"}']),
    ],
)
def test_value_of_json_that_is_no_time_or_no_base64_does_not_fit(kind: str, documents: list[str]) -> None:
    assert read(Format.JSON, kind, *(f'{{"a":{each}}}' for each in documents)) == ([], len(documents))


def test_bytes_are_written_to_json_as_base64_and_read_again(world: World) -> None:
    """Within structs, lists and maps, too."""
    kinds = "b BLOB, s STRUCT(b BLOB, n INT), l BLOB[], m MAP(VARCHAR, BLOB)"
    world.ask(f"CREATE STREAM bs ({kinds}) WITH (topic='bs', format='json', partitions=1)")
    world.changes.written.clear()
    world.ask("INSERT INTO bs VALUES (encode('hi'), {'b': encode('hi'), 'n': 1}, [encode('hi'), NULL], NULL)")
    ((_, records),) = world.changes.written
    assert records[0][1] == b'{"b":"aGk=","s":{"b":"aGk=","n":1},"l":["aGk=",null],"m":null}'
    assert world.ask("SELECT b, s.b AS c, l FROM bs") == [{"b": "hi", "c": "hi", "l": ["hi", None]}]


@pytest.mark.parametrize(
    ("kind", "texts", "cells"),
    [
        ("INTEGER", ["7", "+7", "-7", " 7 ", "007"], [7, 7, -7, 7, 7]),
        ("UBIGINT", ["18446744073709551615"], [2**64 - 1]),
        ("DOUBLE", ["1e3", ".5", "5.", "-Infinity"], [1000.0, 0.5, 5.0, float("-inf")]),
        ("DECIMAL(10, 2)", ["1e1", "-1.5"], [Decimal("10.00"), Decimal("-1.50")]),
        ("BOOLEAN", ["TRUE", "no", "1"], [True, False, True]),
        ("TIMESTAMP", ["1769868000123", "2026-01-31 14:00:00.123"], [AT, AT]),
        ("DATE", ["18718", "2021-04-01"], [date(2021, 4, 1)] * 2),
        ("BLOB", ["hi"], [b"hi"]),
    ],
)
def test_text_is_of_a_type(kind: str, texts: list[str], cells: list[Any]) -> None:
    assert read(Format.TEXT, kind, *texts) == (cells, 0)


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        ("INTEGER", ["0x1F", "0b1", "1_000", "5.5", "5.0", "1e3", "99999999999", ""]),
        ("UTINYINT", ["-1", "256"]),
        ("DOUBLE", ["1_0.5", "1d", "0x1p3", "1,5"]),
        ("DECIMAL(10, 2)", ["1_0", "nan"]),
        ("BOOLEAN", ["on", " true "]),
        ("DATE", ["20260131", "2147483647", "-719163"]),
    ],
)
def test_text_that_a_standing_query_takes_for_another_type_does_not_fit(kind: str, texts: list[str]) -> None:
    assert read(Format.TEXT, kind, *texts) == ([], len(texts))


@pytest.mark.timeout(60)
def test_long_text_of_digits_is_judged_in_one_pass_by_an_engine_that_tries_again() -> None:
    """Java's engine, which standing queries have, goes back as Python's does; the test would not end in time."""
    assert re.fullmatch(DECIMAL, "1" * 1_000_000 + "x") is None
    assert re.fullmatch(DECIMAL, "1" * 1_000_000) is not None


def test_key_is_a_number_by_the_same_rule() -> None:
    columns = [Column("k", "INTEGER", "k", is_key=True)]
    rows, misfits = decoded(relation(Format.JSON, columns), [b"{}"] * 3, key=[b"0x1F", b"1_0", b"7"])
    assert (rows, misfits.count) == ([{"k": 7}], 2)
