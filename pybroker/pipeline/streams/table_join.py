"""Joins two tables that change, by their keys: the result is a table, with a tombstone where a match ends.

Invariants: a key has one row per micro-batch at most, its newest, and none where nothing has changed (Kafka Streams'
record cache, and KIP-557).

Counterpart: KTable.join, leftJoin and outerJoin.
"""

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from pybroker.pipeline.streams.arrival import in_order
from pybroker.pipeline.streams.columns import LEFT, RIGHT, as_table, check_same_keys, check_table, side_by_side, text_of

TableJoin = Literal["inner", "left", "outer"]


def join_tables(left: DataFrame, right: DataFrame, *, how: TableJoin = "inner") -> DataFrame:
    """The table of ``key``, ``value`` (``left`` and ``right``; null where the match has ended) and ``timestamp``.

    The timestamp is the newer one of both sides' last rows, be they older than what they replaced.
    """
    check_table(left, "the left table")
    check_table(right, "the right table")
    check_same_keys(left.schema["key"].dataType, right.schema["key"].dataType)
    key_kind, left_kind = (left.schema[name].dataType for name in ("key", "value"))
    left_table, right_table = (
        table.where("key is not null").withColumn("key", text_of(table, "key")) for table in (left, right)
    )
    both = side_by_side(left_table, text_of(left, "value"), right_table, text_of(right, "value"))
    joined = both.groupBy("key").transformWithState(_Join(how), JOINED, "append", "none")
    return as_table(joined, key_kind, left_kind, right.schema["value"].dataType)


# A join's result.
JOINED = StructType(
    [
        StructField("key", StringType()),
        StructField("is_match", BooleanType()),
        StructField("left", StringType()),
        StructField("right", StringType()),
        StructField("at", LongType()),
    ]
)


def is_match(left: str | None, right: str | None, how: TableJoin) -> bool:
    """Whether the result has a value."""
    if how == "inner":
        return left is not None and right is not None
    return left is not None or (how == "outer" and right is not None)


class _Side(NamedTuple):
    """What a side had last, and when."""

    text: str | None
    at: int


_NOTHING = {LEFT: _Side(None, 0), RIGHT: _Side(None, 0)}


class _Join(StatefulProcessor):
    def __init__(self, how: TableJoin) -> None:
        self._how = how

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("sides", "left string, left_at bigint, right string, right_at bigint")

    def handleInputRows(self, key: tuple[Any, ...], rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        known = self._state.get()
        before = {LEFT: _Side(*known[:2]), RIGHT: _Side(*known[2:])} if known else _NOTHING
        last = {row.side: _Side(row.text, row.at) for row in in_order(rows)}
        after = {**before, **last}
        was_match, matches = (is_match(of[LEFT].text, of[RIGHT].text, self._how) for of in (before, after))
        left, right = after[LEFT], after[RIGHT]
        if was_match != matches or (matches and (left.text, right.text) != (before[LEFT].text, before[RIGHT].text)):
            # A deletion has a time as long as it is news.
            at = max(side.at for name, side in after.items() if name in last or side.text is not None)
            yield Row(key=key[0], is_match=matches, left=left.text, right=right.text, at=at)
        if left.text is not None or right.text is not None:
            self._state.update((*left, *right))
        elif known:
            self._state.clear()

    def close(self) -> None:
        """Nothing is open."""
