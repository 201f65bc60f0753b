"""Records that transforms, or the converter that writes, cannot change: which they are, and why.

Spark's SQL throws at such a record, as ANSI has it.  That ends the task of many records, and its text names none.  So a
micro-batch that throws is halved until each record that throws is alone.  Halves are rows in the driver's memory, which
Spark evaluates while it optimizes a query, without a job; only large ones, and those of encoders in Python, are jobs.

The price is some tenths of a second for each such record, a few tries each.  Of a micro-batch of which most records are
such, it is hours: a log line says that it begins.

Two other ways were left out.  Variants with ``try_`` would have to be put into expressions that people wrote, and they
make null of what is to be a dead letter.  Spark's ``TryEval`` takes any expression, but it is internal, and swallows
the reason.

Owns the search, and the reasons as texts; what becomes of such records is ``sink_queries``'s.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pybroker.connectors.kinds.dead_letters import TARGET
from pybroker.pipeline.query_failure import reason_in

# Rows that are evaluated as a job, which gives none of them to Python.
_MANY: Final = 2_000
_PLACE: Final = ("topic", "partition", "offset")

# From flat rows to those behind it.
Change = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True, slots=True)
class Step:
    """A change, by the name that reasons begin with."""

    name: str
    change: Change


@dataclass(frozen=True, slots=True)
class Refusal:
    """The place of a record, and why it cannot be changed or written."""

    topic: str
    partition: int
    offset: int
    reason: str

    def __str__(self) -> str:
        return f"the record of {self.topic}-{self.partition} at offset {self.offset}: {self.reason}"

    @classmethod
    def by_target(cls, topic: str, partition: int, offset: int, reason: str) -> Refusal:
        """That of a record which the target does not take."""
        return cls(topic, partition, offset, f"{TARGET}: {reason}")


class SearchEnded(RuntimeError):
    """The connector is to stop; its micro-batch comes again."""


def behind(rows: DataFrame, steps: Sequence[Step]) -> DataFrame:
    """The rows behind all steps; AnalysisException for what Spark does not understand."""
    for step in steps:
        rows = step.change(rows)
    return rows


def evaluate(rows: DataFrame) -> None:
    """Have all columns of all rows computed; raises what the first one throws."""
    rows.write.format("noop").mode("overwrite").save()


def refusals(rows: DataFrame, steps: Sequence[Step], ends: threading.Event) -> Iterator[Refusal]:
    """The flat rows at which the steps throw, in their order; a record is alone with about two tries by each halving.

    The rows are held in the driver's memory.  Nothing is found where it was not the rows that threw.  Raises
    SearchEnded once ``ends`` is set: a search may take hours, and Spark waits for it when its query is stopped.
    """
    found: pa.Table = rows.toArrow()

    def thrown(begin: int, length: int, until: int) -> str | None:
        piece = rows.sparkSession.createDataFrame(piece_of(found, begin, length), rows.schema)
        return _thrown(behind(piece, steps[:until]), length)

    pieces = [(0, found.num_rows)] if found.num_rows else []
    while pieces:
        if ends.is_set():
            raise SearchEnded("the connector stops while refused records are searched")
        begin, length = pieces.pop()
        reason = thrown(begin, length, len(steps))
        if reason is None:
            continue
        if length > 1:
            half = length // 2
            pieces += [(begin + half, length - half), (begin, half)]
            continue
        (row,) = found.slice(begin, 1).select([f"_{name}" for name in _PLACE]).to_pylist()
        told = ((step.name, thrown(begin, 1, until)) for until, step in enumerate(steps[:-1], 1))
        name, why = next(((name, why) for name, why in told if why is not None), (steps[-1].name, reason))
        yield Refusal(row["_topic"], row["_partition"], row["_offset"], f"{name}: {why}")


def piece_of(found: pa.Table, begin: int, length: int) -> pa.Table:
    """A copy of some rows: Spark cannot take a slice of a column of lists of which some are null, as headers are."""
    return found.take(pa.array(range(begin, begin + length), pa.int64()))


def with_refusals(decoded: DataFrame, refused: Sequence[Refusal]) -> DataFrame:
    """Decoded records, in the same partitions of Spark's, with the reasons as ``error``."""
    columns: dict[str, Any] = {name: [getattr(each, name) for each in refused] for name in (*_PLACE, "reason")}
    reasons = decoded.sparkSession.createDataFrame(
        pa.table(columns), "topic string, partition bigint, offset bigint, reason string"
    )
    # A join by hashes would change which task writes what, and with it what a repeat passes over.
    joined = decoded.join(F.broadcast(reasons), list(_PLACE), "left")
    return joined.withColumn("error", F.coalesce("error", "reason")).select(*decoded.columns)


def _thrown(rows: DataFrame, count: int) -> str | None:
    try:
        if count > _MANY:
            evaluate(rows)
        else:
            rows.collect()
    except PySparkException as error:
        return reason_in(str(error))
    return None
