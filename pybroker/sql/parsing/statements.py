"""What a text asks for: its statements, told apart by their first words.

Owns the routing, and the frames of the statements that DuckDB does not have (CREATE STREAM, SHOW TOPICS, EMIT CHANGES).
Tokens, queries and types are read by sqlglot in DuckDB's dialect.  Pure.

Every refusal is a ``SqlError`` that shows the place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from pybroker.sql.parsing.column_types import column_type, with_double_quotes
from pybroker.sql.parsing.ksql_statements import elsewhere
from pybroker.sql.parsing.standing_selects import StandingSelect, standing_select
from pybroker.sql.parsing.token_reader import TokenReader, tokens_of, tree_of
from pybroker.sql.sql_errors import SqlError, TooDeep, at_place, nearest

# With what a query may begin.
_QUERIES: Final = ("SELECT", "WITH", "FROM", "VALUES", "(", "PIVOT", "UNPIVOT", "SUMMARIZE", "COPY")
# Types by their names in ksqlDB, where DuckDB has another one.
_TYPES_OF_KSQLDB: Final = {"BYTES": "BLOB"}
WORDS: Final = (
    *("SELECT", "EXPLAIN", "SHOW", "DESCRIBE", "CREATE", "INSERT", "DROP"),
    *("PAUSE", "RESUME", "TERMINATE", "SET", "HELP", "EXIT"),
)


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
class ExplainStanding:
    """What runs for a standing query that is named, or would run for one that is written out."""

    statement: CreateAs | InsertSelect | str


@dataclass(frozen=True, slots=True)
class Show:
    """``what``: topics, streams, tables."""

    what: str


@dataclass(frozen=True, slots=True)
class ShowQueries:
    """The standing queries."""


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
    """A topic's schema.  ``options`` have lower-case names; ``is_temporary``: it is kept for the session alone."""

    kind: str
    name: str
    columns: tuple[DeclaredColumn, ...]
    options: dict[str, str] = field(hash=False)
    replaces: bool = False
    if_not_exists: bool = False
    is_temporary: bool = False


@dataclass(frozen=True, slots=True)
class CreateAs:
    """A standing query that makes a topic's records.  ``options`` are those of the new topic and its format."""

    text: str
    kind: str
    name: str
    options: dict[str, str] = field(hash=False)
    select: StandingSelect
    replaces: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class InsertSelect:
    """A standing query that writes into what is declared already."""

    text: str
    name: str
    start: int
    select: StandingSelect


@dataclass(frozen=True, slots=True)
class InsertValues:
    """Records to write now.  Without ``columns`` the values are those of all columns, in order."""

    name: str
    text: str
    start: int
    columns: tuple[str, ...]
    rows: tuple[exp.Expr, ...]


class Verb(StrEnum):
    """What is done with a standing query by its name."""

    PAUSE = "PAUSE"
    RESUME = "RESUME"
    TERMINATE = "TERMINATE"


@dataclass(frozen=True, slots=True)
class Control:
    """``name`` is None for ALL."""

    verb: Verb
    name: str | None


@dataclass(frozen=True, slots=True)
class Drop:
    """A declaration is forgotten, and the query that made it is ended."""

    kind: str
    name: str
    if_exists: bool
    deletes_topic: bool = False


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


Statement: TypeAlias = (
    Query
    | Explain
    | ExplainStanding
    | Show
    | ShowQueries
    | Describe
    | Create
    | CreateAs
    | InsertSelect
    | InsertValues
    | Control
    | Drop
    | Set
    | Help
    | Exit
)


def statements(text: str) -> list[Statement]:
    """The statements of a text, which semicolons part; raises ``SqlError`` for the first that is none."""
    try:
        return [_statement(text, part) for part in _parted(tokens_of(text))]
    except RecursionError as error:
        raise TooDeep from error


def _parted(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    part: list[Token] = []
    for token in tokens:
        if token.token_type != TokenType.SEMICOLON:
            part.append(token)
            continue
        if part:
            yield part
        part = []
    if part:
        yield part


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
    frames: dict[str, Callable[[TokenReader], Statement]] = {
        "EXPLAIN": _explain,
        "SHOW": _show,
        "LIST": _show,
        "PRINT": _print,
        "DESCRIBE": _describe,
        "DESC": _describe,
        "CREATE": _create,
        "INSERT": _insert,
        "PAUSE": lambda reader: _control(reader, Verb.PAUSE),
        "RESUME": lambda reader: _control(reader, Verb.RESUME),
        "TERMINATE": lambda reader: _control(reader, Verb.TERMINATE),
        "DROP": _drop,
        "SET": _set,
        "UNSET": _unset,
        "HELP": lambda reader: Help(),
        "EXIT": lambda reader: Exit(),
        "QUIT": lambda reader: Exit(),
    }
    reader = TokenReader(text, tokens)
    if (told := elsewhere([token.text.upper() for token in tokens])) is not None:
        reader.refuse(told)
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
            behind = TokenReader(text, tokens[at + 2 :], end=tokens[at + 1])
            if behind.took("LIMIT"):
                limit = behind.number()
            behind.end()
            tokens, emits = tokens[:at], True
            break
    if not tokens:
        raise SqlError("EXPLAIN and EMIT CHANGES stand beside a query")
    tree = tree_of(text, tokens)
    if not isinstance(tree, (exp.Query, exp.Values, exp.Summarize, exp.Copy, exp.Pivot)):
        raise SqlError(at_place("this is no query that is known here", text, tokens[0].start))
    if isinstance(tree, exp.Copy) and tree.args.get("kind"):
        message = "COPY … FROM writes no topic: pybroker produce TOPIC --file FILE does"
        raise SqlError(at_place(message, text, tokens[0].start))
    return Query(text, tree, emits, limit)


def _print(reader: TokenReader) -> Query:
    """``PRINT topic [FROM BEGINNING] [INTERVAL n] [LIMIT n]``: records with their times and keys, as they arrive."""
    name, start = reader.name()
    topic = exp.to_identifier(name, quoted=True)
    topic.meta["start"] = start
    tree = exp.select("_timestamp", "_key", "*").from_(exp.Table(this=topic))
    if reader.took("FROM"):
        reader.want("BEGINNING")
        tree = tree.where("_offset >= 0")
    if reader.took("INTERVAL") or reader.took("SAMPLE"):
        tree = tree.where(f"_offset % {reader.number()} = 0")
    limit = reader.number() if reader.took("LIMIT") else None
    return Query(reader.text, tree, True, limit)


def _explain(reader: TokenReader) -> Explain | ExplainStanding:
    if reader.took("CREATE"):
        found = _create(reader)
        if isinstance(found, Create):
            raise SqlError("a declaration runs nothing: DESCRIBE shows its columns")
        return ExplainStanding(found)
    if reader.took("INSERT"):
        written = _insert(reader)
        if isinstance(written, InsertValues):
            raise SqlError("INSERT … VALUES runs nothing that is to be explained")
        return ExplainStanding(written)
    if reader.word_ahead() not in ("", *_QUERIES):
        return ExplainStanding(reader.name()[0])
    return Explain(_query(reader.text, reader.rest()))


def _show(reader: TokenReader) -> Show | ShowQueries:
    reader.took("ALL")
    for what in ("TOPICS", "STREAMS", "TABLES", "QUERIES"):
        if reader.took(what):
            reader.took("EXTENDED")
            return ShowQueries() if what == "QUERIES" else Show(what.lower())
    reader.refuse("SHOW TOPICS, SHOW STREAMS, SHOW TABLES or SHOW QUERIES is expected here")


def _describe(reader: TokenReader) -> Describe:
    reader.took("EXTENDED")
    name, start = reader.name()
    reader.took("EXTENDED")
    return Describe(name, reader.text, start)


def _drop(reader: TokenReader) -> Drop:
    kind = _kind(reader)
    if_exists = reader.took("IF", "EXISTS")
    name, _ = reader.name()
    return Drop(kind, name, if_exists, reader.took("DELETE", "TOPIC"))


def _set(reader: TokenReader) -> Set:
    name, _ = reader.name()
    if not reader.took("="):
        reader.want("TO")
    return Set(name.lower(), reader.value())


def _unset(reader: TokenReader) -> Set:
    name, _ = reader.name()
    return Set(name.lower(), None)


def _create(reader: TokenReader) -> Create | CreateAs:
    replaces = reader.took("OR", "REPLACE")
    is_temporary = reader.took("TEMP") or reader.took("TEMPORARY")
    reader.took("SOURCE")
    kind = _kind(reader)
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
        if columns:
            reader.refuse(f"the columns of CREATE {kind} AS are those of its SELECT")
        if is_temporary:
            reader.refuse("a query that runs on is kept by its supervisor: it is not temporary")
        select = standing_select(reader.text, reader.rest())
        return CreateAs(reader.statement, kind, name, options, select, replaces, if_not_exists)
    return Create(kind, name, tuple(columns), options, replaces, if_not_exists, is_temporary)


def _kind(reader: TokenReader) -> str:
    if reader.took("STREAM"):
        return "STREAM"
    reader.want("TABLE")
    return "TABLE"


def _insert(reader: TokenReader) -> InsertSelect | InsertValues:
    reader.want("INTO")
    name, start = reader.name()
    columns: list[str] = []
    if reader.took("("):
        while True:
            columns.append(reader.name()[0])
            if not reader.took(","):
                break
        reader.want(")")
    rest = reader.rest()
    if rest and rest[0].text.upper() == "VALUES":
        tree = tree_of(reader.text, rest)
        values = tree if isinstance(tree, exp.Values) else tree.find(exp.Values)
        if values is None:
            raise SqlError(at_place("rows are expected here", reader.text, rest[0].start))
        return InsertValues(name, reader.text, start, tuple(columns), tuple(values.expressions))
    if columns:
        reader.refuse("INSERT INTO … SELECT names its columns in SELECT alone", rest[0] if rest else None)
    return InsertSelect(reader.statement, name, start, standing_select(reader.text, rest))


def _control(reader: TokenReader, verb: Verb) -> Control:
    if reader.took("ALL"):
        return Control(verb, None)
    reader.took("QUERY")
    return Control(verb, reader.name()[0])


def _column(reader: TokenReader) -> DeclaredColumn:
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
    wanted = _TYPES_OF_KSQLDB.get(text.upper(), with_double_quotes(text))
    try:
        return DeclaredColumn(name, column_type(wanted), is_key)
    except ValueError as error:
        raise SqlError(at_place(f"{text} is no type", reader.text, begin, end - begin)) from error


def _options(reader: TokenReader) -> dict[str, str]:
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
