"""Joins a stream with a table that changes: each record meets the value that its key has when it comes.

Spark's own join of a stream with a static table reads the table anew in each micro-batch, and its stream-stream join
keeps every version. Neither has one current value per key.

Invariants: the state has one value per key, or with a ``history`` its `Versions`.  A record that came before its key's
value is not joined with it later, as in Kafka Streams.  Within a micro-batch records and changes are taken by their
timestamps (`arrival`).

Counterpart: KStream.join and leftJoin with a KTable, and with a versioned one (KIP-889, KIP-914).
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Literal

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from pybroker.pipeline.streams.arrival import merged
from pybroker.pipeline.streams.columns import (
    RIGHT,
    as_text,
    check_same_keys,
    check_table,
    checked,
    from_text,
    side_by_side,
    text_of,
)
from pybroker.pipeline.streams.versions import Versions


def join_stream_table(
    stream: DataFrame,
    table: DataFrame,
    *,
    how: Literal["inner", "left"] = "inner",
    into: str = "table",
    history: timedelta | None = None,
) -> DataFrame:
    """The stream's columns, and in ``into`` the value that the table has for the record's ``key``, null for none.

    ``stream`` has ``key``, ``timestamp`` and whatever else.  Records with a ``value`` of null are dropped, and by an
    inner join those without a match or a key.

    A record meets the value that the table has when it comes; with a ``history`` the one that held at the record's
    timestamp, as far as the changes have come.  Changes are kept for so long, and deletions for good.
    """
    check_table(table, "the table")
    key_kind = table.schema["key"].dataType
    check_same_keys(stream.schema["key"].dataType, key_kind)
    # Names are the same to Spark whatever their case.
    if into.lower() in (name.lower() for name in stream.columns):
        raise ValueError(f"the stream has a column {into} already: name another one by into")
    records = stream if how == "left" else stream.where("key is not null")
    if "value" in stream.columns:
        records = records.where("value is not null")
    changes = table.where("key is not null").withColumn("key", checked(F.col("key"), key_kind, "key"))
    record_text = as_text(F.struct(*stream.columns), stream.schema, "")
    both = side_by_side(records, record_text, changes, text_of(table, "value"))
    out = "record string, value string"
    is_left = how == "left"
    processor = _Join(is_left) if history is None else _VersionedJoin(is_left, history // timedelta(microseconds=1))
    joined = both.groupBy("key").transformWithState(processor, out, "append", "none")
    value = from_text(F.col("value"), table.schema["value"].dataType)
    read = joined.select(from_text(F.col("record"), stream.schema).alias("record"), value.alias(into))
    return read.select("record.*", into)


class _Join(StatefulProcessor):
    def __init__(self, is_left: bool) -> None:
        self._is_left = is_left

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("table", "text string")

    def handleInputRows(self, key: tuple[Any, ...], rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        known = self._state.get()
        value = known[0] if known else None
        arrived = list(rows)
        changes = [row for row in arrived if row.side == RIGHT]
        for row in merged(changes, [row for row in arrived if row.side != RIGHT]):
            if row.side == RIGHT:
                value = row.text
            elif value is not None or self._is_left:
                yield Row(record=row.text, value=value)
        if not changes:
            return
        if value is not None:
            self._state.update((value,))
        elif known:
            self._state.clear()

    def close(self) -> None:
        """Nothing is open."""


class _VersionedJoin(StatefulProcessor):
    def __init__(self, is_left: bool, history_us: int) -> None:
        self._is_left = is_left
        self._history_us = history_us

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("versions", "kept string")

    def handleInputRows(self, key: tuple[Any, ...], rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        known = self._state.get()
        versions = Versions(self._history_us, known[0] if known else None)
        arrived = list(rows)
        changes = [row for row in arrived if row.side == RIGHT]
        for row in merged(changes, [row for row in arrived if row.side != RIGHT]):
            if row.side == RIGHT:
                versions.put(row.at, row.text)
                continue
            value = versions.at(row.at)
            if value is not None or self._is_left:
                yield Row(record=row.text, value=value)
        if changes:
            self._state.update((versions.kept(),))

    def close(self) -> None:
        """Nothing is open."""
