"""How a statement fails: one exception, whose message shows the place in the text and the nearest name.  Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SqlError(Exception):
    """A statement cannot be carried out; the message is for the user, without a trace."""


class TooDeep(SqlError):
    """A statement has more parts inside of each other than Python takes."""

    def __init__(self) -> None:
        super().__init__("the statement is nested too deeply")


class Interrupted(Exception):
    """The user has ended the query."""


def nearest(name: str, names: Iterable[str]) -> str:
    """``; NAME?`` with the known name that is nearest to a wrong one, or nothing where none is near."""
    known = {each.lower(): each for each in names}
    near = difflib.get_close_matches(name.lower(), known, 1)
    return f"; {known[near[0]]}?" if near else ""


def at_place(message: str, text: str, start: int, length: int = 1) -> str:
    """The message with the line of ``text`` that it is about, and carets below ``length`` characters from ``start``."""
    start = max(0, min(start, len(text)))
    begin = text.rfind("\n", 0, start) + 1
    end = text.find("\n", start)
    line = text[begin:] if end < 0 else text[begin:end]
    number, column = text.count("\n", 0, start) + 1, start - begin
    # A tab keeps its width in the line of carets, too.
    indent = "".join("\t" if char == "\t" else " " for char in line[:column])
    carets = "^" * max(1, min(length, len(line) - column))
    return f"line {number}, column {column + 1}: {message}\n  {line}\n  {indent}{carets}"
