"""Records that do not fit a standing query: left out and counted, or the end of it.

Owns how Spark counts them, and what is said of them.  Which records do not fit is ``source_rows``'.

Invariants: a record is counted where it is left out, by the query that leaves it out; counts are those of one run.
Counterpart in ksqlDB: the processing log, and ``ksql.fail.on.deserialization.error``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from pybroker.pipeline.observed_metrics import ObservedMetrics

_METRIC: Final = "left out of "
_PLACE: Final = ("topic", "partition", "offset", "error")

_log = logging.getLogger(__name__)


def counted(decoded: DataFrame, view: str) -> DataFrame:
    """``decoded``, of which Spark counts the records with an ``error``, and tells the first of each micro-batch."""
    first = F.min(F.when(F.col("error").isNotNull(), F.struct(*_PLACE))).alias("first")
    return decoded.observe(f"{_METRIC}{view}", F.count("error").alias("count"), first)


def stopped_by_one(decoded: DataFrame) -> DataFrame:
    """``decoded``, which throws at the first record with an ``error``."""
    place: list[Column] = [F.col("topic"), F.lit("-"), F.col("partition"), F.lit(" at "), F.col("offset")]
    said = F.concat(F.lit("a record does not fit: "), *place, F.lit(": "), F.col("error"))
    return decoded.where(F.when(F.col("error").isNotNull(), F.raise_error(said)).otherwise(True))


@dataclass(slots=True)
class _Count:
    """Of one topic, or of what a query reads as one."""

    first: str
    topic: str
    count: int = 0


class LeftOut:
    """Counts what the query of a name leaves out, from `begin` until `close`."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        self._name = name
        self._counts: dict[str, _Count] = {}
        self._lock = threading.Lock()
        self._observed = ObservedMetrics(spark, name, self._note)

    def begin(self, start: Callable[[], StreamingQuery]) -> StreamingQuery:
        """The query that ``start`` starts, whose records are counted from the first one on."""
        return self._observed.begin(start)

    def close(self) -> None:
        """Count nothing more.  What was counted stays."""
        self._observed.close()

    def remark(self) -> str | None:
        """How many records were left out since the run began, with the first of each topic; None for none."""
        with self._lock:
            found = [f"{each.count} of {each.topic}, first {each.first}" for each in self._counts.values()]
        return f"records that do not fit: {'; '.join(found)}" if found else None

    def _note(self, metric: str, values: Row) -> None:
        if not metric.startswith(_METRIC) or not values["count"]:
            return
        topic, partition, offset, error = values["first"]
        with self._lock:
            is_first = metric not in self._counts
            found = self._counts.setdefault(metric, _Count(f"{topic}-{partition} at {offset}: {error}", topic))
            found.count += values["count"]
        if is_first:
            _log.warning("%s leaves out records that do not fit, the first %s", self._name, found.first)
