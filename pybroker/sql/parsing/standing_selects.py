"""The SELECT of a standing query: what it has beside SQL, cut out of its tokens, and the tree of the rest.

Owns the frames that ksqlDB has and DuckDB has not: WINDOW TUMBLING, HOPPING and SESSION, WITHIN behind a stream that is
joined, PARTITION BY, and EMIT CHANGES or EMIT FINAL.  What runs for them is ``spark_plans``'s.  Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from pybroker.sql.parsing.token_reader import TokenReader, tree_of
from pybroker.sql.sql_errors import SqlError, at_place

_UNITS_MS: Final = {
    "MILLISECOND": 1,
    "SECOND": 1_000,
    "MINUTE": 60_000,
    "HOUR": 3_600_000,
    "DAY": 86_400_000,
}


class WindowKind(StrEnum):
    """How a window comes about."""

    TUMBLING = "TUMBLING"
    HOPPING = "HOPPING"
    SESSION = "SESSION"


_WINDOWS: Final = frozenset(map(str, WindowKind))


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """``size_ms`` of a session is its gap.  ``grace_ms``: how long late records are waited for, None where not said."""

    kind: WindowKind
    size_ms: int
    advance_ms: int
    grace_ms: int | None = None


@dataclass(frozen=True, slots=True)
class JoinWindow:
    """A record of the right stream may lie so much before or behind the left one's."""

    before_ms: int
    behind_ms: int
    grace_ms: int | None = None


@dataclass(frozen=True, slots=True)
class StandingSelect:
    """``tree`` has none of the frames.  ``within`` has one for each join, None where nothing is said.

    ``is_final``: the row of a window comes once, when the window is over.
    """

    text: str
    tree: exp.Select
    window: TimeWindow | None = None
    within: tuple[JoinWindow | None, ...] = ()
    partition_by: tuple[exp.Expr, ...] = ()
    is_final: bool = False


def standing_select(text: str, tokens: Sequence[Token]) -> StandingSelect:
    """Read the tokens behind AS; raises ``SqlError`` at what is none."""
    if not tokens or tokens[0].text.upper() != "SELECT":
        raise SqlError(at_place("SELECT is expected here", text, tokens[0].start if tokens else len(text)))
    cut = _Cut(text, tokens)
    tree = tree_of(text, cut.kept)
    if not isinstance(tree, exp.Select):
        raise SqlError(at_place("a standing query is a single SELECT", text, tokens[0].start))
    partition_by = tuple(_expressions(text, cut.partition_by))
    _name_columns(tree, partition_by)
    return StandingSelect(text, tree, cut.window, tuple(cut.within), partition_by, cut.is_final)


def _name_columns(tree: exp.Select, partition_by: Sequence[exp.Expr]) -> None:
    """Name the columns that have no name, as ksqlDB does: engines differ in what they call them.

    An expression of PARTITION BY that SELECT has not is one more column.
    """
    named = (exp.Alias, exp.Aliases, exp.Column, exp.Dot, exp.Star, exp.Columns)
    without = [each for each in tree.expressions if not isinstance(each, named)]
    for number, each in enumerate(without):
        each.replace(exp.alias_(each.copy(), f"KSQL_COL_{number}"))
    chosen = [each.unalias() for each in tree.expressions]
    more = [each for each in partition_by if not isinstance(each, (exp.Column, exp.Literal)) and each not in chosen]
    for number, each in enumerate(more, len(without)):
        tree.select(exp.alias_(each.copy(), f"KSQL_COL_{number}"), copy=False)


class _Cut:
    """The frames of the tokens, and the tokens without them."""

    def __init__(self, text: str, tokens: Sequence[Token]) -> None:
        self.kept: list[Token] = []
        self.window: TimeWindow | None = None
        self.within: list[JoinWindow | None] = []
        self.partition_by: list[Token] = []
        self.is_final = False
        self._reader = TokenReader(text, tokens)
        depth = 0
        while (token := self._reader.ahead()) is not None:
            word = "" if token.token_type in (TokenType.STRING, TokenType.IDENTIFIER) else token.text.upper()
            depth += {"(": 1, ")": -1}.get(word, 0)
            if depth or not self._took(word):
                self.kept.append(self._reader.next())
                if not depth and word.endswith("JOIN"):
                    self.within.append(None)

    def _took(self, word: str) -> bool:
        reader = self._reader
        if word == "WINDOW" and reader.word_ahead(1) in _WINDOWS:
            if self.window is not None:
                reader.refuse("a query has one WINDOW")
            reader.next()
            self.window = _window(reader)
        elif word == "WITHIN" and self.within:
            reader.next()
            self.within[-1] = _within(reader)
        elif word == "PARTITION BY":
            reader.next()
            self.partition_by = reader.up_to("EMIT")
        elif word == "EMIT":
            reader.next()
            self.is_final = reader.took("FINAL")
            if not self.is_final:
                reader.want("CHANGES")
            reader.end()
        else:
            return False
        return True


def _window(reader: TokenReader) -> TimeWindow:
    kind = WindowKind(reader.next().text.upper())
    reader.want("(")
    if kind is not WindowKind.SESSION:
        reader.want("SIZE")
    size = _duration_ms(reader)
    advance, grace = size, None
    while reader.took(","):
        if kind is WindowKind.HOPPING and reader.took("ADVANCE"):
            reader.want("BY")
            advance = _duration_ms(reader)
        elif reader.took("GRACE"):
            reader.want("PERIOD")
            grace = _duration_ms(reader)
        elif reader.took("RETENTION"):
            # Its rows stay for longer: in a topic that is compacted.
            _duration_ms(reader)
        else:
            reader.refuse("ADVANCE BY, GRACE PERIOD or RETENTION is expected here")
    reader.want(")")
    if advance > size:
        reader.refuse("a window advances by its size at most")
    return TimeWindow(kind, size, advance, grace)


def _within(reader: TokenReader) -> JoinWindow:
    if reader.took("("):
        before = _duration_ms(reader)
        reader.want(",")
        behind = _duration_ms(reader)
        reader.want(")")
    else:
        before = behind = _duration_ms(reader)
    grace = None
    if reader.took("GRACE"):
        reader.want("PERIOD")
        grace = _duration_ms(reader)
    return JoinWindow(before, behind, grace)


def _duration_ms(reader: TokenReader) -> int:
    count = reader.number()
    unit = reader.next()
    length = _UNITS_MS.get(unit.text.upper().removesuffix("S"))
    if length is None or count == 0:
        reader.refuse(f"a time as 10 {' or 10 '.join(each + 'S' for each in _UNITS_MS)} is expected here", unit)
    return count * length


def _expressions(text: str, tokens: Sequence[Token]) -> list[exp.Expr]:
    """Those that commas part, by way of a SELECT that has them."""
    if not tokens:
        return []
    select = Token(TokenType.SELECT, "SELECT", tokens[0].line, tokens[0].col, tokens[0].start, tokens[0].start)
    return list(tree_of(text, [select, *tokens]).expressions)
