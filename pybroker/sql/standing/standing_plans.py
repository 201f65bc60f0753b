"""The plan of a standing query: which topics are read as which views, Spark's SQL over them, and what is written.

Owns the plan's form as JSON, and the declaration by which a supervisor keeps it.  A plan is values alone: what runs it
needs no parser of SQL, and no catalog.  Plans are made by ``spark_plans``.  Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, TypeAlias

from pybroker.sql.relations.catalog import Column, Format

# The ``connector.class`` of a standing query.
STANDING_QUERY: Final = "StandingQuery"
# How often it looks for news: often, for somebody waits for its rows.
POLL_INTERVAL_MS: Final = "200"

# The option of a source of CSV that says how many fields a line has; a column's field is its place among them.
WIDTH: Final = "width"

# The column that has a record's time, beside those that are written: that of the record which a row is made of.
RECORD_TIME: Final = "__record_time"

JoinKind: TypeAlias = Literal["inner", "left", "right", "outer"]


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """A topic as a view.  ``columns`` have Spark's types; ``grace_ms`` is how far its watermark is behind, or None.

    ``alias`` is the column that has its row, in a join with a table.  A record that does not fit ends the query with
    ``stops``, and is left out and counted without.
    """

    view: str
    topic: str
    format: Format
    columns: tuple[Column, ...]
    options: dict[str, str] = field(hash=False)
    grace_ms: int | None = None
    alias: str = ""
    stops: bool = False


@dataclass(frozen=True, slots=True)
class TableJoin:
    """A join with a table by its key.  ``key`` is Spark's SQL over the rows before it, or "" for their own key.

    ``key_type`` is what the query takes the table's key for.  Two tables by their own keys alone have all of ``how``;
    the others are ``inner`` or ``left``.
    """

    key: str
    key_type: str
    how: JoinKind


@dataclass(frozen=True, slots=True)
class TableQuery:
    """What a query over tables has beside its joins.  All of it is Spark's SQL over a row.

    ``group``, "" for none, is a struct of what the rows are grouped by, null for a row that is in no group.  ``sums``
    and ``lists`` are what is added up and gathered in each group (``pybroker.pipeline.regroup``).  ``told`` has the
    user's words for each of them.
    """

    group: str = ""
    sums: tuple[tuple[str, str], ...] = ()
    lists: tuple[tuple[str, str], ...] = ()
    told: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class WrittenValue:
    """As what a row is written: JSON, Avro or Protobuf.  ``options`` are ``schema`` and ``message``."""

    format: Format = Format.JSON
    options: dict[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class SparkPlan:
    """``sql`` is Spark's, over the views.  ``key`` names those of its columns that make a record's key.

    ``mode`` is Spark's output mode: ``append`` tells a row once, ``update`` at each of its changes.  With ``joins`` the
    first source is a stream, and each next one the table of a join; there is one view, by the first one's name.

    With ``table`` all sources are tables, and there are no views: ``sql`` is the expression of a row, null where the
    new table has none.
    """

    sources: tuple[SourcePlan, ...]
    sql: str
    mode: str
    key: tuple[str, ...]
    joins: tuple[TableJoin, ...] = ()
    value: WrittenValue = WrittenValue()
    table: TableQuery | None = None

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def plan_read(document: dict[str, Any]) -> SparkPlan:
    """The plan that ``document()`` gave."""
    sources = tuple(
        SourcePlan(
            **{
                **each,
                "format": Format(each["format"]),
                "columns": tuple(Column(**column) for column in each["columns"]),
            }
        )
        for each in document["sources"]
    )
    joins = tuple(TableJoin(**each) for each in document.get("joins", ()))
    value = (
        WrittenValue(**{**said, "format": Format(said["format"])})
        if (said := document.get("value"))
        else WrittenValue()
    )
    table = _table_query(document.get("table"))
    return SparkPlan(sources, document["sql"], document["mode"], tuple(document["key"]), joins, value, table)


def _table_query(document: dict[str, Any] | None) -> TableQuery | None:
    if document is None:
        return None
    # A plan that an earlier version made has no words.
    parts = (document.get(field, ()) for field in ("sums", "lists", "told"))
    sums, lists, told = (tuple((name, text) for name, text in part) for part in parts)
    return TableQuery(document["group"], sums, lists, told)


def topics_of(plan: SparkPlan) -> Iterator[str]:
    """The topics that a plan reads, in order."""
    yield from dict.fromkeys(source.topic for source in plan.sources)


def declaration(plan: SparkPlan, topic: str, statement: str, begins: str) -> dict[str, str]:
    """The configuration with which a supervisor runs a plan that writes ``topic``.

    ``begins``, ``earliest`` or ``latest``, is where it starts to read; ``statement`` is for people.
    """
    return {
        "connector.class": STANDING_QUERY,
        "topics": ",".join(topics_of(plan)),
        "topic": topic,
        "statement": statement,
        "plan": json.dumps(plan.document(), separators=(",", ":")),
        "consumer.override.auto.offset.reset": begins,
        "poll.interval.ms": POLL_INTERVAL_MS,
    }
