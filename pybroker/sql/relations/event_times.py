"""Times of records that a column says: the options ``timestamp`` and ``timestamp_format`` of a declaration.

Owns the options, and which columns may be a time: a timestamp, a whole number of ms since 1970, or a text.  Such a
column is ``_timestamp`` to questions and to windows.  The pattern of a text is Java's, as ksqlDB and Spark have it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Final

from pybroker.sql.relations.catalog import Column, Relation
from pybroker.sql.sql_errors import SqlError, nearest

TIME: Final = "timestamp"
PATTERN: Final = "timestamp_format"
OPTIONS: Final = (TIME, PATTERN)
# As DuckDB and Spark name types.
_NUMBERS: Final = ("BIGINT", "INTEGER", "INT")
_TEXTS: Final = ("VARCHAR", "TEXT", "STRING")


class TimeKind(Enum):
    """What a column has in place of a time."""

    TEXT = auto()
    NUMBER = auto()
    TIME = auto()


def time_column(columns: Sequence[Column], options: Mapping[str, str]) -> Column | None:
    """The column that is the time of a record; None where that is the record's own."""
    name = options.get(TIME)
    return None if name is None else next((each for each in columns if each.name.lower() == name.lower()), None)


def kind_of(column: Column) -> TimeKind | None:
    """None for a column that can be no time."""
    if column.type in _TEXTS:
        return TimeKind.TEXT
    if column.type in _NUMBERS:
        return TimeKind.NUMBER
    return TimeKind.TIME if column.type.startswith("TIMESTAMP") else None


def check_time(relation: Relation) -> None:
    """``SqlError`` for a time that its relation has not, or that is none."""
    options, name = relation.options, relation.options.get(TIME)
    if name is None:
        if PATTERN in options:
            raise SqlError(f"{PATTERN} is that of a column, which {TIME} names")
        return
    column = time_column(relation.columns, options)
    if column is None:
        known = [each.name for each in relation.columns]
        raise SqlError(f"{relation.name}: {TIME} names a column, and there is no {name}{nearest(name, known)}")
    kind = kind_of(column)
    if column.is_key or kind is None:
        raise SqlError(f"{relation.name}: {TIME} is a column of the value, a timestamp, a text or a BIGINT of ms")
    if PATTERN in options and kind is not TimeKind.TEXT:
        raise SqlError(f"{PATTERN} is for texts, and {column.name} is {column.type}")
