"""The clients, each pointed at the test run's broker, and topics of the test's own."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from conformance.adapter import Client
from conformance.all_clients import CLIENTS
from pybroker.testing import Broker

MakeTopic = Callable[..., str]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run every test that asks for ``client`` once per client library, with all that this library brings.

    ``codec``, ``assignor`` and ``partitioner`` are what the client at hand has of them.
    """
    if "client" not in metafunc.fixturenames:
        return
    for name, choices in (("codec", "codecs"), ("assignor", "assignors"), ("partitioner", "partitioners")):
        if name in metafunc.fixturenames:
            rows = [(client, choice) for client, kind in CLIENTS.items() for choice in getattr(kind, choices)]
            metafunc.parametrize(("client", name), rows, indirect=["client"])
            return
    metafunc.parametrize("client", CLIENTS, indirect=True)


@pytest.fixture
def client(request: pytest.FixtureRequest, kafka_broker: Broker) -> Iterator[Client]:
    """A client library pointed at the run's broker; whatever it opens is closed after the test."""
    made = CLIENTS[request.param](kafka_broker.bootstrap)
    yield made
    made.close()


@pytest.fixture
def make_topic(kafka_broker: Broker) -> Iterator[MakeTopic]:
    """Creates topics of the given partitions and configs, deleted after the test."""
    names: list[str] = []

    def make(partitions: int = 1, **configs: str) -> str:
        names.append(fresh_name())
        kafka_broker.create_topic(
            names[-1],
            partitions=partitions,
            configs={name.replace("_", "."): value for name, value in configs.items()},
        )
        return names[-1]

    yield make
    for name in names:
        kafka_broker.delete_topic(name)


@pytest.fixture
def name() -> str:
    """A topic, group or transactional id that no other test uses."""
    return fresh_name()


def fresh_name() -> str:
    return f"clients-{uuid.uuid4().hex[:12]}"
