"""Rows as a person or a program reads them: tables, JSON lines or CSV.

Owns what a cell looks like in each of them, and that rows leave as they come.  Owns no stdout: ``Sheet`` is the port.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import StrEnum
from itertools import count
from typing import Any, Final, Protocol, TypeAlias
from uuid import UUID

import pyarrow as pa

# Gives what the texts of JSON in a cell say.
Reader: TypeAlias = Callable[[Any], Any]

# What has a meaning in CSV; Python's writer leaves a carriage return bare before 3.12.
_WITH_QUOTES: Final = re.compile(r'[",\r\n]')
# So many rows are one table on a terminal, whose columns are as wide as these need.
_ROWS_PER_TABLE: Final = 1_000
# So many digits no decimal of DuckDB has; a number of JSON with an exponent may stand for any.
_DIGITS_AT_MOST: Final = 100


class OutputForm(StrEnum):
    """How rows are printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


class Sheet(Protocol):
    """Where results go."""

    is_terminal: bool

    def text(self, text: str) -> None:
        """Lines of a result; on a terminal, what is not seen of them is written out."""
        ...

    def flush(self) -> None:
        """Hand over what was written."""
        ...

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """A table under a heading; outside of a terminal tab-separated lines."""
        ...

    def rows(self, rows: Iterable[Sequence[object]]) -> None:
        """Tab-separated lines without a heading."""
        ...


class RowPrinter:
    """Prints the rows of one query; ``add`` as they come, ``end`` behind the last one."""

    def __init__(
        self,
        sheet: Sheet,
        form: OutputForm,
        columns: Sequence[str],
        *,
        as_they_come: bool = False,
        json_inside: Mapping[int, Reader] | None = None,
    ) -> None:
        """``as_they_come``: each row is shown at once, so that a table's columns have no common width.

        ``json_inside`` reads the texts of JSON in a column, by its place: within JSON they are no texts.  A cell of CSV
        or of a table is JSON where it has parts, and a text of JSON is one as it stands.
        """
        self.count = 0
        self._sheet = sheet
        self._form = form
        self._columns = list(columns)
        self._at_once = as_they_come
        self._json_inside = json_inside or {}
        self._waiting: list[list[object]] = []
        self._has_heading = False
        if form is OutputForm.CSV:
            self._csv([self._columns])
        if form is OutputForm.TABLE and as_they_come:
            self._heading([])

    def add(self, rows: Sequence[Sequence[Any]]) -> None:
        """Print rows, or keep them until there are enough for a table."""
        self.count += len(rows)
        if self._form is OutputForm.JSON:
            self._sheet.text("".join(json_line(self._columns, self._documents(row)) for row in rows))
        elif self._form is OutputForm.CSV:
            self._csv([[csv_cell(cell) for cell in self._documents(row)] for row in rows])
        else:
            self._waiting += [[table_cell(cell) for cell in self._documents(row)] for row in rows]
            if self._at_once or len(self._waiting) >= _ROWS_PER_TABLE:
                self._tabulate()
        self._sheet.flush()

    def _documents(self, row: Sequence[Any]) -> Sequence[Any]:
        if not self._json_inside:
            return row
        readers, is_json = self._json_inside, self._form is OutputForm.JSON
        return [
            readers[at](cell) if at in readers and (is_json or not isinstance(cell, str)) else cell
            for at, cell in enumerate(row)
        ]

    def end(self) -> None:
        """Print what waits; a query without a row has its heading."""
        if self._form is OutputForm.TABLE and (self._waiting or not self._has_heading):
            self._tabulate()
        self._sheet.flush()

    def _tabulate(self) -> None:
        waiting, self._waiting = self._waiting, []
        if self._has_heading and (self._at_once or not self._sheet.is_terminal):
            self._sheet.rows(waiting)
        else:
            self._heading(waiting)

    def _heading(self, rows: list[list[object]]) -> None:
        self._has_heading = True
        if self._at_once:
            self._sheet.rows([self._columns, *rows])
        else:
            self._sheet.table(self._columns, rows)

    def _csv(self, rows: Iterable[Sequence[object]]) -> None:
        self._sheet.text("".join(f"{','.join(map(_csv_field, row))}\n" for row in rows))


def plain(value: Any) -> Any:
    """A value as JSON has it: numbers stay numbers as far as JSON has them, and all else is text.

    A decimal with a point stays one, because a float would lose digits (``_json``).
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    if isinstance(value, Decimal):
        return int(value) if value.as_tuple().exponent == 0 else value
    if isinstance(value, dict):
        return {str(csv_cell(name)): plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)) and not isinstance(value, pa.MonthDayNano):
        return [plain(each) for each in value]
    return _text(value)


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="milliseconds" if value.microsecond % 1_000 == 0 else "microseconds")
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, pa.MonthDayNano):
        return _interval(value.months, value.days, value.nanoseconds // 1_000)
    return str(value) if isinstance(value, (timedelta, UUID)) else repr(value)


def _interval(months: int, days: int, microseconds: int) -> str:
    """As DuckDB casts an interval to text."""
    parts = [f"{months} months" if months else "", f"{days} days" if days else ""]
    if microseconds or not (months or days):
        seconds, rest = divmod(abs(microseconds), 1_000_000)
        clock = f"{seconds // 3_600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        parts.append(("-" if microseconds < 0 else "") + clock + (f".{rest:06}" if rest else ""))
    return " ".join(part for part in parts if part)


def json_line(columns: Sequence[str], row: Sequence[Any]) -> str:
    """A row as an object on one line.  A second column of a name is ``NAME_1``, as DuckDB names it: none is lost."""
    document: dict[str, Any] = {}
    for name, cell in zip(columns, row, strict=True):
        key = name
        if key in document:
            key = next(each for at in count(1) if (each := f"{name}_{at}") not in (*columns, *document))
        document[key] = plain(cell)
    return _json(document, ",", ":") + "\n"


def csv_cell(value: Any) -> object:
    """A cell of CSV; null is empty, and what has parts is JSON."""
    found = plain(value)
    if isinstance(found, bool):
        return str(found).lower()
    if isinstance(found, Decimal):
        return _digits(found)
    return _json(found) if isinstance(found, (dict, list)) else found


def _json(document: Any, comma: str = ", ", colon: str = ": ") -> str:
    """What ``plain`` gives, as JSON; a decimal is its own digits there."""
    try:
        return json.dumps(document, ensure_ascii=False, separators=(comma, colon))
    except TypeError:  # a decimal is inside
        if isinstance(document, Decimal):
            return _digits(document)
        if isinstance(document, dict):
            fields = (f"{_json(name)}{colon}{_json(each, comma, colon)}" for name, each in document.items())
            return f"{{{comma.join(fields)}}}"
        return f"[{comma.join(_json(each, comma, colon) for each in document)}]"


def _digits(number: Decimal) -> str:
    """All digits of a number; one of JSON that stands for many zeros keeps its exponent."""
    return format(number, "f") if abs(number.adjusted()) < _DIGITS_AT_MOST else str(number)


def _csv_field(cell: object) -> str:
    """A field of CSV.  An empty text has quotes, and null has none, by which they are told apart."""
    text = "" if cell is None else str(cell)
    return '"' + text.replace('"', '""') + '"' if cell == "" or _WITH_QUOTES.search(text) else text


def table_cell(value: Any) -> object:
    """A cell of a table; null is a dash there, and an empty text a pair of quotes."""
    found = csv_cell(value)
    if isinstance(found, float):
        return repr(found)
    return '""' if found == "" else found
