"""Tables of compacted topics: as they are now, and what each change was.

Owns what a key's last value is.  A null value is a tombstone: the key is not in the table.

Counterparts: Kafka Streams' KTable, and of `latest` its GlobalKTable.
"""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import LongType, StringType, StructField, StructType

from pybroker.pipeline.streams.arrival import in_order
from pybroker.pipeline.streams.columns import check_table, from_text, place, text_of


def latest(records: DataFrame) -> DataFrame:
    """The last record of each key, without deleted keys and records without a key; for a batch.

    ``records`` has the columns of a topic.  Offsets tell what is last in a partition, and timestamps where a key is in
    several, which happens when a topic is given more of them.
    """
    row = F.struct(*records.columns)
    by_partition = (
        records.where("key is not null").groupBy("key", "partition").agg(F.max_by(row, "offset").alias("row"))
    )
    by_key = by_partition.groupBy("key").agg(F.max_by("row", F.struct("row.timestamp", "row.offset")).alias("row"))
    return by_key.select("row.*").where("value is not null")


def changes(table: DataFrame) -> DataFrame:
    """Each change of a streaming table, with what it changes: ``key``, ``before``, ``after``, ``timestamp``.

    ``before`` is null for a key that was not there, ``after`` for one that is deleted; a tombstone of a key that was
    not there is no change.  The table's last values are kept as state.
    """
    check_table(table, "the table")
    kind = table.schema["value"].dataType
    key, text = text_of(table, "key").alias("key"), text_of(table, "value").alias("text")
    rows = table.where("key is not null").select(key, *place(table), text)
    changed = rows.groupBy("key").transformWithState(_Changes(), _CHANGE, "append", "none")
    return changed.select(
        from_text(F.col("key"), table.schema["key"].dataType).alias("key"),
        from_text(F.col("before"), kind).alias("before"),
        from_text(F.col("after"), kind).alias("after"),
        F.timestamp_micros("at").alias("timestamp"),
    )


_CHANGE = StructType(
    [
        StructField("key", StringType()),
        StructField("before", StringType()),
        StructField("after", StringType()),
        StructField("at", LongType()),
    ]
)


class _Changes(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("table", "text string")

    def handleInputRows(self, key: tuple[Any, ...], rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        known = self._state.get()
        text = known[0] if known else None
        for row in in_order(rows):
            if text is not None or row.text is not None:
                yield Row(key=key[0], before=text, after=row.text, at=row.at)
            text = row.text
        if text is not None:
            self._state.update((text,))
        elif known:
            self._state.clear()

    def close(self) -> None:
        """Nothing is open."""
