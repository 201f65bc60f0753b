"""Declarations that the cluster keeps: records of a compacted topic, so that another session finds them.

Owns the records' form.  The key is a name in lower case, and the value a JSON object; a tombstone is DROP.  The topic
has one partition, and of two sessions that declare one name at a time the last one wins.

Invariant: what a record says is data.  Its writer may be another user than the one who asks, so that its types are made
anew, and no file is read because of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

from pybroker.sql.fetching.record_columns import KEY, VALUE, Position, next_offset, raw_batches
from pybroker.sql.parsing.column_types import column_type
from pybroker.sql.relations.catalog import Catalog, Column, Format, Relation
from pybroker.sql.relations.cluster_port import Cluster, Written
from pybroker.sql.relations.format_options import reads_a_file
from pybroker.sql.sql_errors import Interrupted

TOPIC: Final = "sql-declarations"
SETTINGS: Final = {"cleanup.policy": "compact"}
_KINDS: Final = ("STREAM", "TABLE")
_FETCH_BYTES: Final = 1 << 20
_WAIT_MS: Final = 100


class KeptDeclarations:
    """The topic as far as it was read."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self._offset = 0

    def refresh(self, cluster: Cluster, catalog: Catalog) -> None:
        """Have the catalog know what was declared and dropped since the last time; raises what the cluster says.

        A user who may not see the topic knows no declarations.
        """
        if not self._is_seen(cluster):
            return
        end = cluster.bounds(self.topic, [0])[0].end
        while self._offset < end:
            fetched = cluster.fetch(self.topic, {0: self._offset}, _FETCH_BYTES, _WAIT_MS)
            following = [offset for each in fetched if (offset := next_offset(each)) is not None]
            if not following:
                return
            for each in fetched:
                for batch in raw_batches(each, Position(self._offset, end), [KEY, VALUE]):
                    for key, value in _texts(batch):
                        catalog.keep(key, relation_read(value))
            self._offset = following[0]

    def _is_seen(self, cluster: Cluster) -> bool:
        try:
            return cluster.partitions(self.topic) is not None
        except Interrupted:
            raise
        except Exception:  # whatever the cluster says; if it is away, the statement itself tells it
            return False


def record_of(relation: Relation) -> Written:
    """The record that declares a relation."""
    return Written(relation.name.lower().encode(), json.dumps(asdict(relation), separators=(",", ":")).encode())


def relation_read(text: str | None) -> Relation | None:
    """The relation of a record's value; None for a tombstone, and for what no declaration of this version says."""
    try:
        said = json.loads(text) if text else None
        if not isinstance(said, dict):
            return None
        columns = tuple(_column(**each) for each in said["columns"])
        found = Relation(**{**said, "columns": columns, "format": Format(said["format"])})
        return found if _is_sound(found) else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def as_kept(relation: Relation) -> Relation | None:
    """A declaration as another session reads it: types may have other spellings."""
    value = record_of(relation).value
    return None if value is None else relation_read(value.decode())


def _column(name: str, type: str, field: str = "", is_key: bool = False) -> Column:
    return Column(name, column_type(type), field, is_key is True)


def _is_sound(relation: Relation) -> bool:
    options = relation.options
    texts = [relation.name, relation.topic, relation.query or "", *options, *options.values()]
    texts += [text for each in relation.columns for text in (each.name, each.field)]
    return (
        all(isinstance(text, str) for text in texts)
        and relation.kind in _KINDS
        and len(options.get("delimiter", ",")) == 1
        and not reads_a_file(relation.format, options)
    )


def _texts(batch: Any) -> Iterator[tuple[str, str | None]]:
    for key, value in zip(batch.column(KEY).to_pylist(), batch.column(VALUE).to_pylist(), strict=True):
        if key is not None:
            yield key.decode(errors="replace"), None if value is None else value.decode(errors="replace")
