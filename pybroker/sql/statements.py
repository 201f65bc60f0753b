"""What a text asks for: its statements, told apart by their first words.

Owns the routing, and the frames of the statements that DuckDB does not have (CREATE STREAM, SHOW TOPICS, EMIT CHANGES).
Tokens, queries and types are read by sqlglot in DuckDB's dialect.  Pure.

Every refusal is a ``SqlError`` that shows the place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, NoReturn, TypeAlias

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from pybroker.sql.sql_errors import SqlError, at_place, nearest


class _Dialect(DuckDB):
    """DuckDB's, whose statements are all read as tokens: EXPLAIN would have the rest of its own as one text."""

    class Tokenizer(DuckDB.Tokenizer):
        COMMANDS: ClassVar[set[TokenType]] = set()


_DIALECT: Final = _Dialect()
# With what a query may begin.
_QUERIES: Final = ("SELECT", "WITH", "FROM", "VALUES", "(", "PIVOT", "UNPIVOT", "SUMMARIZE", "COPY")
_STANDING: Final = ("INSERT", "PAUSE", "RESUME", "TERMINATE")
_NOT_YET: Final = "standing queries run on Spark, and are not there yet"
_OPENING: Final = {"(": 1, "[": 1, "{": 1, "<": 1, ")": -1, "]": -1, "}": -1, ">": -1}
# Types by their names in ksqlDB, where DuckDB has another one.
_TYPES_OF_KSQLDB: Final = {"BYTES": "BLOB"}
WORDS: Final = ("SELECT", "EXPLAIN", "SHOW", "DESCRIBE", "CREATE", "DROP", "SET", "HELP", "EXIT")


@dataclass(frozen=True, slots=True)
class Query:
    """A question.  ``emits``: rows are told as they arrive, ``limit`` of them where that is given."""

    text: str
    tree: exp.Expr
    emits: bool = False
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Explain:
    """What a question would fetch."""

    query: Query


@dataclass(frozen=True, slots=True)
class Show:
    """``what``: topics, streams, tables."""

    what: str


@dataclass(frozen=True, slots=True)
class Describe:
    """The columns of a topic."""

    name: str
    text: str
    start: int


@dataclass(frozen=True, slots=True)
class DeclaredColumn:
    """``type`` is DuckDB's spelling."""

    name: str
    type: str
    is_key: bool


@dataclass(frozen=True, slots=True)
class Create:
    """A topic's schema, kept for the session.  ``options`` have lower-case names."""

    kind: str
    name: str
    columns: tuple[DeclaredColumn, ...]
    options: dict[str, str] = field(hash=False)
    replaces: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class Drop:
    """A declaration is forgotten."""

    name: str
    if_exists: bool


@dataclass(frozen=True, slots=True)
class Set:
    """An option of the session; None sets it back."""

    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class Help:
    """What there is."""


@dataclass(frozen=True, slots=True)
class Exit:
    """The end of the session."""


Statement: TypeAlias = Query | Explain | Show | Describe | Create | Drop | Set | Help | Exit


def statements(text: str) -> list[Statement]:
    """The statements of a text, which semicolons part; raises ``SqlError`` for the first that is none."""
    found: list[Statement] = []
    part: list[Token] = []
    for token in tokens_of(text):
        if token.token_type == TokenType.SEMICOLON:
            if part:
                found.append(_statement(text, part))
            part = []
        else:
            part.append(token)
    if part:
        found.append(_statement(text, part))
    return found


def tokens_of(text: str) -> list[Token]:
    """sqlglot's; raises ``SqlError`` for a text that has an open quote or comment."""
    try:
        return list(_DIALECT.tokenize(text))
    except SqlglotError as error:
        raise SqlError(at_place("a quote or a comment is not closed", text, max(0, len(text.rstrip()) - 1))) from error


def is_complete(text: str) -> bool:
    """Whether a prompt hands a text over: its last statement has a semicolon, or is a word that needs none."""
    stripped = text.strip()
    if not stripped or stripped.rstrip(";").strip().upper() in ("EXIT", "QUIT", "HELP"):
        return True
    try:
        tokens = tokens_of(text)
    except SqlError:
        return False
    return not tokens or tokens[-1].token_type == TokenType.SEMICOLON


def _statement(text: str, tokens: Sequence[Token]) -> Statement:
    word = tokens[0].text.upper()
    if word in _QUERIES:
        return _query(text, tokens)
    frames: dict[str, Callable[[_Reader], Statement]] = {
        "EXPLAIN": lambda reader: Explain(_query(text, reader.rest())),
        "SHOW": _show,
        "LIST": _show,
        "DESCRIBE": _describe,
        "DESC": _describe,
        "CREATE": _create,
        "DROP": _drop,
        "SET": _set,
        "UNSET": _unset,
        "HELP": lambda reader: Help(),
        "EXIT": lambda reader: Exit(),
        "QUIT": lambda reader: Exit(),
    }
    reader = _Reader(text, tokens)
    if word in _STANDING:
        reader.refuse(f"{word}: {_NOT_YET}")
    if word not in frames:
        reader.refuse(f"no statement begins with {tokens[0].text}{nearest(word, WORDS)}")
    reader.next()
    found = frames[word](reader)
    reader.end()
    return found


def _query(text: str, tokens: Sequence[Token]) -> Query:
    """Its last words may be EMIT CHANGES, or EMIT CHANGES LIMIT n."""
    words = [token.text.upper() for token in tokens]
    emits, limit = False, None
    for at in range(len(words) - 1):
        if words[at : at + 2] == ["EMIT", "CHANGES"] and tokens[at].token_type == TokenType.VAR:
            behind = _Reader(text, tokens[at + 2 :], end=tokens[at + 1])
            if behind.took("LIMIT"):
                limit = behind.number()
            behind.end()
            tokens, emits = tokens[:at], True
            break
    if not tokens:
        raise SqlError("EXPLAIN and EMIT CHANGES stand beside a query")
    try:
        trees = _DIALECT.parser().parse(list(tokens), text)
    except ParseError as error:
        raise _misread(error, text, tokens) from error
    tree = trees[0]
    if len(trees) != 1 or not isinstance(tree, (exp.Query, exp.Values, exp.Summarize, exp.Copy, exp.Pivot)):
        raise SqlError(at_place("this is no query that is known here", text, tokens[0].start))
    return Query(text, tree, emits, limit)


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


class _Reader:
    """The tokens of a frame, one after another."""

    def __init__(self, text: str, tokens: Sequence[Token], end: Token | None = None) -> None:
        self.text = text
        self._tokens = list(tokens)
        self._at = 0
        self._end = tokens[-1] if tokens else end

    def next(self) -> Token:
        """The next token; ``SqlError`` where there is none."""
        if self._at >= len(self._tokens):
            self.refuse("the statement ends too early")
        self._at += 1
        return self._tokens[self._at - 1]

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


def _show(reader: _Reader) -> Show:
    reader.took("ALL")
    for what in ("TOPICS", "STREAMS", "TABLES"):
        if reader.took(what):
            return Show(what.lower())
    if reader.took("QUERIES"):
        reader.refuse(f"SHOW QUERIES: {_NOT_YET}")
    reader.refuse("SHOW TOPICS, SHOW STREAMS or SHOW TABLES is expected here")


def _describe(reader: _Reader) -> Describe:
    reader.took("EXTENDED")
    name, start = reader.name()
    reader.took("EXTENDED")
    return Describe(name, reader.text, start)


def _drop(reader: _Reader) -> Drop:
    if not reader.took("STREAM"):
        reader.want("TABLE")
    if_exists = reader.took("IF", "EXISTS")
    name, _ = reader.name()
    return Drop(name, if_exists)


def _set(reader: _Reader) -> Set:
    name, _ = reader.name()
    if not reader.took("="):
        reader.want("TO")
    return Set(name.lower(), reader.value())


def _unset(reader: _Reader) -> Set:
    name, _ = reader.name()
    return Set(name.lower(), None)


def _create(reader: _Reader) -> Create:
    replaces = reader.took("OR", "REPLACE")
    reader.took("SOURCE")
    kind = "STREAM" if reader.took("STREAM") else "TABLE"
    if kind == "TABLE":
        reader.want("TABLE")
    if_not_exists = reader.took("IF", "NOT", "EXISTS")
    name, _ = reader.name()
    columns: list[DeclaredColumn] = []
    if reader.took("("):
        while True:
            columns.append(_column(reader))
            if not reader.took(","):
                break
        reader.want(")")
    options = _options(reader) if reader.took("WITH") else {}
    if reader.took("AS"):
        reader.refuse(f"CREATE {kind} AS SELECT: {_NOT_YET}")
    return Create(kind, name, tuple(columns), options, replaces, if_not_exists)


def _column(reader: _Reader) -> DeclaredColumn:
    name, _ = reader.name()
    tokens = reader.up_to_comma()
    is_key = False
    while tokens and tokens[-1].text.upper() in ("KEY", "PRIMARY KEY", "PRIMARY"):
        tokens.pop()
        is_key = True
    if not tokens:
        reader.refuse(f"the type of {name} is expected here")
    begin, end = tokens[0].start, tokens[-1].end + 1
    text = reader.text[begin:end]
    wanted = _TYPES_OF_KSQLDB.get(text.upper(), text)
    try:
        kind = exp.DataType.build(wanted, dialect=_DIALECT)
    except (SqlglotError, ValueError) as error:
        raise SqlError(at_place(f"{text} is no type", reader.text, begin, end - begin)) from error
    return DeclaredColumn(name, kind.sql(dialect=_DIALECT), is_key)


def _options(reader: _Reader) -> dict[str, str]:
    """``(topic='orders', format='json')``, by lower-case names."""
    reader.want("(")
    found: dict[str, str] = {}
    while True:
        name, start = reader.name()
        if name.lower() in found:
            raise SqlError(at_place(f"{name} is given twice", reader.text, start, len(name)))
        reader.want("=")
        found[name.lower()] = reader.value()
        if not reader.took(","):
            break
    reader.want(")")
    return found
