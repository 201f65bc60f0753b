"""Rows as tables, JSON and CSV."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from pybroker.cli.terminal.output import Output
from pybroker.sql.questions.row_output import OutputForm, RowPrinter, csv_cell, json_line, plain, table_cell
from tests.cli.test_output import Terminal


class Sheet:
    """Keeps what is printed."""

    def __init__(self, is_terminal: bool = False) -> None:
        self.is_terminal = is_terminal
        self.written = io.BytesIO()
        self.tables: list[tuple[list[str], list[list[object]]]] = []
        self.lines: list[list[object]] = []

    def text(self, text: str) -> None:
        self.written.write(text.encode())

    def flush(self) -> None:
        pass

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        self.tables.append((list(columns), [list(row) for row in rows]))

    def rows(self, rows: Iterable[Sequence[object]]) -> None:
        self.lines += [list(row) for row in rows]


@pytest.mark.parametrize(
    ("value", "as_json", "as_csv", "in_table"),
    [
        (None, None, None, None),
        (True, True, "true", "true"),
        (7, 7, 7, 7),
        (1.5, 1.5, 1.5, "1.5"),
        (float("nan"), "NaN", "NaN", "NaN"),
        (Decimal(12), 12, 12, 12),
        (Decimal("1.25"), Decimal("1.25"), "1.25", "1.25"),
        (Decimal("1.10"), Decimal("1.10"), "1.10", "1.10"),
        ("", "", "", '""'),
        (b"a\xff", "a\\xff", "a\\xff", "a\\xff"),
        (datetime(2026, 1, 31, 12), "2026-01-31 12:00:00.000", "2026-01-31 12:00:00.000", "2026-01-31 12:00:00.000"),
        (pa.MonthDayNano([1, 2, 3_500_000_000]), *["1 months 2 days 00:00:03.500000"] * 3),
        (pa.MonthDayNano([0, 1, 0]), *["1 days"] * 3),
        (pa.MonthDayNano([0, 0, 0]), *["00:00:00"] * 3),
        (pa.MonthDayNano([0, 0, -60_000_000_000]), *["-00:01:00"] * 3),
        (date(2026, 1, 31), "2026-01-31", "2026-01-31", "2026-01-31"),
        ({"a": [1, None]}, {"a": [1, None]}, '{"a": [1, null]}', '{"a": [1, null]}'),
    ],
)
def test_cells(value: object, as_json: object, as_csv: object, in_table: object) -> None:
    assert plain(value) == as_json
    assert csv_cell(value) == as_csv
    assert table_cell(value) == in_table


def test_moment_with_a_zone_keeps_it() -> None:
    assert plain(datetime(2026, 1, 31, 12, tzinfo=UTC)) == "2026-01-31 12:00:00.000+00:00"


def test_json_has_an_object_on_each_line() -> None:
    assert json.loads(json_line(["a", "b"], (1, "é"))) == {"a": 1, "b": "é"}
    sheet = Sheet()
    printer = RowPrinter(sheet, OutputForm.JSON, ["a"])
    printer.add([(1,), (2,)])
    printer.end()
    assert sheet.written.getvalue() == b'{"a":1}\n{"a":2}\n'


def test_columns_of_one_name_are_all_in_an_object() -> None:
    assert json.loads(json_line(["id", "id", "id_1", "id"], (1, 2, 3, 4))) == {"id": 1, "id_2": 2, "id_1": 3, "id_3": 4}


def test_csv_has_a_heading_and_quotes_where_they_are_needed() -> None:
    sheet = Sheet()
    printer = RowPrinter(sheet, OutputForm.CSV, ["a", "b"])
    printer.add([(1, "x, y"), (None, 'say "no"')])
    printer.end()
    assert sheet.written.getvalue() == b'a,b\n1,"x, y"\n,"say ""no"""\n'


def test_csv_tells_an_empty_text_from_null_and_quotes_what_has_a_meaning() -> None:
    sheet = Sheet()
    printer = RowPrinter(sheet, OutputForm.CSV, ["a", "b\r"])
    printer.add([("", None), ("a\rb", "c\nd")])
    printer.end()
    assert sheet.written.getvalue() == b'a,"b\r"\n"",\n"a\rb","c\nd"\n'


def test_table_without_a_row_has_its_heading() -> None:
    sheet = Sheet()
    RowPrinter(sheet, OutputForm.TABLE, ["a"]).end()
    assert sheet.tables == [(["a"], [])]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_long_answer_is_printed_in_parts_with_one_heading_outside_of_a_terminal(is_terminal: bool) -> None:
    sheet = Sheet(is_terminal)
    printer = RowPrinter(sheet, OutputForm.TABLE, ["a"])
    for part in range(3):
        printer.add([(part,)] * 1_000)
    printer.end()
    assert printer.count == 3_000
    assert len(sheet.tables) == (3 if is_terminal else 1)
    assert len(sheet.lines) == (0 if is_terminal else 2_000)


def test_rows_that_come_one_by_one_are_lines() -> None:
    sheet = Sheet(is_terminal=True)
    printer = RowPrinter(sheet, OutputForm.TABLE, ["a", "b"], as_they_come=True)
    printer.add([(1, 2)])
    printer.add([(3, 4)])
    assert sheet.lines == [["a", "b"], [1, 2], [3, 4]]


@pytest.mark.parametrize("form", OutputForm)
def test_value_and_name_of_a_record_give_no_commands_to_a_terminal(form: OutputForm) -> None:
    stream = Terminal()
    printer = RowPrinter(Output(stream=stream), form, ["\x1b[2Ja", "b"])
    printer.add([("\x9b2J\u202e\x1b[2J", "é")])
    printer.end()
    shown = re.sub(r"\x1b\[[01]?m", "", stream.getvalue().decode())  # rich's own, for the heading
    assert "é" in shown
    assert all(char.isprintable() or char == "\n" for char in shown)


def test_value_in_a_pipe_is_as_it_is() -> None:
    stream = io.BytesIO()
    printer = RowPrinter(Output(stream=stream), OutputForm.CSV, ["a"])
    printer.add([("\x1b[2J\u200d",)])
    assert stream.getvalue().decode() == "a\n\x1b[2J\u200d\n"
