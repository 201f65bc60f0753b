"""A mirrored topic is read by Spark as any other, by both connectors, and a stream goes on from the source to it.

Starts a JVM.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.spark_sessions import SparkSessions

from pybroker.cluster.image.link_states import MIRRORING, PROMOTED
from pybroker.testing import Broker
from tests.links.linked import (
    link,
    produce,
    produce_transactions,
    read_all,
    set_link,
    wait_for_state,
    wait_until_mirrored,
)

pytestmark = pytest.mark.jvm(needs="spark")

PARTITIONS = 3


@pytest.fixture
def spark(spark_sessions: SparkSessions) -> Iterator[Any]:
    with spark_sessions.lend() as session:
        yield session


@pytest.fixture
def source() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic("orders", partitions=PARTITIONS)
        produce(running, "orders", 60)
        produce_transactions(running, "orders", True, False)
        yield running


@pytest.fixture
def here(source: Broker) -> Iterator[Broker]:
    with Broker() as running:
        link(running, source)
        wait_for_state(running, "orders", MIRRORING)
        wait_until_mirrored(source, running, "orders", PARTITIONS)
        yield running


def options(side: Broker) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": side.bootstrap,
        "kafka.isolation.level": "read_committed",
        "subscribe": "orders",
        "startingOffsets": "earliest",
    }


@pytest.mark.parametrize("connector", ["kafka", "pybroker"])
def test_spark_reads_a_mirrored_topic_as_it_is_at_the_source(
    spark: Any, source: Broker, here: Broker, connector: str
) -> None:
    def rows(side: Broker) -> list[tuple[Any, ...]]:
        read = spark.read.format(connector).options(**options(side)).load()
        found = read.select("partition", "offset", "timestamp", "key", "value").collect()
        return sorted(tuple(bytes(each) if isinstance(each, bytearray) else each for each in row) for row in found)

    mirrored = rows(here)
    assert sorted(row[-1] for row in mirrored) == read_all(source, "orders")
    assert mirrored == rows(source)


@pytest.mark.parametrize("connector", ["kafka", "pybroker"])
def test_a_stream_goes_on_at_the_mirrored_topic_where_it_was_at_the_source(
    spark: Any, source: Broker, here: Broker, connector: str, tmp_path: Path
) -> None:
    seen: list[bytes] = []

    def run(side: Broker) -> None:
        stream = spark.readStream.format(connector).options(**options(side)).load()
        writer = stream.select("value").writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.foreachBatch(lambda rows, _: seen.extend(bytes(row[0]) for row in rows.collect()))
        query.trigger(availableNow=True).start().awaitTermination()

    run(source)
    before = len(seen)
    produce(source, "orders", 30)
    set_link(here.bootstrap, promote="orders")
    wait_for_state(here, "orders", PROMOTED)
    produce(here, "orders", 30)
    run(here)
    assert (before, len(seen), len(set(seen))) == (65, 125, 125)
    assert sorted(seen) == read_all(here, "orders")
