"""A column's type as DuckDB spells it, made anew of a text: what comes of it is a type, and nothing else.

Owns which texts are types.  The texts are users', of declarations of other users among them, and stand in statements
for DuckDB and for Spark.  Pure.
"""

from __future__ import annotations

import re
from typing import ClassVar, Final

import sqlglot
from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import SqlglotError
from sqlglot.generators.duckdb import DuckDBGenerator


class _Spelling(DuckDB):
    """Types by the names that DuckDB tells them by."""

    class Generator(DuckDBGenerator):
        TYPE_MAPPING: ClassVar[dict[exp.DType, str]] = {
            **DuckDBGenerator.TYPE_MAPPING,
            exp.DType.TEXT: "VARCHAR",
            exp.DType.INT: "INTEGER",
            exp.DType.INT128: "HUGEINT",
            exp.DType.UINT128: "UHUGEINT",
        }


_DIALECT: Final = _Spelling()
_WITHOUT_ZONE: Final = (exp.DType.TIMESTAMP, exp.DType.TIMESTAMPNTZ, exp.DType.TIMESTAMP_MS, exp.DType.TIMESTAMP_S)
# All that a type is made of: a default value or a check of a field would be an expression.
_PARTS: Final = (exp.DataType, exp.DataTypeParam, exp.ColumnDef, exp.Identifier, exp.Literal, exp.Interval, exp.Var)

# What is in quotes: a text or a name of DuckDB's stays, a name in ksqlDB's backticks does not.
_IN_QUOTES: Final = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`([^`]+)`""")


def with_double_quotes(text: str) -> str:
    """A type's text, in which names of fields in backticks are in double quotes."""
    return _IN_QUOTES.sub(lambda found: found[0] if found[1] is None else _in_double_quotes(found[1]), text)


def _in_double_quotes(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def parsed_type(text: str) -> exp.DataType:
    """The type that a text spells; raises ValueError for a text that is none, or has more beside one."""
    try:
        found = sqlglot.parse_one(text, dialect=_DIALECT, into=exp.DataType)
    except SqlglotError as error:
        raise ValueError(f"{text} is no type") from error
    if not isinstance(found, exp.DataType) or not all(isinstance(part, _PARTS) for part in found.walk()):
        raise ValueError(f"{text} is no type")
    return found


def column_type(text: str) -> str:
    """The type in DuckDB's spelling; raises ValueError."""
    return parsed_type(text).sql(dialect=_DIALECT)


def type_of_text(text: str) -> str:
    """The type by which texts are read that are to be of this one: a zone in a time counts, and TIMESTAMP has none.

    A cast to TIMESTAMP leaves a zone out, so that 14:00+02:00 would be 14:00 and not 12:00 in UTC.
    """
    if "TIMESTAMP" not in text:
        return text
    tree = parsed_type(text)
    for part in list(tree.find_all(exp.DataType)):
        if part.this in _WITHOUT_ZONE:
            part.set("this", exp.DType.TIMESTAMPTZ)
    return tree.sql(dialect=_DIALECT)
