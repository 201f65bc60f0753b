"""The query of a sink: topics read, records decoded, dead letters put aside, transforms, and then the kind's write.

Owns what becomes of records that cannot be read or changed.  Dead letters (`dead_letters`) of those that the target
refuses are written when it has taken the others: a ``Write`` that is called again has to name them again.  Where errors
are tolerated, rows are changed before the first one is written: a target may have taken some of them when another one
throws.  Counterpart in Kafka: ``WorkerSinkTask``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pybroker.connectors.declared.common_keys import DEAD_LETTERS, TOPICS, TOPICS_REGEX
from pybroker.connectors.declared.transforms import transforms_of
from pybroker.connectors.kinds.connector_runs import QueryRun, RecordRefused, Run, Work
from pybroker.connectors.kinds.dead_letters import TRANSFORMS, write_letters
from pybroker.connectors.kinds.query_epochs import query_of
from pybroker.connectors.kinds.record_forms import decoder, flat, transformed
from pybroker.connectors.kinds.refused_records import (
    Change,
    Refusal,
    Step,
    behind,
    evaluate,
    refusals,
    with_refusals,
)
from pybroker.connectors.state.connector_topics import topics_found, whole
from pybroker.pipeline.converters.decoding import decode
from pybroker.pipeline.progress import mirror_progress
from pybroker.pipeline.topics.librdkafka_settings import without_prefix

_log = logging.getLogger(__name__)

# Writes flat rows of a micro-batch, which has a number; is called again with the same where the query was ended.  Gives
# the records that the target refuses, where errors are tolerated; raises RecordRefused at the first one else.
Write = Callable[[DataFrame, int], Sequence[Refusal] | None]


@dataclass(frozen=True, slots=True)
class Reading:
    """What is read: topics, or those that a pattern fits, of a cluster, from where on; ``group`` shows the progress."""

    cluster: Mapping[str, str]
    topics: Sequence[str]
    pattern: str | None
    starting: str
    group: str | None


def start_sink(work: Work, write: Write, *, takes_tombstones: bool, encode: Change | None = None) -> Run:
    """Start the query of a sink; raises ValueError and what Spark says.

    ``encode`` makes of flat rows what ``write`` is given; what it throws at a record is the record's.
    """
    topics: list[str] = work.value(TOPICS) or []
    pattern: str | None = work.value(TOPICS_REGEX)
    # Where a topic comes before the query has begun, Spark refuses the offsets, and the connector starts again.
    there = topics or topics_found(without_prefix(work.cluster), str(pattern))
    read = Reading(work.cluster, topics, pattern, work.starting_offsets(there), work.group)
    return start_reading(work, read, write, takes_tombstones=takes_tombstones, encode=encode)


def start_reading(
    work: Work, read: Reading, write: Write, *, takes_tombstones: bool, encode: Change | None = None
) -> Run:
    """Start a query that has a sink's keys; raises ValueError and what Spark says."""
    handler = _Handler(work, write, takes_tombstones, encode)
    writer = _stream(work, read).writeStream.queryName(work.name).foreachBatch(handler.take)
    writer = writer.option("checkpointLocation", work.directory).trigger(processingTime=work.interval)
    query = writer.start()
    if read.group is not None:
        mirror_progress(work.spark, query, read.group, without_prefix(read.cluster))
    return QueryRun(query, work)


def _subscribed(topics: Sequence[str], pattern: str | None) -> dict[str, str]:
    return {"subscribe": ",".join(topics)} if topics else {"subscribePattern": whole(str(pattern))}


def _stream(work: Work, read: Reading) -> DataFrame:
    options = {
        **read.cluster,
        **_subscribed(read.topics, read.pattern),
        "startingOffsets": read.starting,
        "maxOffsetsPerTrigger": str(work.value("max.records.per.batch")),
        "includeHeaders": "true",
    }
    stream: DataFrame = work.spark.readStream.format("pybroker").options(**options).load()
    return stream


class _Handler:
    def __init__(self, work: Work, write: Write, takes_tombstones: bool, encode: Change | None = None) -> None:
        self._work, self._write, self._takes_tombstones = work, write, takes_tombstones
        self._value = decoder(work.forms, "value")
        self._key = decoder(work.forms, "key")
        transforms = transforms_of(work.config)
        # What was read, and is not changed, can be written.
        self._may_throw = bool(transforms)
        self._steps = [Step(TRANSFORMS, lambda rows: transformed(rows, transforms))]
        if encode is not None:
            self._steps.append(Step("value", encode))

    def take(self, batch: DataFrame, epoch: int) -> None:
        """A micro-batch; raises `RecordRefused` and what the target says."""
        with ExitStack() as kept:
            decoded = _kept(self._decoded(batch), kept)
            if self._may_throw and self._work.tolerates_errors:
                decoded, rows = self._changed(decoded, kept)
                self._put_aside(decoded, epoch)
                self._put_refused_aside(decoded, self._write(rows, epoch), epoch)
                return
            self._put_aside(decoded, epoch)
            rows = behind(_good(decoded), self._steps)
            try:
                refused = self._write(rows, epoch)
            except (PySparkException, Py4JJavaError):
                if (found := self._refused(decoded, rows)) is not None:
                    # Not chained: what Spark said first would be what ended the query.
                    raise found from None
                raise
            self._put_refused_aside(decoded, refused, epoch)

    def _decoded(self, batch: DataFrame) -> DataFrame:
        decoded = decode(batch, self._value, key=self._key)
        if self._takes_tombstones:
            return decoded
        told = F.when(F.col("raw_value").isNull(), F.lit("value: there is none, and a tombstone has no meaning here"))
        return decoded.withColumn("error", F.coalesce("error", told))

    def _changed(self, decoded: DataFrame, kept: ExitStack) -> tuple[DataFrame, DataFrame]:
        """The records with the reasons of those that cannot be changed, and the rows of the others, computed."""
        rows = _kept(behind(_good(decoded), self._steps), kept)
        try:
            rows.count()
        except PySparkException:
            _log.warning("%s: a transform throws; the records of the micro-batch are searched", self._work.name)
            if not (found := list(refusals(_good(decoded), self._steps, self._work.ends))):
                raise
            decoded = _kept(with_refusals(decoded, found), kept)
            rows = _kept(behind(_good(decoded), self._steps), kept)
            rows.count()
        return decoded, rows

    def _refused(self, decoded: DataFrame, rows: DataFrame) -> RecordRefused | None:
        """The first record that cannot be changed; None where it was the target that failed."""
        if not self._may_throw:
            return None
        try:
            evaluate(rows)
        except PySparkException:
            found = next(refusals(_good(decoded), self._steps, self._work.ends), None)
            return None if found is None else RecordRefused(str(found))
        return None

    def _put_aside(self, decoded: DataFrame, epoch: int) -> None:
        bad = decoded.where("error is not null")
        if not self._work.tolerates_errors:
            # A minimum has all partitions computed at once, where a first row has them computed one behind another.
            (found,) = bad.agg(F.min(F.struct("topic", "partition", "offset", "error")).alias("first")).collect()
            if found["first"] is not None:
                raise RecordRefused(str(Refusal(*found["first"])))
            return
        self._write_letters(bad, "dead", epoch, "cannot be read or changed")

    def _put_refused_aside(self, decoded: DataFrame, refused: Sequence[Refusal] | None, epoch: int) -> None:
        if refused:
            # A transform may make several rows of a record.
            by_place = {(each.topic, each.partition, each.offset): each for each in refused}
            bad = with_refusals(decoded.where("error is null"), list(by_place.values())).where("error is not null")
            self._write_letters(bad, "refused", epoch, "are refused by the target")

    def _write_letters(self, bad: DataFrame, marked: str, epoch: int, told: str) -> None:
        group = f"{self._work.group}-{marked}-{query_of(bad)}"
        write_letters(self._work, bad, ("topic", "partition", "offset"), group, epoch)
        if self._work.value("errors.log.enable") and (count := bad.count()):
            topic: str = self._work.value(DEAD_LETTERS)
            _log.warning("%s: %d records %s%s", self._work.name, count, told, f": see {topic}" if topic else "")


def _good(decoded: DataFrame) -> DataFrame:
    return flat(decoded.where("error is null"))


def _kept(rows: DataFrame, kept: ExitStack) -> DataFrame:
    rows = rows.persist()
    kept.callback(rows.unpersist)
    return rows
