"""What clients make of a broker that restarts or creates topics by itself or not."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.adapter import Admin, Client, ConsumerOptions, ProducerOptions, poll_until, read
from conformance.all_clients import CLIENTS
from conformance.broker_under_test import OwnBroker, start_own_broker
from conformance.conftest import create_topic


@pytest.fixture(scope="module")
def broker_without_auto_creation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnBroker]:
    started = start_own_broker(tmp_path_factory.mktemp("broker"), {"auto.create.topics.enable": "false"})
    yield started
    started.stop()


def test_first_record_creates_its_topic(client: Client, topic_admin: Admin, name: str) -> None:
    producer = client.producer()
    producer.send(name, b"v")
    assert [delivery.error for delivery in producer.flush()] == [0]
    assert client.admin().topics()[name] == 1
    assert topic_admin.delete_topic(name) == 0


def test_unknown_topic_is_an_error_without_auto_creation(
    library: str, broker_without_auto_creation: OwnBroker, name: str
) -> None:
    client = CLIENTS[library](broker_without_auto_creation.bootstrap)
    try:
        producer = client.producer(ProducerOptions(patience_ms=500, idempotent=False))
        producer.send(name, b"v")
        assert [delivery.error == 0 for delivery in producer.flush()] == [False]
        assert name not in client.admin().topics()
        create_topic(broker_without_auto_creation.bootstrap, name)
        producer = client.producer()
        producer.send(name, b"v")
        assert [delivery.error for delivery in producer.flush()] == [0]
    finally:
        client.close()


# kafka-python leaves the socket of a refused connection to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("reads_by", ["subscription", "assignment"])
def test_clients_go_on_after_the_broker_restarts(library: str, reads_by: str, tmp_path: Path, name: str) -> None:
    broker = start_own_broker(tmp_path)
    client = CLIENTS[library](broker.bootstrap)
    try:
        create_topic(broker.bootstrap, name)
        producer, consumer = client.producer(), client.consumer(ConsumerOptions(group=name))
        if reads_by == "subscription":
            consumer.subscribe(name)
        else:
            consumer.assign([(name, 0)])
        producer.send(name, b"before")
        assert [delivery.offset for delivery in producer.flush()] == [0]
        assert [record.value for record in read(consumer, 1)] == [b"before"]
        broker.restart()
        producer.send(name, b"after")
        assert [delivery.offset for delivery in producer.flush()] == [1]
        records = poll_until([consumer], lambda so_far: bool(so_far) and so_far[-1].value == b"after")
        assert [record.offset for record in records] in ([1], [0, 1])
    finally:
        client.close()
        broker.stop()
        gc.collect()  # while this test's filter holds
