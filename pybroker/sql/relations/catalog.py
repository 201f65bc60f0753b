"""Topics as tables: what a session knows of them, and the columns that each of them has beside its own.

Owns the names: what was declared, what was inferred, which of both a name means, and what is said of a name that means
neither.  Owns no inference (``inference``) and no records.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

# Of every record, whatever its value says.  ``SELECT *`` leaves them out.
PSEUDO_COLUMNS: Final = {
    "_key": "VARCHAR",
    "_partition": "INTEGER",
    "_offset": "BIGINT",
    "_timestamp": "TIMESTAMP",
    "_headers": "STRUCT(key VARCHAR, value VARCHAR)[]",
}
# The one column of rows of which a query uses none: a name that no query has by chance, since it would be known.
NO_COLUMN: Final = " no column "
# The option that names a column of the value whose text each record's key is.
KEY: Final = "key"


class Format(StrEnum):
    """How values are written."""

    JSON = "json"
    CSV = "csv"
    TEXT = "text"
    BYTES = "bytes"
    AVRO = "avro"
    PROTOBUF = "protobuf"


@dataclass(frozen=True, slots=True)
class Column:
    """``type`` is DuckDB's.  ``field`` is the name in the value; ``is_key``: the record's key is what it says."""

    name: str
    type: str
    field: str = ""
    is_key: bool = False


@dataclass(frozen=True, slots=True)
class Relation:
    """A topic as a table.

    ``options`` are those of the format (``delimiter``, ``schema``, ``message``, ``registry_header``), ``key``, and
    those of ``event_times``.  ``query`` is the standing query that CREATE … AS SELECT made with it.
    """

    name: str
    topic: str
    format: Format
    columns: tuple[Column, ...]
    is_declared: bool = False
    kind: str = "STREAM"
    options: dict[str, str] = field(default_factory=dict, hash=False)
    query: str | None = None

    def column(self, name: str) -> Column | None:
        """The column of a name, in any case."""
        return next((each for each in self.columns if each.name.lower() == name.lower()), None)

    def says_as(self, other: Relation | None) -> bool:
        """Whether both are of one text: the names of fields come from records, of which there may be more by now."""
        return other is not None and _without_fields(self) == _without_fields(other)


def _without_fields(relation: Relation) -> Relation:
    return replace(relation, columns=tuple(replace(each, field="") for each in relation.columns))


class Catalog:
    """The relations of a session, by their names in any case: its own, and those that the cluster keeps."""

    def __init__(self) -> None:
        self._own: dict[str, Relation] = {}
        self._kept: dict[str, Relation] = {}
        self._inferred: dict[str, Relation] = {}
        self._fields: dict[str, tuple[str, ...]] = {}

    def declare(self, relation: Relation) -> None:
        """Have a declaration for the session alone, before one of the name that the cluster keeps."""
        self._own[relation.name.lower()] = relation

    def keep(self, name: str, relation: Relation | None) -> None:
        """The cluster keeps this under a name, or nothing."""
        if relation is None:
            self._kept.pop(name.lower(), None)
        else:
            self._kept[name.lower()] = relation

    def forget(self, name: str) -> bool:
        """Forget a declaration of the session's own; whether there was one."""
        return self._own.pop(name.lower(), None) is not None

    def declared(self, name: str) -> Relation | None:
        """What was declared by a name."""
        return self.own(name) or self.kept(name)

    def own(self, name: str) -> Relation | None:
        """What the session alone has under a name."""
        return self._own.get(name.lower())

    def kept(self, name: str) -> Relation | None:
        """What the cluster keeps under a name."""
        return self._kept.get(name.lower())

    def remember(self, relation: Relation) -> None:
        """Keep what was inferred of a topic, so that the next question takes no samples."""
        self._inferred[relation.topic] = relation

    def forget_inferred(self) -> bool:
        """Have all topics without a declaration sampled anew; whether anything was known of one."""
        found, self._inferred = self._inferred, {}
        self._fields.clear()
        return bool(found)

    def remember_fields(self, topic: str, names: tuple[str, ...]) -> None:
        """Keep the names of the fields that a topic's objects have."""
        self._fields[topic] = names

    def fields(self, topic: str) -> tuple[str, ...]:
        """The names of the fields of a topic's objects, as far as they are known."""
        return self._fields.get(topic, ())

    def inferred(self, topic: str) -> Relation | None:
        """What was inferred of a topic before."""
        return self._inferred.get(topic)

    def names(self) -> list[str]:
        """The names that were declared."""
        return [each.name for each in self.relations()]

    def relations(self) -> list[Relation]:
        """What was declared, in the order of the names."""
        return [each for _, each in sorted({**self._kept, **self._own}.items())]

    def known_columns(self) -> set[str]:
        """The columns of all that is known, for completion."""
        known = (*self.relations(), *self._inferred.values())
        return {column.name for relation in known for column in relation.columns} | set(PSEUDO_COLUMNS)


def topic_named(name: str, topics: Iterable[str]) -> str | None:
    """The topic that a name means: of just this spelling, or else the only one of this spelling in any case."""
    known = list(topics)
    if name in known:
        return name
    alike = [each for each in known if each.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None
