"""Spark on the run's broker: one session, and its Kafka source as plain rows.

Owns: the session with the connector's pools set up to be seen at work, reading a topic as a batch or as a stream, and
the records that the tests write and expect.  Does not own the tests.  PySpark is imported by the fixture alone, because
an environment without it collects these tests, too.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest
from harness.spark_sessions import SparkSessions
from harness.waiting import wait_until

from conformance.adapter import Client
from conformance.broker_under_test import BrokerUnderTest

PATIENCE_S = 120.0

# The connector's pools: small, and quick to drop what is idle, so that every test sees both.
CONSUMERS_MAX = 2
POOL_IDLE_MS = 1_000
EVICTION_INTERVAL_MS = 200
POOL_SETTINGS = {
    "spark.kafka.consumer.cache.capacity": str(CONSUMERS_MAX),
    "spark.kafka.consumer.cache.timeout": f"{POOL_IDLE_MS}ms",
    "spark.kafka.consumer.cache.evictorThreadRunInterval": f"{EVICTION_INTERVAL_MS}ms",
    "spark.kafka.consumer.cache.jmx.enable": "true",
    "spark.kafka.consumer.fetchedData.cache.timeout": f"{POOL_IDLE_MS}ms",
    "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval": f"{EVICTION_INTERVAL_MS}ms",
    "spark.kafka.producer.cache.timeout": f"{POOL_IDLE_MS}ms",
    "spark.kafka.producer.cache.evictorThreadRunInterval": f"{EVICTION_INTERVAL_MS}ms",
}

CONSUMER_POOL = "org.apache.commons.pool2:type=GenericKeyedObjectPool,name=kafka010-cached-simple-kafka-consumer-pool"

FIRST_TIMESTAMP_MS = int(time.time() * 1000) - 3_600_000
TIMESTAMP_STEP_MS = 1_000
COLUMNS = ("topic", "partition", "offset", "key", "value", "unix_millis(timestamp)", "timestampType")

Options = Mapping[str, str]
ItemT = TypeVar("ItemT", bound=tuple[Any, ...])


class Row(NamedTuple):
    """A record as the source shows it; ``timestamp_type`` is 0 for CreateTime."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    timestamp_type: int = 0


def timestamp_of(offset: int) -> int:
    return FIRST_TIMESTAMP_MS + TIMESTAMP_STEP_MS * offset


def expected(topic: str, partition: int, offsets: Iterable[int]) -> list[Row]:
    """What ``fill`` wrote."""
    return [
        Row(topic, partition, offset, b"key-%d" % offset, b"%d/%d" % (partition, offset), timestamp_of(offset))
        for offset in offsets
    ]


def fill(client: Client, topic: str, offsets: range, partition: int = 0) -> None:
    """Write the partition's records for the offsets that it has not got yet."""
    producer = client.producer()
    for row in expected(topic, partition, offsets):
        producer.send(topic, row.value, key=row.key, timestamp_ms=row.timestamp_ms, partition=partition)
    assert [delivery.offset for delivery in producer.flush()] == list(offsets)


class SparkOnKafka:
    """A session and the broker that its sources and sinks lead to."""

    def __init__(self, session: Any, bootstrap: str) -> None:
        self.session = session
        self.bootstrap = bootstrap

    def frame(self, options: Options) -> Any:
        """The source as a batch."""
        return self._configured(self.session.read, options).load()

    def read(self, options: Options) -> list[Row]:
        """All that a batch finds, by topic, partition and offset."""
        return rows_of(self.frame(options))

    @contextmanager
    def stream(self, options: Options, checkpoint: Path, **trigger: Any) -> Iterator[Stream]:
        """A running query whose micro-batches are collected; it is stopped at the end."""
        stream = Stream()
        source = self._configured(self.session.readStream, options).load()
        stream.query = (
            source.writeStream.foreachBatch(stream.add)
            .option("checkpointLocation", str(checkpoint))
            .trigger(**(trigger or {"processingTime": "0 seconds"}))
            .start()
        )
        try:
            yield stream
        finally:
            stream.query.stop()

    def read_available(self, options: Options, checkpoint: Path) -> list[list[Row]]:
        """Go on from the checkpoint to what is there now; one list per micro-batch.  Raises as the query does."""
        with self.stream(options, checkpoint, availableNow=True) as stream:
            assert stream.query.awaitTermination(PATIENCE_S), "the query does not end"
        return stream.batches

    def write(self, frame: Any, options: Options) -> None:
        """Write a frame as a batch."""
        self._configured(frame.write, options).save()

    def write_available(self, source: Options, sink: Options, columns: Iterable[str], checkpoint: Path) -> None:
        """Stream what there is now from topic to topic, by way of the columns (in SQL)."""
        frame = self._configured(self.session.readStream, source).load().selectExpr(*columns)
        writer = self._configured(frame.writeStream, {**sink, "checkpointLocation": str(checkpoint)})
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(PATIENCE_S), "the query does not end"
        finally:
            query.stop()

    def consumer_pool(self) -> Any:
        """The pool of the executors' consumers, as it shows itself to JMX."""
        jvm = self.session.sparkContext._jvm
        server = jvm.java.lang.management.ManagementFactory.getPlatformMBeanServer()
        # The connector's jars are known to Spark's class loader, not to the JVM's.
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        kind = loader.loadClass("org.apache.commons.pool2.impl.GenericKeyedObjectPoolMXBean")
        return jvm.javax.management.JMX.newMBeanProxy(server, jvm.javax.management.ObjectName(CONSUMER_POOL), kind)

    def _configured(self, what: Any, options: Options) -> Any:
        return what.format("kafka").options(**{"kafka.bootstrap.servers": self.bootstrap, **options})


class Stream:
    """A streaming query and the rows of its micro-batches so far."""

    def __init__(self) -> None:
        self.query: Any = None
        self.batches: list[list[Row]] = []

    def add(self, frame: Any, batch_id: int) -> None:
        self.batches.append(rows_of(frame))

    def wait_for_batches(self, count: int) -> None:
        def there() -> bool:
            if (error := self.query.exception()) is not None:
                raise error
            return len(self.batches) >= count

        wait_until(there, f"micro-batch {count}", PATIENCE_S)


def rows_of(frame: Any) -> list[Row]:
    collected = frame.selectExpr(*COLUMNS).collect()
    return sorted(
        Row(topic, partition, offset, plain(key), plain(value), timestamp, kind)
        for topic, partition, offset, key, value, timestamp, kind in collected
    )


def joined(parts: Iterable[Iterable[ItemT]]) -> list[ItemT]:
    """All in one, sorted."""
    return sorted(item for part in parts for item in part)


def plain(column: bytearray | None) -> bytes | None:
    return None if column is None else bytes(column)


@contextmanager
def spark_on_kafka(sessions: SparkSessions, broker: BrokerUnderTest) -> Iterator[SparkOnKafka]:
    """The session.  Skips where Spark is not installed."""
    pytest.importorskip("pyspark", reason="PySpark is not installed: run scripts/spark-setup")
    from pybroker import pipeline

    try:
        with sessions.lend("local[2]", POOL_SETTINGS) as session:
            yield SparkOnKafka(session, broker.bootstrap)
    except pipeline.JarsMissing as missing:
        pytest.skip(str(missing))
