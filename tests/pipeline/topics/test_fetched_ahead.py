"""What an idle consumer has fetched ahead is given only where it is still what the partition has.  Brokers, no JVM.

Each way in which it stops being that, one by one; `test_reads_beside_a_model` has them in any order.
Needs PySpark, whose classes the reader extends: marked like what starts a JVM.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.waiting import wait_until

from pybroker.testing import Broker, Cluster
from tests.pipeline.topics.tables import Tables
from tests.pipeline.topics.test_lost_topics import numbers, schema

pytestmark = pytest.mark.jvm(needs="spark")


class Batch:
    """A batch's plan and its tasks, as Spark asks for them."""

    def __init__(self, bootstrap: str, topic: str, **options: str) -> None:
        from pybroker.pipeline.topics.data_source import TopicDataSource

        given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "minPartitions": "2", **options}
        self._reader = TopicDataSource(given).reader(schema())
        self.tasks = self._reader.partitions()

    def read(self, task: int) -> list[str]:
        """The values of a task."""
        batches = self._reader.read(self.tasks[task])
        return [value.decode() for batch in batches for value in batch.column("value").to_pylist()]


@pytest.fixture
def tables(pybroker: Broker, tmp_path: Path) -> Tables:
    return Tables(None, pybroker.bootstrap, tmp_path)


@pytest.fixture(autouse=True)
def nothing_is_fetched_yet() -> Iterator[None]:
    from pybroker.pipeline.topics import range_reader

    range_reader.close_idle()
    yield
    range_reader.close_idle()


def values(first: int, count: int) -> list[bytes]:
    return [value for value in numbers(first, count) if value]


def texts(first: int, count: int) -> list[str]:
    return [str(number) for number in range(first, first + count)]


def fetch_ahead(bootstrap: str, topic: str) -> None:
    """Leave a consumer behind that has read the first half of 20 records, and holds the other one."""
    assert len(Batch(bootstrap, topic).read(0)) == 10


def test_records_of_a_topic_that_was_made_anew_are_not_given(tables: Tables) -> None:
    topic = tables.topic(1)
    for life in range(3):
        first = 100 * life
        tables.append(topic, 0, values(first, 20))
        fetch_ahead(tables.bootstrap, topic)
        assert Batch(tables.bootstrap, topic).read(1) == texts(first + 10, 10)
        fetch_ahead(tables.bootstrap, topic)
        tables.delete(topic)
        tables.create(topic, 1)
    tables.append(topic, 0, values(1000, 20))
    assert Batch(tables.bootstrap, topic).read(1) == texts(1010, 10)


@pytest.mark.parametrize("is_strict", [True, False])
def test_records_that_were_deleted_are_not_given(tables: Tables, is_strict: bool) -> None:
    topic = tables.topic(1)
    tables.append(topic, 0, values(0, 20))
    batch = Batch(tables.bootstrap, topic, failOnDataLoss=str(is_strict).lower())
    fetch_ahead(tables.bootstrap, topic)
    tables.delete_before(topic, 0, 15)
    if is_strict:
        with pytest.raises(RuntimeError, match=f"{topic}-0 begins at 15 by now: what was before, from 10 on, is lost"):
            batch.read(1)
    else:
        assert batch.read(1) == texts(15, 5)


def test_records_of_another_broker_on_the_port_are_not_given(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "1") as broker:
        listen = broker.bootstrap
        tables = Tables(None, listen, tmp_path)
        tables.create("t", 1)
        tables.append("t", 0, values(0, 20))
        fetch_ahead(listen, "t")
    with Broker(data_dir=tmp_path / "2", listen=listen):
        tables.create("t", 1)
        tables.append("t", 0, values(100, 20))
        assert Batch(listen, "t").read(1) == texts(110, 10)


def test_records_that_an_unclean_leader_does_not_have_are_not_given(tmp_path: Path) -> None:
    """A broker misses what the other one was written alone, leads behind it, and has other records there."""
    with Cluster(2) as cluster:
        settings = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
        cluster.create_topic("t", partitions=1, replication_factor=2, configs=settings)
        tables = Tables(None, cluster.bootstrap, tmp_path)

        def leader() -> int | None:
            image = cluster._latest_image()
            partition = image.partition("t", 0) if image else None
            return partition.leader if partition else None

        wait_until(lambda: leader() in (1, 2), "a leader", 30)
        first = leader() or 0
        other = 3 - first
        tables.append("t", 0, values(0, 5))
        cluster.kill(other)
        tables.append("t", 0, values(5, 15))
        fetch_ahead(cluster.bootstrap, "t")
        cluster.kill(first)
        cluster.restart(other)
        wait_until(lambda: leader() == other, "an unclean leader", 60)
        tables.append("t", 0, values(100, 20))
        assert Batch(cluster.bootstrap, "t", endingOffsets='{"t": {"0": 20}}').read(1) == texts(105, 10)


def test_a_task_gives_nothing_of_a_topic_that_is_made_anew_while_it_reads(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pybroker.pipeline.topics import range_reader

    topic = tables.topic(1)
    tables.append(topic, 0, values(0, 20))
    batch = Batch(tables.bootstrap, topic)
    take = range_reader._PositionedConsumer.take

    def take_of_another(consumer: range_reader._PositionedConsumer, count: int) -> list[Any]:
        monkeypatch.undo()
        consumer.position = None  # as where nothing had been fetched yet
        tables.delete(topic)
        tables.create(topic, 1)
        tables.append(topic, 0, values(100, 20))
        return take(consumer, count)

    monkeypatch.setattr(range_reader._PositionedConsumer, "take", take_of_another)
    with pytest.raises(range_reader.DataLoss, match=f"{topic}-0 was made anew"):
        batch.read(0)
