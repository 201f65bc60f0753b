"""One query of Spark over a topic, timed: ``python -m bench.spark_load`` takes its job as JSON, and prints its outcome.

A process runs one query, in a Spark of its own.  The same query has run on a smaller topic before: what the JVM,
Python's workers and the broker do for the first time is not what is compared.  A ``format`` is that of source and sink:
Spark's own connector (``kafka``), or ``pybroker``.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pybroker.pipeline.spark_session import end_session, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

CONNECTOR_FORMAT, PYBROKER_FORMAT = "kafka", "pybroker"
FORMATS = (CONNECTOR_FORMAT, PYBROKER_FORMAT)
READ_BATCH, READ_STREAM, WINDOW, RESTART = "read in batch", "read as a stream", "window", "restart"
GROUP = "count and group"

MASTER = "local[2,4]"
MEMORY = "4g"
# Several micro-batches: one alone would be a batch job.
RECORDS_PER_TRIGGER = 1_000_000
EVENT_SCHEMA = "device string, at_ms bigint, reading double"
LATENESS, WINDOW_LENGTH = "1 minute", "1 minute"
QUERY_S_MAX = 240
_PAUSE_S = 0.02


@dataclass(frozen=True, slots=True)
class Job:
    """What to run.  ``output_topic`` is written by a window and a restart; ``checkpoint_dir`` is a restart's, which was
    run before."""

    kind: str
    format: str
    bootstrap: str
    topic: str
    warmup_topic: str = ""
    output_topic: str = ""
    warmup_output_topic: str = ""
    checkpoint_dir: str = ""


@dataclass(frozen=True, slots=True)
class SparkOutcome:
    """Seconds of the query alone: from its start to its end, or, of a restart, until the end of its first micro-batch
    with records is told; ``session_s`` is the start of Spark before that."""

    seconds: float
    session_s: float


def source(spark: SparkSession, job: Job, topic: str) -> Any:
    """The reader of a topic from its beginning: in batch, or as a stream for ``READ_STREAM`` and what writes."""
    in_batch = job.kind in (READ_BATCH, GROUP)
    reader: Any = spark.read if in_batch else spark.readStream
    reader = reader.format(job.format).option("kafka.bootstrap.servers", job.bootstrap).option("subscribe", topic)
    if not in_batch:
        reader = reader.option("maxOffsetsPerTrigger", RECORDS_PER_TRIGGER)
    return reader.option("startingOffsets", "earliest").load()


def read_batch(spark: SparkSession, job: Job, topic: str, directory: Path, output_topic: str) -> None:
    """Every record of a topic, with all columns, to nowhere."""
    source(spark, job, topic).write.format("noop").mode("overwrite").save()


def read_stream(spark: SparkSession, job: Job, topic: str, directory: Path, output_topic: str) -> None:
    """The same, in micro-batches."""
    rows = source(spark, job, topic)
    await_end(rows.writeStream.format("noop").option("checkpointLocation", str(directory)))


def window(spark: SparkSession, job: Job, topic: str, directory: Path, output_topic: str) -> None:
    """JSON, counted and averaged by device and minute of the event, each minute written once it is over."""
    sums = by_device_and_minute(source(spark, job, topic))
    sink = sums.writeStream.format(job.format).option("kafka.bootstrap.servers", job.bootstrap)
    await_end(sink.option("topic", output_topic).option("checkpointLocation", str(directory)))


def by_device_and_minute(records: DataFrame) -> DataFrame:
    """Keys and values of the window's output."""
    from pyspark.sql import functions as F

    event = F.from_json(F.col("value").cast("string"), EVENT_SCHEMA).alias("event")
    events = records.select(event).select("event.*", F.timestamp_millis("event.at_ms").alias("at"))
    minutes = events.withWatermark("at", LATENESS).groupBy(F.window("at", WINDOW_LENGTH).alias("minute"), "device")
    sums = minutes.agg(F.count("*").alias("readings"), F.avg("reading").alias("mean"))
    key = F.concat_ws("@", "device", F.unix_millis("minute.start").cast("string"))
    return sums.select(key.alias("key"), F.to_json(F.struct("readings", "mean")).alias("value"))


def await_end(writer: Any) -> None:
    """Run a query over what there is; raises what ends it, and ``TimeoutError``."""
    query: StreamingQuery = writer.trigger(availableNow=True).start()
    if not query.awaitTermination(QUERY_S_MAX):
        raise TimeoutError(f"the query did not end in {QUERY_S_MAX} s")


def restart(spark: SparkSession, job: Job) -> float:
    """Go on where the checkpoint stands; seconds until a micro-batch has written what came meanwhile.

    The query's stop afterwards, which may wait for another micro-batch, is not among them.
    """
    started_s = time.perf_counter()
    rows = source(spark, job, job.topic).select("key", "value")
    sink = rows.writeStream.format(job.format).option("kafka.bootstrap.servers", job.bootstrap)
    sink = sink.option("topic", job.output_topic).option("checkpointLocation", job.checkpoint_dir)
    query: StreamingQuery = sink.trigger(processingTime="0 seconds").start()
    while not any(progress.numInputRows for progress in query.recentProgress):
        if (failure := query.exception()) is not None:
            raise failure
        if time.perf_counter() - started_s > QUERY_S_MAX:
            raise TimeoutError(f"the query processed nothing in {QUERY_S_MAX} s")
        time.sleep(_PAUSE_S)
    seconds = time.perf_counter() - started_s
    query.stop()
    return seconds


def group(spark: SparkSession, job: Job) -> float:
    """A topic of JSON counted, and counted and averaged by device, as the first queries of a session; seconds."""
    from pyspark.sql import functions as F

    def queries() -> None:
        source(spark, job, job.topic).count()
        event = F.from_json(F.col("value").cast("string"), EVENT_SCHEMA).alias("event")
        events = source(spark, job, job.topic).select(event).select("event.*")
        events.groupBy("device").agg(F.count("*"), F.avg("reading")).collect()

    return timed(queries)


Query = Callable[["SparkSession", Job, str, Path, str], None]
QUERIES: Mapping[str, Query] = {READ_BATCH: read_batch, READ_STREAM: read_stream, WINDOW: window}


def run(job: Job) -> SparkOutcome:
    """Run a job in a new Spark."""
    started_s = time.monotonic()
    spark = session("bench", master=MASTER, settings={"spark.driver.memory": MEMORY}, connector=True)
    try:
        session_s = time.monotonic() - started_s
        if job.kind == RESTART:
            return SparkOutcome(restart(spark, job), session_s)
        if job.kind == GROUP:
            return SparkOutcome(group(spark, job), session_s)
        query = QUERIES[job.kind]
        with tempfile.TemporaryDirectory(prefix="pybroker-bench-") as directory:
            root = Path(directory)
            query(spark, job, job.warmup_topic, root / uuid.uuid4().hex, job.warmup_output_topic)
            checkpoint = root / uuid.uuid4().hex
            return SparkOutcome(timed(lambda: query(spark, job, job.topic, checkpoint, job.output_topic)), session_s)
    finally:
        end_session(spark)


def timed(action: Callable[[], None]) -> float:
    """Seconds that it took."""
    started_s = time.perf_counter()
    action()
    return time.perf_counter() - started_s


def main() -> None:
    """The job on stdin, the outcome on stdout; what Spark says goes to stderr."""
    job = Job(**json.load(sys.stdin))
    with contextlib.redirect_stdout(sys.stderr):
        outcome = run(job)
    print(json.dumps(asdict(outcome)))


if __name__ == "__main__":
    main()
