"""Rows to a topic, from there by a stream to another, and back: what PySpark's data sources in Python must still do.

Runs as a script in an environment with ``pybroker-kafka[spark]``, which need not be the tests'; says in a line what it
has seen, or fails.
"""

import time
from tempfile import TemporaryDirectory

import pyspark
from pyspark.sql import SparkSession

from pybroker import pipeline
from pybroker.testing import Broker

ROWS = 20_000
PER_MICRO_BATCH = 6_000
PARTITIONS = 3


def micro_batches(spark: SparkSession, bootstrap: str, checkpoint: str) -> list[int]:
    """Copy what there is from one topic to the other, in limited micro-batches; their sizes."""
    server = {"kafka.bootstrap.servers": bootstrap}
    reader = spark.readStream.format("pybroker").options(**server, subscribe="rows", startingOffsets="earliest")
    rows = reader.option("maxOffsetsPerTrigger", PER_MICRO_BATCH).load().select("key", "value")
    writer = rows.writeStream.format("pybroker").options(**server, topic="copies", checkpointLocation=checkpoint)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]


def counts(topics: pipeline.Topics) -> dict[str, pipeline.Output]:
    """A job with state, whose output mode is none that a sink in Python has."""
    counted = topics.stream("rows").groupBy("key").count().selectExpr("key", "string(count) AS value")
    return {"counts": pipeline.Output(counted, "update")}


def main() -> None:
    """Raises AssertionError where rows are missing, or there twice."""
    begun_s = time.monotonic()
    spark = pipeline.session(master="local[2]", settings=pipeline.SHORT_LIVED)
    try:
        with Broker() as broker, TemporaryDirectory() as directory:
            for topic in ("rows", "copies", "counts"):
                broker.create_topic(topic, partitions=PARTITIONS)
            server = {"kafka.bootstrap.servers": broker.bootstrap}
            made = spark.range(ROWS).selectExpr("string(id % 7) AS key", "string(id) AS value")
            made.write.format("pybroker").options(**server, topic="rows").mode("append").save()
            sizes = micro_batches(spark, broker.bootstrap, f"{directory}/copies")
            assert (sum(sizes), len(sizes)) == (ROWS, -(-ROWS // PER_MICRO_BATCH)), sizes
            assert micro_batches(spark, broker.bootstrap, f"{directory}/copies") == []
            topics = pipeline.BrokerTopics(spark, broker.bootstrap)
            copied = topics.batch("copies").selectExpr("int(string(value)) AS value").collect()
            assert sorted(row.value for row in copied) == list(range(ROWS))
            for query in pipeline.start(counts, topics, f"{directory}/jobs", until_done=True):
                query.awaitTermination()
            assert sum(int(row.value) for row in topics.batch("counts").collect()) == ROWS
    finally:
        pipeline.end_session(spark)
    print(  # noqa: T201 - what the script is for
        f"PySpark {pyspark.__version__}: {ROWS:,} rows there and back in {len(sizes)} micro-batches, and a job with "
        f"state, in {time.monotonic() - begun_s:.0f} s"
    )


if __name__ == "__main__":
    main()
