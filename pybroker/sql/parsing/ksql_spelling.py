"""ksqlDB's spelling of what DuckDB has, too: fields of structs, lambdas, maps, and texts that ``+`` puts together.

Owns which tokens and trees stand for it: they are DuckDB's before anything else looks at them.  Functions that have
another name are ``ksql_functions``'.  Pure.

``a->b`` is a field, unless it is an argument behind another one in a call that takes lambdas, where DuckDB has it for a
lambda.  ``->`` before a text or a number stays what it is to DuckDB: a look into JSON.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from pybroker.sql.parsing.expression_templates import made

_WITH_LAMBDAS: Final = frozenset(
    (
        *("transform", "filter", "reduce", "apply"),
        *(f"{kind}_{what}" for kind in ("list", "array") for what in ("transform", "filter", "reduce", "apply")),
    )
)
_NO_NAMES: Final = (TokenType.STRING, TokenType.NUMBER)
_TEXTS: Final = (exp.DType.VARCHAR, exp.DType.TEXT, exp.DType.CHAR, exp.DType.NCHAR, exp.DType.NVARCHAR)
# By function: what is done, and the type of the result where it is a date.
_SHIFTS: Final = {
    "dateadd": "CAST(_2 + _1 * INTERVAL 1 {} AS DATE)",
    "datesub": "CAST(_2 - _1 * INTERVAL 1 {} AS DATE)",
    "timestampadd": "_2 + _1 * INTERVAL 1 {}",
    "timestampsub": "_2 - _1 * INTERVAL 1 {}",
}
_UNITS: Final = frozenset(("year", "month", "week", "day", "hour", "minute", "second", "millisecond"))
# Which DuckDB adds to a number, or to a time: as 5, or 5 days.  Nothing is given back: there would be too many ways.
_NUMBER_OR_TIME: Final = re.compile(r"\s*+(?:[-+]?[0-9.]++\s*+[a-z]*+\s*+)++", re.IGNORECASE)
_ENTRY: Final = "entry"
_RESPELLED: Final = (
    *(exp.Add, exp.Sub, exp.Anonymous, exp.ArrayFilter),
    *(exp.RegexpExtract, exp.RegexpExtractAll, exp.RegexpReplace),
)
_GROUP: Final = re.compile(r"\$([1-9])")
# Of which a difference is a number of ms.
_EDGES: Final = ("windowstart", "windowend")


def respelled(tokens: Sequence[Token]) -> list[Token]:
    """The tokens as DuckDB has them."""
    found: list[Token] = []
    opened: list[int] = []
    behind = -1  # where the parenthesis was opened that was closed last
    for at, token in enumerate(tokens):
        kind = token.token_type
        spelling: tuple[TokenType, str] | None = None
        if kind == TokenType.L_PAREN:
            opened.append(at)
        elif kind == TokenType.R_PAREN and opened:
            behind = opened.pop()
            spelling = (TokenType.R_BRACE, "}") if found[behind].token_type == TokenType.L_BRACE else None
        elif kind in (TokenType.ARROW, TokenType.FARROW):
            if _is_lambda(tokens, at, opened, behind):
                spelling = (TokenType.ARROW, "->")
            elif kind == TokenType.ARROW and _is_name(tokens, at + 1):
                spelling = (TokenType.DOT, ".")
        elif kind == TokenType.COLON_EQ and opened and _called(tokens, opened[-1]) == "map":
            found[opened[-1]] = _other(tokens[opened[-1]], TokenType.L_BRACE, "{")
            spelling = (TokenType.COLON, ":")
        found.append(token if spelling is None else _other(token, *spelling))
    return found


def _other(token: Token, kind: TokenType, text: str) -> Token:
    return Token(kind, text, token.line, token.col, token.start, token.end)


def _called(tokens: Sequence[Token], opened: int) -> str:
    """The name before a parenthesis, in lower case."""
    return tokens[opened - 1].text.lower() if opened else ""


def _is_name(tokens: Sequence[Token], at: int) -> bool:
    if at >= len(tokens) or tokens[at].token_type in _NO_NAMES:
        return False
    return tokens[at].token_type == TokenType.IDENTIFIER or tokens[at].text[:1].isalpha() or tokens[at].text[:1] == "_"


def _is_lambda(tokens: Sequence[Token], at: int, opened: Sequence[int], behind: int) -> bool:
    """Whether the arrow stands behind the arguments of a lambda: a name, or several in parentheses."""
    if not opened or _called(tokens, opened[-1]) not in _WITH_LAMBDAS:
        return False
    first = behind if tokens[at - 1].token_type == TokenType.R_PAREN else at - 1
    return first > 0 and tokens[first - 1].token_type == TokenType.COMMA


def respell(tree: exp.Expr) -> None:
    """Have DuckDB's expressions in place of ksqlDB's."""
    for node in reversed(list(tree.find_all(*_RESPELLED))):
        other = _in_duckdb(node)
        if other is not None:
            node.replace(other)
    for select in tree.find_all(exp.Select):
        for each in list(select.expressions):
            # A field of something else than a column, which engines name otherwise.
            if isinstance(each, exp.Dot) and not isinstance(each.expression, exp.Star):
                each.replace(exp.alias_(each.copy(), each.expression.copy()))


def _in_duckdb(node: exp.Expr) -> exp.Expr | None:
    """None where DuckDB means the same."""
    if isinstance(node, exp.Add):
        return _joined(node) if _is_text(node.left) or _is_text(node.right) else None
    if isinstance(node, exp.Sub):
        edges = (node.left, node.right)
        is_length = all(isinstance(each, exp.Column) and each.name.lower() in _EDGES for each in edges)
        return made("unix_timestamp(_0) - unix_timestamp(_1)", "duckdb", edges) if is_length else None
    if isinstance(node, exp.RegexpExtract | exp.RegexpExtractAll):
        return _with_text_first(node)
    if isinstance(node, exp.RegexpReplace):
        return None if node.args.get("modifiers") else _replacing_all(node)
    if isinstance(node, exp.ArrayFilter):
        kept = _over_entries(node.expression)
        return None if kept is None else _map_of(exp.ArrayFilter(this=_entries(node.this), expression=kept))
    name, arguments = node.name.lower(), node.expressions
    if name == "transform" and len(arguments) == 3:
        key, value = map(_over_entries, arguments[1:])
        return None if key is None or value is None else _transformed_map(arguments[0], key, value)
    if name in _SHIFTS and len(arguments) == 3 and isinstance(arguments[0], exp.Column):
        unit = arguments[0].name.lower().removesuffix("s")
        return made(_SHIFTS[name].format(unit), "duckdb", arguments) if unit in _UNITS else None
    return None


def _is_text(node: exp.Expr) -> bool:
    """Whether an expression is a text by its looks, and no number or span of time in quotes."""
    if isinstance(node, exp.Paren):
        return _is_text(node.this)
    if isinstance(node, exp.Cast):
        return node.to.this in _TEXTS
    return isinstance(node, exp.DPipe) or (node.is_string and not _NUMBER_OR_TIME.fullmatch(node.name))


def _joined(node: exp.Expr) -> exp.Expr:
    """What one text among them makes of all that ``+`` stands between."""
    if not isinstance(node, exp.Add):
        return node.copy()
    return exp.DPipe(this=_joined(node.left), expression=_joined(node.right))


def _replacing_all(node: exp.RegexpReplace) -> exp.Expr:
    """What ksqlDB does, and Spark: DuckDB would replace the first match alone.  A group is ``$1`` to them."""
    other = node.copy()
    other.set("modifiers", exp.Literal.string("g"))
    replacement = node.args.get("replacement")
    if replacement is not None and replacement.is_string and node.expression.is_string:
        with suppress(re.error):
            count = re.compile(node.expression.name).groups
            text = _GROUP.sub(lambda at: f"\\{at[1]}" if int(at[1]) <= count else at[0], replacement.name)
            other.set("replacement", exp.Literal.string(text))
    return other


def _with_text_first(node: exp.RegexpExtract | exp.RegexpExtractAll) -> exp.Expr | None:
    """ksqlDB has the pattern first, and DuckDB the text: of a constant and a column the constant is the pattern."""
    if not node.this.is_string or node.expression.is_string:
        return None
    other = node.copy()
    other.set("this", node.expression.copy())
    other.set("expression", node.this.copy())
    return other


def _entries(of: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this="MAP_ENTRIES", expressions=[of.copy()])


def _map_of(entries: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this="MAP_FROM_ENTRIES", expressions=[entries])


def _over_entries(node: exp.Expr) -> exp.Lambda | None:
    """A lambda of a map's key and value as one of its entry; None for a lambda of something else."""
    if not isinstance(node, exp.Lambda) or len(node.expressions) != 2:
        return None
    fields = {each.name.lower(): field for each, field in zip(node.expressions, ("key", "value"), strict=True)}

    def of_entry(each: exp.Expr) -> exp.Expr:
        field = fields.get(each.name.lower()) if isinstance(each, exp.Identifier) and not _is_field(each) else None
        return each if field is None else exp.Dot(this=exp.to_identifier(_ENTRY), expression=exp.to_identifier(field))

    return exp.Lambda(this=node.this.copy().transform(of_entry), expressions=[exp.to_identifier(_ENTRY)])


def _is_field(node: exp.Expr) -> bool:
    """Whether a name is behind a point."""
    return isinstance(node.parent, exp.Dot) and node.parent.expression is node


def _transformed_map(of: exp.Expr, key: exp.Lambda, value: exp.Lambda) -> exp.Expr:
    pair = exp.Struct(
        expressions=[
            exp.PropertyEQ(this=exp.to_identifier(name), expression=each.this)
            for name, each in (("k", key), ("v", value))
        ]
    )
    return _map_of(exp.Transform(this=_entries(of), expression=exp.Lambda(this=pair, expressions=key.expressions)))
