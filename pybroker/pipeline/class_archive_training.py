"""The small job whose classes become an archive (``class_archive``): ``python -m … PATH`` in a process of its own.

It does what most first queries do, on a broker of its own. That is a stream of JSON through windows into a topic,
exactly once, and a batch that joins, aggregates and sorts.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pybroker.pipeline.converters.decoding import decode, readable
from pybroker.pipeline.converters.json_values import json_of
from pybroker.pipeline.records import Record
from pybroker.pipeline.spark_session import end_session, session
from pybroker.pipeline.streams.jobs import BrokerTopics, Outputs, Topics, start

INPUT, SUMS = "events", "sums"
EVENTS = 500
TIMEOUT_S = 60


def events() -> Iterator[Record]:
    """Of a minute."""
    for number in range(EVENTS):
        value = json.dumps({"id": f"d{number % 7}", "amount": number / 3}).encode()
        yield Record(b"%d" % (number % 7), value, 1_700_000_000_000 + 120 * number)


def sums(topics: Topics) -> Outputs:
    """By key and window."""
    found = readable(decode(topics.stream(INPUT), json_of("id string, amount double")))
    by_window = (
        found.withWatermark("timestamp", "1 second")
        .groupBy(F.window("timestamp", "10 seconds").alias("window"), F.col("value.id").alias("id"))
        .agg(F.count("*").alias("count"), F.sum("value.amount").alias("amount"))
    )
    return {SUMS: by_window.select(F.col("id").alias("key"), F.to_json(F.struct("count", "amount")).alias("value"))}


def run(spark: SparkSession, bootstrap: str, directory: Path) -> None:
    """The stream, and a batch over what came of it."""
    topics = BrokerTopics(spark, bootstrap)
    for query in start(sums, topics, directory / "checkpoints", until_done=True):
        query.awaitTermination()
    names = spark.createDataFrame([(f"d{number}", f"device {number}") for number in range(7)], "id string, name string")
    found = readable(decode(topics.batch(SUMS), json_of("count bigint, amount double")))
    by_key = (
        found.withColumn("id", F.expr("cast(key as string)")).groupBy("id").agg(F.sum("value.count").alias("count"))
    )
    by_key.join(names, "id", "left").orderBy("id").collect()


def feed(bootstrap: str) -> None:
    """Make both topics, and fill the first; the records are of the past, which no retention ends."""
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap}
    topics = [NewTopic(name, 2, config={"retention.ms": "-1"}) for name in (INPUT, SUMS)]
    admin = AdminClient(settings)  # held: without it no answer comes
    for made in admin.create_topics(topics).values():
        made.result(TIMEOUT_S)
    producer = Producer(settings)
    for record in events():
        producer.produce(INPUT, record.value, record.key, timestamp=record.timestamp_ms)
    if producer.flush(TIMEOUT_S):
        raise RuntimeError("the broker did not take all records")


@contextmanager
def own_broker(data_dir: Path) -> Iterator[str]:
    """A pybroker for the length of a `with`; yields its HOST:PORT."""
    serve = [sys.executable, "-m", "pybroker", "serve", "--dev", "--listen", "127.0.0.1:0", "--data-dir", str(data_dir)]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"127\.0\.0\.1:\d+", process.stdout.readline())
            if found is None:
                raise RuntimeError("the broker did not get ready")
            yield found[0]
        finally:
            process.terminate()


def main(path: str) -> None:
    """Run it in a Spark whose JVM leaves its classes at ``path``."""
    with (
        tempfile.TemporaryDirectory(prefix="pybroker-classes-") as directory,
        own_broker(Path(directory) / "data") as bootstrap,
    ):
        feed(bootstrap)
        settings = {"spark.driver.defaultJavaOptions": f"-XX:ArchiveClassesAtExit={path}"}
        spark = session("classes", master="local[2]", settings=settings)
        try:
            run(spark, bootstrap, Path(directory))
        finally:
            end_session(spark)


if __name__ == "__main__":
    main(sys.argv[1])
