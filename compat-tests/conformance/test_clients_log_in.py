"""Every client over TLS, with a user of SCRAM and with a certificate: it sends, reads in a group, and looks around."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.adapter import Admin, Client, ConsumerOptions, ProducerOptions, read
from conformance.all_clients import CLIENTS
from conformance.security import SECURED, SECURITIES, Secured, secured_broker


@pytest.fixture(scope="module", params=SECURITIES)
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory: Path = tmp_path_factory.mktemp("secured")
    with secured_broker(directory, request.param) as broker, pytest.MonkeyPatch.context() as patch:
        patch.setenv(SECURED, broker.environment()[SECURED])
        yield broker


@pytest.fixture
def topics(secured: Secured) -> Iterator[Admin]:
    """Makes topics, which not every client can."""
    client = CLIENTS["librdkafka"](secured.access.bootstrap)
    yield client.admin()
    client.close()


@pytest.fixture
def visitor(library: str, secured: Secured) -> Iterator[Client]:
    made = CLIENTS[library](secured.access.bootstrap)
    yield made
    made.close()


def send_some(client: Client, topic: str) -> list[bytes]:
    """Send records by a producer of the client's; their values."""
    producer = client.producer(ProducerOptions())
    values = [b"%d" % number for number in range(20)]
    for value in values:
        producer.send(topic, value)
    assert {delivery.error for delivery in producer.flush()} == {0}
    return values


def test_who_logs_in_sends_reads_and_looks_around(visitor: Client, topics: Admin, name: str) -> None:
    assert topics.create_topic(name) == 0
    assert visitor.admin().topics()[name] == 1
    values = send_some(visitor, name)
    consumer = visitor.consumer(ConsumerOptions())
    consumer.assign([(name, 0)])
    assert [record.value for record in read(consumer, len(values))] == values


def test_who_logs_in_reads_as_a_member_of_a_group(visitor: Client, topics: Admin, name: str) -> None:
    assert topics.create_topic(name) == 0
    values = send_some(visitor, name)
    consumer = visitor.consumer(ConsumerOptions(group=f"{name}-readers"))
    consumer.subscribe(name)
    assert sorted(record.value or b"" for record in read(consumer, len(values))) == sorted(values)
