"""The tokens of a text, read one after another, and the trees that sqlglot makes of them in DuckDB's dialect.

Owns the dialect, and that each refusal is a ``SqlError`` that shows the place.  Which statement is what is
``statements``'s.  Pure.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, NoReturn

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.tokenizer_core import Token, TokenType

from pybroker.sql.parsing.ksql_spelling import respell, respelled
from pybroker.sql.sql_errors import SqlError, at_place


def _call(name: str) -> Callable[[list[exp.Expr]], exp.Expr]:
    return lambda arguments: exp.Anonymous(this=name, expressions=arguments)


# Of ksqlDB's own, and of lists those that DuckDB has by two names, of which one means ksqlDB's.
_CALLS: Final = (
    *("ELT", "ENCODE", "INITCAP", "INSTR", "JSON_ARRAY_CONTAINS", "UNIX_DATE"),
    *("ARRAY_DISTINCT", "ARRAY_EXCEPT", "ARRAY_INTERSECT", "ARRAY_REMOVE", "LIST_DISTINCT", "ARRAY_POSITION"),
)


class _Dialect(DuckDB):
    """DuckDB's, whose statements are all read as tokens: EXPLAIN would have the rest of its own as one text.

    Names may stand in backticks, as ksqlDB has them.  Functions of which ksqlDB has other arguments are read as calls.
    """

    class Tokenizer(DuckDB.Tokenizer):
        COMMANDS: ClassVar[set[TokenType]] = set()
        IDENTIFIERS: ClassVar[list[str | tuple[str, str]]] = ['"', "`"]

    class Parser(DuckDBParser):
        FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
            name: parser for name, parser in DuckDBParser.FUNCTION_PARSERS.items() if name != "INITCAP"
        }
        FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = {
            **DuckDBParser.FUNCTIONS,
            **{name: _call(name) for name in _CALLS},
            "ARRAY_JOIN": lambda arguments: exp.ArrayToString.from_arg_list(
                [*arguments, exp.Literal.string(",")] if len(arguments) == 1 else arguments
            ),
            # Of a map it takes two lambdas.
            "TRANSFORM": lambda arguments: (
                exp.Transform.from_arg_list(arguments) if len(arguments) == 2 else _call("TRANSFORM")(arguments)
            ),
        }


DIALECT: Final = _Dialect()
# sqlglot warns of what it does not read, which is refused here.
logging.getLogger("sqlglot").addHandler(logging.NullHandler())
_OPENING: Final = {"(": 1, "[": 1, "{": 1, "<": 1, ")": -1, "]": -1, "}": -1, ">": -1}


def tokens_of(text: str) -> list[Token]:
    """sqlglot's; raises ``SqlError`` for a text that has an open quote or comment."""
    try:
        return list(DIALECT.tokenize(text))
    except SqlglotError as error:
        raise SqlError(at_place("a quote or a comment is not closed", text, max(0, len(text.rstrip()) - 1))) from error


def tree_of(text: str, tokens: Sequence[Token]) -> exp.Expr:
    """sqlglot's tree of one query."""
    try:
        (tree,) = DIALECT.parser().parse(respelled(tokens), text)
    except ParseError as error:
        raise _misread(error, text, tokens) from error
    except IndexError as error:  # of sqlglot's own, as for a lambda without arguments
        raise SqlError(at_place("syntax error in this query", text, tokens[0].start, len(tokens[0].text))) from error
    if tree is None:
        raise SqlError(at_place("a query is expected here", text, tokens[0].start if tokens else len(text)))
    respell(tree)
    return tree


def _misread(error: ParseError, text: str, tokens: Sequence[Token]) -> SqlError:
    """sqlglot's first sentence, at the place in the text."""
    told = error.errors[0] if error.errors else {}
    said = str(told.get("description") or error).rstrip(".")
    if said.startswith("Required keyword"):
        said = "something is missing here"
    elif said.startswith("Invalid expression"):
        said = "this is not expected here"
    place = (told.get("line"), told.get("col"))
    token = next((each for each in tokens if (each.line, each.col) == place), tokens[-1])
    return SqlError(at_place(f"syntax error: {said[:1].lower()}{said[1:]}", text, token.start, len(token.text)))


class TokenReader:
    """The tokens of a frame, one after another."""

    def __init__(self, text: str, tokens: Sequence[Token], end: Token | None = None) -> None:
        self.text = text
        self._tokens = list(tokens)
        self._at = 0
        self._end = tokens[-1] if tokens else end

    @property
    def statement(self) -> str:
        """The text of all its tokens."""
        return self.text[self._tokens[0].start : self._tokens[-1].end + 1] if self._tokens else ""

    def next(self) -> Token:
        """The next token; ``SqlError`` where there is none."""
        if self._at >= len(self._tokens):
            self.refuse("the statement ends too early")
        self._at += 1
        return self._tokens[self._at - 1]

    def ahead(self, count: int = 0) -> Token | None:
        """The token behind so many others; None behind the end."""
        at = self._at + count
        return self._tokens[at] if at < len(self._tokens) else None

    def word_ahead(self, count: int = 0) -> str:
        """The token behind so many others in capitals; empty behind the end."""
        token = self.ahead(count)
        return "" if token is None else token.text.upper()

    def up_to(self, word: str) -> list[Token]:
        """The tokens before the next one of this word, or before the end."""
        begin = self._at
        while self.word_ahead() not in ("", word):
            self._at += 1
        return self._tokens[begin : self._at]

    def took(self, *words: str) -> bool:
        """Whether these words come next, which are passed over then."""
        ahead = " ".join(token.text.upper() for token in self._tokens[self._at : self._at + len(words)])
        if ahead != " ".join(words):
            return False
        self._at += len(words)
        return True

    def want(self, word: str) -> None:
        """Pass over a word that has to come next."""
        if not self.took(word):
            self.refuse(f"{word} is expected here")

    def name(self) -> tuple[str, int]:
        """A name, whose parts points may join, and where it begins; a text in quotes is one, too."""
        first = self.next()
        is_quoted = first.token_type in (TokenType.IDENTIFIER, TokenType.STRING)
        if not is_quoted and not (first.text[:1].isalpha() or first.text[:1] == "_"):
            self.refuse("a name is expected here", first)
        parts = [first.text]
        while self.took("."):
            parts.append(self.next().text)
        return ".".join(parts), first.start

    def number(self) -> int:
        """A number of things."""
        token = self.next()
        if token.token_type != TokenType.NUMBER or not token.text.isdigit():
            self.refuse("a number is expected here", token)
        return int(token.text)

    def value(self) -> str:
        """A text, a number or a word; a number may be negative."""
        token = self.next()
        return f"-{self.next().text}" if token.text == "-" else token.text

    def up_to_comma(self) -> list[Token]:
        """The tokens before the next comma or closing parenthesis outside of all parentheses."""
        depth, begin = 0, self._at
        while self._at < len(self._tokens):
            token = self._tokens[self._at]
            if depth == 0 and token.text in (",", ")") and token.token_type != TokenType.STRING:
                break
            depth += _OPENING.get(token.text, 0) if token.token_type != TokenType.STRING else 0
            self._at += 1
        return self._tokens[begin : self._at]

    def rest(self) -> list[Token]:
        """All that is left."""
        found, self._at = self._tokens[self._at :], len(self._tokens)
        return found

    def end(self) -> None:
        """``SqlError`` for what comes behind the end."""
        if self._at < len(self._tokens):
            self.refuse("the statement should end here")

    def refuse(self, message: str, token: Token | None = None) -> NoReturn:
        """Raise ``SqlError`` about a token, or about the next one."""
        if token is None:
            token = self._tokens[self._at] if self._at < len(self._tokens) else self._end
        start, length = (token.start, len(token.text)) if token is not None else (len(self.text), 1)
        raise SqlError(at_place(message, self.text, start, length))
