"""A stock consumer that says where it stands reads from the replica there (KIP-392)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from harness.pybroker_cluster import PybrokerCluster
from harness.waiting import PATIENCE_S

from pybroker.config.broker_settings import RACK_AWARE_SELECTOR

TOPIC = "read-nearby"
BROKERS = (1, 2, 3)
COUNT = 20
PROPERTIES = {"replica.selector.class": RACK_AWARE_SELECTOR}


def rack_of(broker_id: int) -> dict[str, str]:
    return {"broker.rack": f"rack-{broker_id}"}


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Three brokers, each in a rack of its own, with a partition that all of them hold."""
    directory = tmp_path_factory.mktemp("racks")
    with PybrokerCluster(directory, PROPERTIES, len(BROKERS), own=rack_of) as cluster:
        bootstrap = ",".join(cluster.bootstraps)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, len(BROKERS))])[TOPIC].result(PATIENCE_S)
        producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
        for number in range(COUNT):
            producer.produce(TOPIC, b"%d" % number)
        assert producer.flush(PATIENCE_S) == 0
        yield bootstrap


def read(bootstrap: str, **settings: Any) -> tuple[list[bytes], dict[str, Any]]:
    """All values, and what librdkafka's statistics say of the partition after that."""
    told: list[dict[str, Any]] = []
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "readers",
            "statistics.interval.ms": 50,
            "stats_cb": lambda text: told.append(json.loads(text)),
            **settings,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    values: list[bytes] = []
    while len(values) < COUNT:
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        values.append(message.value() or b"")
    told.clear()
    while not told:
        consumer.poll(0.05)
    consumer.close()
    partition = told[-1]["topics"][TOPIC]["partitions"]["0"]
    assert isinstance(partition, dict)
    return values, partition


@pytest.mark.parametrize("broker_id", BROKERS)
def test_a_consumer_reads_all_from_the_replica_in_its_rack_leader_or_not(bootstrap: str, broker_id: int) -> None:
    values, partition = read(bootstrap, **{"client.rack": f"rack-{broker_id}"})
    assert values == [b"%d" % number for number in range(COUNT)]
    assert partition["broker"] == broker_id


@pytest.mark.parametrize("settings", [{}, {"client.rack": "rack-9"}], ids=["none", "one where no replica is"])
def test_a_consumer_without_a_replica_in_its_rack_reads_from_the_leader(
    bootstrap: str, settings: dict[str, str]
) -> None:
    values, partition = read(bootstrap, **settings)
    assert len(values) == COUNT
    assert partition["broker"] == partition["leader"]
