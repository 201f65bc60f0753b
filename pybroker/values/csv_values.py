"""A value that is one line of CSV, as RFC 4180 has it, as its fields; an empty field without quotes is null.

Owns what is no such line.  Pure.
"""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LineReader:
    """Reads lines of ``width`` fields."""

    width: int
    delimiter: str = ","

    def fields(self, text: str) -> list[str | None]:
        """The fields of a line; raises ValueError for what is no line of so many."""
        try:
            lines = list(csv.reader(io.StringIO(text, newline=""), delimiter=self.delimiter, strict=True))
        except csv.Error as error:
            raise ValueError(f"is no CSV: {error}") from error
        if len(lines) != 1 or len(lines[0]) != self.width:
            found = len(lines[0]) if lines else 0
            raise ValueError(f"has {found} fields in {len(lines)} lines, and should have {self.width} in one")
        return list(_with_nulls(text, lines[0]))

    def __call__(self, value: bytes) -> dict[str, str | None]:
        """The fields of a line in UTF-8 by their places, from "0" on."""
        return {str(place): field for place, field in enumerate(self.fields(value.decode()))}


def _with_nulls(text: str, fields: Sequence[str]) -> Iterator[str | None]:
    """The fields of a line, where null is an empty one without quotes: Python's reader gives both as an empty text."""
    at = 0
    for field in fields:
        is_quoted = text.startswith('"', at)
        yield field if field or is_quoted else None
        # A quote inside of quotes is two.
        at += len(field) + (2 + field.count('"') if is_quoted else 0) + 1
