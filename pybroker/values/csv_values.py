"""A value that is one line of CSV, as RFC 4180 has it, as its fields; an empty field without quotes is null.

Owns what is no such line.  Pure.
"""

import csv
import io
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
        return [field or None for field in lines[0]]

    def __call__(self, value: bytes) -> dict[str, str | None]:
        """The fields of a line in UTF-8 by their places, from "0" on."""
        return {str(place): field for place, field in enumerate(self.fields(value.decode()))}
