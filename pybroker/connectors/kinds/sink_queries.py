"""The query of a sink: topics read, records decoded, dead letters put aside, transforms, and then the kind's write.

Owns what becomes of records that cannot be read, and the headers of dead letters, which are Kafka Connect's.  Dead
letters are written exactly once, as an epoch of the query.  Counterpart in Kafka: ``WorkerSinkTask``,
``DeadLetterQueueReporter``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pybroker.connectors.declared.common_keys import DEAD_LETTERS, TOPICS, TOPICS_REGEX
from pybroker.connectors.declared.transforms import transforms_of
from pybroker.connectors.kinds.connector_runs import QueryRun, RecordRefused, Run, Work
from pybroker.connectors.kinds.record_forms import decoder, flat, transformed
from pybroker.pipeline.converters.decoding import decode
from pybroker.pipeline.progress import mirror_progress
from pybroker.pipeline.topics.librdkafka_settings import CLIENT_PREFIX
from pybroker.pipeline.topics.writers import QUERY_PROPERTY

_HEADERS = "array<struct<key string, value binary>>"
_PREFIX = "__connect.errors."

_log = logging.getLogger(__name__)

# Writes flat rows of a micro-batch, which has a number; is called again with the same where the query was ended.
Write = Callable[[DataFrame, int], None]


@dataclass(frozen=True, slots=True)
class Reading:
    """What is read: topics, or those that a pattern fits, of a cluster, from where on; ``group`` shows the progress."""

    cluster: Mapping[str, str]
    topics: Sequence[str]
    pattern: str | None
    starting: str
    group: str | None


def start_sink(work: Work, write: Write, *, takes_tombstones: bool) -> Run:
    """Start the query of a sink; raises ValueError and what Spark says."""
    topics: list[str] = work.value(TOPICS) or []
    read = Reading(work.cluster, topics, work.value(TOPICS_REGEX), work.starting_offsets(topics), work.group)
    return start_reading(work, read, write, takes_tombstones=takes_tombstones)


def start_reading(work: Work, read: Reading, write: Write, *, takes_tombstones: bool) -> Run:
    """Start a query that has a sink's keys; raises ValueError and what Spark says."""
    handler = _Handler(work, write, takes_tombstones)
    writer = _stream(work, read).writeStream.queryName(work.name).foreachBatch(handler.take)
    writer = writer.option("checkpointLocation", work.directory).trigger(processingTime=work.interval)
    query = writer.start()
    if read.group is not None:
        client = {name.removeprefix(CLIENT_PREFIX): value for name, value in read.cluster.items()}
        mirror_progress(work.spark, query, read.group, client)
    return QueryRun(query, work)


def epoch_options(rows: DataFrame, group: str, epoch: int) -> dict[str, str]:
    """The options by which a micro-batch's rows are written to topics once; a checkpoint made anew has other names."""
    query = rows.sparkSession.sparkContext.getLocalProperty(QUERY_PROPERTY) or ""
    return {"transactionGroup": f"{group}-{query}", "epoch": str(epoch)}


def _stream(work: Work, read: Reading) -> DataFrame:
    topics = read.topics
    named = {"subscribe": ",".join(topics)} if topics else {"subscribePattern": f"^(?:{read.pattern})$"}
    options = {
        **read.cluster,
        **named,
        "startingOffsets": read.starting,
        "maxOffsetsPerTrigger": str(work.value("max.records.per.batch")),
        "includeHeaders": "true",
    }
    stream: DataFrame = work.spark.readStream.format("pybroker").options(**options).load()
    return stream


class _Handler:
    def __init__(self, work: Work, write: Write, takes_tombstones: bool) -> None:
        self._work, self._write, self._takes_tombstones = work, write, takes_tombstones
        self._value = decoder(work.forms, "value")
        self._key = decoder(work.forms, "key")
        self._transforms = transforms_of(work.config)

    def take(self, batch: Any, epoch: int) -> None:
        """A micro-batch; raises `RecordRefused` and what the target says."""
        decoded = decode(batch, self._value, key=self._key)
        if not self._takes_tombstones:
            told = F.when(
                F.col("raw_value").isNull(), F.lit("value: there is none, and a tombstone has no meaning here")
            )
            decoded = decoded.withColumn("error", F.coalesce("error", told))
        decoded = decoded.persist()
        try:
            self._put_aside(decoded, epoch)
            good = decoded.where("error is null")
            rows = flat(good)
            self._write(transformed(rows, self._transforms), epoch)
        finally:
            decoded.unpersist()

    def _put_aside(self, decoded: DataFrame, epoch: int) -> None:
        bad = decoded.where("error is not null")
        if not self._work.tolerates_errors:
            for row in bad.select("topic", "partition", "offset", "error").limit(1).collect():
                raise RecordRefused(f"the record of {row.topic}-{row.partition} at offset {row.offset}: {row.error}")
            return
        topic: str = self._work.value(DEAD_LETTERS)
        if topic:
            marks = epoch_options(bad, f"{self._work.group}-dead", epoch)
            letters = self._letters(bad).write.format("pybroker").options(**self._work.cluster, **marks, topic=topic)
            letters.mode("append").save()
        if self._work.value("errors.log.enable") and (count := bad.count()):
            _log.warning("%s: %d records cannot be read%s", self._work.name, count, f": see {topic}" if topic else "")

    def _letters(self, bad: DataFrame) -> DataFrame:
        headers = F.coalesce(F.col("headers"), F.array().cast(_HEADERS))
        if self._work.value("errors.deadletterqueue.context.headers.enable"):
            told = {
                "topic": F.col("topic"),
                "partition": F.col("partition").cast("string"),
                "offset": F.col("offset").cast("string"),
                "connector.name": F.lit(self._work.name),
                "task.id": F.lit("0"),
                "stage": F.when(F.startswith("error", F.lit("key:")), "KEY_CONVERTER").otherwise("VALUE_CONVERTER"),
                "exception.message": F.col("error"),
            }
            own = [
                F.struct(F.lit(_PREFIX + name).alias("key"), text.cast("binary").alias("value"))
                for name, text in told.items()
            ]
            headers = F.concat(headers, F.array(*own).cast(_HEADERS))
        return bad.select(F.col("raw_key").alias("key"), F.col("raw_value").alias("value"), headers.alias("headers"))
