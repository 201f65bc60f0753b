"""Every client over TLS, with a user of SCRAM and with a certificate: it sends, reads in a group, and looks around."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.adapter import Admin, ConsumerOptions, ProducerOptions, read
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


def test_who_logs_in_sends_reads_and_looks_around(library: str, secured: Secured, topics: Admin, name: str) -> None:
    client = CLIENTS[library](secured.access.bootstrap)
    try:
        assert topics.create_topic(name) == 0
        assert client.admin().topics()[name] == 1
        producer = client.producer(ProducerOptions())
        values = [b"%d" % number for number in range(20)]
        for value in values:
            producer.send(name, value)
        assert {delivery.error for delivery in producer.flush()} == {0}
        consumer = client.consumer(ConsumerOptions(group=f"{name}-readers"))
        consumer.subscribe(name)
        assert sorted(record.value or b"" for record in read(consumer, len(values))) == sorted(values)
    finally:
        client.close()
