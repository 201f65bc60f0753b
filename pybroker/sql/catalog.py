"""Topics as tables: what a session knows of them, and the columns that each of them has beside its own.

Owns the names: what was declared, what was inferred, which of both a name means, and what is said of a name that means
neither.  Owns no inference (``inference``) and no records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from pybroker.sql.sql_errors import SqlError, nearest

# Of every record, whatever its value says.  ``SELECT *`` leaves them out.
PSEUDO_COLUMNS: Final = {
    "_key": "VARCHAR",
    "_partition": "INTEGER",
    "_offset": "BIGINT",
    "_timestamp": "TIMESTAMP",
    "_headers": "STRUCT(key VARCHAR, value VARCHAR)[]",
}


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

    ``options`` are those of the format: ``delimiter``, ``schema``, ``message``, ``registry_header``.
    """

    name: str
    topic: str
    format: Format
    columns: tuple[Column, ...]
    is_declared: bool = False
    kind: str = "STREAM"
    options: dict[str, str] = field(default_factory=dict, hash=False)

    def column(self, name: str) -> Column | None:
        """The column of a name, in any case."""
        return next((each for each in self.columns if each.name.lower() == name.lower()), None)


class Catalog:
    """The relations of a session, by their names in any case."""

    def __init__(self) -> None:
        self._declared: dict[str, Relation] = {}
        self._inferred: dict[str, Relation] = {}

    def declare(self, relation: Relation, *, replaces: bool, if_not_exists: bool) -> bool:
        """Keep a declaration for the session; whether it is new.  Raises ``SqlError`` where the name is taken."""
        name = relation.name.lower()
        if name in self._declared and not replaces:
            if if_not_exists:
                return False
            raise SqlError(f"{relation.name} is declared already; CREATE OR REPLACE {relation.kind} changes it")
        self._declared[name] = relation
        return True

    def drop(self, name: str, *, if_exists: bool) -> None:
        """Forget a declaration; the topic stays."""
        if self._declared.pop(name.lower(), None) is None and not if_exists:
            raise SqlError(f"{name} is not declared{nearest(name, self.names())}")

    def declared(self, name: str) -> Relation | None:
        """What was declared by a name."""
        return self._declared.get(name.lower())

    def remember(self, relation: Relation) -> None:
        """Keep what was inferred of a topic, so that the next question takes no samples."""
        self._inferred[relation.topic] = relation

    def inferred(self, topic: str) -> Relation | None:
        """What was inferred of a topic before."""
        return self._inferred.get(topic)

    def names(self) -> list[str]:
        """The names that were declared."""
        return [each.name for each in self._declared.values()]

    def relations(self) -> list[Relation]:
        """What was declared, in its order."""
        return list(self._declared.values())

    def known_columns(self) -> set[str]:
        """The columns of all that is known, for completion."""
        known = (*self._declared.values(), *self._inferred.values())
        return {column.name for relation in known for column in relation.columns} | set(PSEUDO_COLUMNS)


def topic_named(name: str, topics: Iterable[str]) -> str | None:
    """The topic that a name means: of just this spelling, or else the only one of this spelling in any case."""
    known = list(topics)
    if name in known:
        return name
    alike = [each for each in known if each.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None


def registry_header(options: Mapping[str, str]) -> bool | int:
    """Whether values have a schema registry's header, or which schema's; raises ``SqlError`` for what is neither."""
    text = options.get("registry_header", "false")
    lowered = text.lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    if not lowered.isdigit():
        raise SqlError(f"registry_header is true, false or the id of a schema, not {text}")
    return int(lowered)
