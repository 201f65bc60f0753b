"""The job under test, in a process that is a driver of Spark: ``python -m exactly_once.job MASTER``.

Takes orders as JSON lines on stdin, each a query to be run to its end, one after another; tells in JSON lines on stdout
that it is up, each micro-batch, and how each query ended.  It may be killed at any moment.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
from harness.spark_cluster import EXECUTOR_SETTINGS
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from pybroker import pipeline

POLL_S = 0.05
WORK_S = 0.4
SETTINGS = {
    **pipeline.SHORT_LIVED,
    **EXECUTOR_SETTINGS,
    # More tasks than cores write an epoch, so that a kill leaves some of them committed and others not.
    "spark.sql.shuffle.partitions": "4",
    # A task may meet more than one kill.
    "spark.task.maxFailures": "20",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
}


class Order(NamedTuple):
    """A query: what it reads and writes, with which sink (a name for ``format``), and where it keeps its progress.

    ``mode`` is its output mode: ``append`` writes each record on, ``update`` the counts of keys that have changed.
    """

    bootstrap: str
    source: str
    target: str
    sink: str
    checkpoint: str
    batch_records: int
    mode: str


def rows(spark: SparkSession, order: Order) -> DataFrame:
    """Values in capitals, or counts, divided anew by their keys, so that there are two stages to be hit."""
    reader = spark.readStream.format("pybroker").option("kafka.bootstrap.servers", order.bootstrap)
    reader = reader.option("subscribe", order.source).option("startingOffsets", "earliest")
    loaded = reader.option("maxOffsetsPerTrigger", order.batch_records).load()
    read = loaded.select("key", "value").mapInArrow(work, "key binary, value binary")
    if order.mode == "update":
        return read.groupBy("key").count().select("key", F.col("count").cast("string").alias("value"))
    return read.select("key", F.upper(F.col("value").cast("string")).alias("value")).repartition("key")


def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A task has something to do, so that on no machine the query is over before each victim was hit."""
    time.sleep(WORK_S)
    yield from batches


def start(spark: SparkSession, order: Order) -> StreamingQuery:
    """Go on from the checkpoint, to what the topic holds now."""
    sink = {"kafka.bootstrap.servers": order.bootstrap, "topic": order.target}
    writer = rows(spark, order).writeStream.outputMode(order.mode).option("checkpointLocation", order.checkpoint)
    if order.mode == "append" or order.sink != "pybroker":
        writer = writer.format(order.sink).options(**sink)
    else:
        # Spark gives sinks in Python no other mode than append: this is how a user has one.
        writer = writer.foreachBatch(partial(write_changes, sink))
    return writer.trigger(availableNow=True).start()


def write_changes(sink: dict[str, str], changes: DataFrame, epoch: int) -> None:
    """One micro-batch of changes."""
    marks = {"transactionGroup": f"counts-{sink['topic']}", "epoch": str(epoch)}
    changes.write.format("pybroker").options(**sink, **marks).mode("append").save()


def run(query: StreamingQuery) -> None:
    """Tell of each micro-batch until the end; raises what ended the query, if it failed."""
    told, ended = -1, False
    while not ended:
        time.sleep(POLL_S)
        ended = not query.isActive
        for progress in query.recentProgress:
            if progress["batchId"] > told:
                told = progress["batchId"]
                tell({"batch": told, "rows": progress["numInputRows"]})
    query.awaitTermination()


def tell(line: dict[str, Any]) -> None:
    """One line, whole."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Until stdin ends."""
    spark = pipeline.session("exactly-once", master=sys.argv[1], settings=SETTINGS, connector=True)
    tell({"up": True})
    for line in sys.stdin:
        error = None
        try:
            run(start(spark, Order(**json.loads(line))))
        except Exception as failed:
            error = str(failed)
        tell({"ended": True, "error": error})
    pipeline.end_session(spark)


if __name__ == "__main__":
    main()
