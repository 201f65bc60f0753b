"""Patterns of times as Java and Spark read them, in the words of DuckDB's ``strftime``.

Owns the letters.  Spark takes a pattern as it is.  Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from pybroker.sql.sql_errors import SqlError

_LETTERS: Final = {
    **dict.fromkeys(("y", "yyyy", "u", "uuuu"), "%Y"),
    **dict.fromkeys(("yy", "uu"), "%y"),
    "M": "%-m",
    "MM": "%m",
    "MMM": "%b",
    "MMMM": "%B",
    "d": "%-d",
    "dd": "%d",
    "DDD": "%j",
    **dict.fromkeys(("E", "EE", "EEE"), "%a"),
    "EEEE": "%A",
    "H": "%-H",
    "HH": "%H",
    "h": "%-I",
    "hh": "%I",
    "m": "%-M",
    "mm": "%M",
    "s": "%-S",
    "ss": "%S",
    "SSS": "%g",
    "SSSSSS": "%f",
    "SSSSSSSSS": "%n",
    "a": "%p",
}
# What is written for the zone of a time in UTC.
_ZONES: Final = {
    **dict.fromkeys(("X" * count for count in (1, 2, 3)), "Z"),
    "x": "+00",
    **dict.fromkeys(("xx", "Z", "ZZ", "ZZZ"), "+0000"),
    **dict.fromkeys(("xxx", "ZZZZZ"), "+00:00"),
    **dict.fromkeys(("z", "VV"), "UTC"),
}
# Of Java's: a text in quotes, letters of one kind, or a character that stands for itself.
_PARTS: Final = re.compile(r"'((?:[^']|'')*)'|(([A-Za-z])\3*)|(.)", re.DOTALL)


def written_pattern(pattern: str) -> str:
    """DuckDB's pattern by which a time in UTC is written as by one of Java's; ``SqlError`` for a strange letter."""
    return _in_duckdb(pattern, {**_LETTERS, **_ZONES})


def local_pattern(pattern: str) -> str:
    """As ``written_pattern``, of a time in another zone, whose offset is not there; ``SqlError``."""
    return _in_duckdb(pattern, _LETTERS)


def read_pattern(pattern: str) -> str:
    """DuckDB's pattern by which a time is read as by one of Java's; ``SqlError`` for a strange letter."""
    return _in_duckdb(pattern, {**_LETTERS, **dict.fromkeys(_ZONES, "%z")})


def _in_duckdb(pattern: str, letters_of: Mapping[str, str]) -> str:
    found = []
    for part in _PARTS.finditer(pattern):
        quoted, letters, _, other = part.groups()
        if letters is None:
            text = other if quoted is None else quoted.replace("''", "'") or "'"
            found.append(text.replace("%", "%%"))
        elif letters in letters_of:
            found.append(letters_of[letters])
        else:
            raise SqlError(f"{letters} in the pattern {pattern} is not there: as yyyy-MM-dd HH:mm:ss.SSS it may be")
    return "".join(found)
