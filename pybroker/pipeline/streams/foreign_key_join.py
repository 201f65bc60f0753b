"""Joins two tables that change, where a value of the left one names a key of the right one.

Two states in a row.  The first is keyed by the left key: it knows which foreign key a row had, and sends its news to
the old and to the new one.  The second is keyed by the foreign key: it has the right value and all left rows that name
it.  Each gathers what a micro-batch brings of its key before it says anything.

Invariants: the result has one row per left key and micro-batch at most. A left row that moves is reported by its new
foreign key alone, since two tasks have no order among each other. The old key is silent, and the new one emits a
tombstone (``tells``) where it has no match.

Counterpart: KTable.join and leftJoin with a foreign key extractor (KIP-213), and its instructions of subscriptions.
"""

from collections.abc import Iterator
from typing import Any, Literal

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from pybroker.pipeline.streams.arrival import in_order
from pybroker.pipeline.streams.columns import as_table, as_text, check_same_keys, check_table, place, text_of
from pybroker.pipeline.streams.table_join import JOINED, is_match


def join_foreign_key(
    left: DataFrame, right: DataFrame, foreign_key: Column | str, *, how: Literal["inner", "left"] = "inner"
) -> DataFrame:
    """The table of the left ``key``, ``value`` (``left`` and ``right``; null where the match has ended), ``timestamp``.

    ``foreign_key`` is made of the left table's columns, such as ``value.customer``; a row where it is null matches
    nothing.  The timestamp is that of the right row where that changed, the newer of both where the left one did.
    """
    check_table(left, "the left table")
    check_table(right, "the right table")
    named = F.expr(foreign_key) if isinstance(foreign_key, str) else foreign_key
    foreign = left.select(named.alias("key")).schema["key"].dataType
    check_same_keys(foreign, right.schema["key"].dataType)
    rows = left.where("key is not null").select(
        as_text(named, foreign, "of the foreign key").alias("foreign_key"),
        text_of(left, "key").alias("key"),
        text_of(left, "value").alias("text"),
        *place(left),
    )
    news = rows.groupBy("key").transformWithState(_Subscriptions(), _SUBSCRIPTION, "append", "none")
    changes = right.where("key is not null").select(
        text_of(right, "key").alias("key"),
        F.lit(None).cast("string").alias("left"),
        text_of(right, "value").alias("text"),
        *place(right),
    )
    both = news.unionByName(changes, allowMissingColumns=True)
    joined = both.groupBy("key").transformWithState(_Join(how), JOINED, "append", "none")
    key, value = (left.schema[name].dataType for name in ("key", "value"))
    return as_table(joined, key, value, right.schema["value"].dataType)


# What the first state tells the second.  ``key`` is the foreign key, ``left`` the left one, null in rows of the right.
_SUBSCRIPTION = StructType(
    [
        StructField("key", StringType()),
        StructField("left", StringType()),
        StructField("text", StringType()),
        StructField("tells", BooleanType()),
        StructField("at", LongType()),
    ]
)


class _Subscriptions(StatefulProcessor):
    """Of a left key: its foreign key."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("foreign_key", "foreign_key string")

    def handleInputRows(self, key: tuple[Any, ...], rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        known = self._state.get()
        last = in_order(rows)[-1]
        if last.text is None:
            if known:
                yield Row(key=known[0], left=key[0], text=None, tells=True, at=last.at)
                self._state.clear()
            return
        has_moved = known is not None and known[0] != last.foreign_key
        if known is not None and has_moved:
            yield Row(key=known[0], left=key[0], text=None, tells=False, at=last.at)
        yield Row(key=last.foreign_key, left=key[0], text=last.text, tells=has_moved, at=last.at)
        self._state.update((last.foreign_key,))

    def close(self) -> None:
        """Nothing is open."""


class _Join(StatefulProcessor):
    """Of a foreign key: the right value, and the left rows that name it."""

    def __init__(self, how: Literal["inner", "left"]) -> None:
        self._how: Literal["inner", "left"] = how

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._right = handle.getValueState("right", "text string, at bigint")
        self._lefts = handle.getMapState("left", "key string", "text string")

    def handleInputRows(self, key: tuple[Any, ...], rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        arrived = list(rows)
        known = self._right.get()
        before = known[0] if known else None
        changes = in_order(row for row in arrived if row.left is None)
        after, after_at = (changes[-1].text, changes[-1].at) if changes else (known or (None, None))
        if changes:
            self._keep_right(after, after_at)
        news: dict[str, tuple[str | None, int]] = {}
        if before != after:
            news = {left: (text, changes[-1].at) for (left,), (text,) in self._lefts.iterator()}
        for row in arrived:
            if row.left is None:
                continue
            is_emitted = news.pop(row.left, None) is not None or row.tells or is_match(row.text, after, self._how)
            self._keep_left(row.left, row.text)
            if is_emitted and (row.text is not None or row.tells):
                news[row.left] = (row.text, row.at if after is None else max(row.at, after_at))
        for left, (text, at) in news.items():
            yield Row(key=left, is_match=is_match(text, after, self._how), left=text, right=after, at=at)

    def close(self) -> None:
        """Nothing is open."""

    def _keep_right(self, text: str | None, at: int | None) -> None:
        if text is not None:
            self._right.update((text, at))
        else:
            self._right.clear()

    def _keep_left(self, left: str, text: str | None) -> None:
        if text is not None:
            self._lefts.updateValue((left,), (text,))
        elif self._lefts.containsKey((left,)):
            self._lefts.removeKey((left,))
