"""The pytest plugin: ``kafka_broker``, ``kafka_topic`` and ``kafka_cluster``.

Owns: the fixtures.  Imports nothing but the standard library and pytest until a fixture is used, because pytest loads
it in every project that has pybroker installed.

``kafka_broker``: one in-process broker per test run (and per xdist worker).  Override ``kafka_broker_settings`` to give
it settings, and ``kafka_broker_security`` to have it ask who its clients are.  ``kafka_topic``: the name of a fresh
topic, deleted after the test.

``kafka_cluster``: three in-process brokers that are one cluster, anew for each test, because tests kill them.  Override
``kafka_cluster_settings`` to give each of them settings.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pybroker.testing.broker import Broker, Setting
    from pybroker.testing.cluster import Cluster
    from pybroker.testing.security import Security


@pytest.fixture(scope="session")
def kafka_broker_settings() -> Mapping[str, Setting]:
    """Kafka's broker settings for ``kafka_broker``; override it in a conftest."""
    return {}


@pytest.fixture(scope="session")
def kafka_broker_security() -> Security | str | None:
    """What ``kafka_broker`` asks of its clients, such as "SASL_SSL"; override it in a conftest."""
    return None


@pytest.fixture(scope="session")
def kafka_broker(
    kafka_broker_settings: Mapping[str, Setting], kafka_broker_security: Security | str | None
) -> Iterator[Broker]:
    """A running in-process broker; ``kafka_broker.bootstrap`` is what a client's ``bootstrap_servers`` takes."""
    from pybroker.testing.broker import Broker

    with Broker(kafka_broker_settings, security=kafka_broker_security) as broker:
        yield broker


@pytest.fixture
def kafka_topic(kafka_broker: Broker) -> Iterator[str]:
    """The name of a topic of one partition that exists for this test only."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    kafka_broker.create_topic(name)
    yield name
    kafka_broker.delete_topic(name)


@pytest.fixture(scope="session")
def kafka_cluster_settings() -> Mapping[str, Setting]:
    """Kafka's broker settings for each broker of ``kafka_cluster``; override it in a conftest."""
    return {}


@pytest.fixture
def kafka_cluster(kafka_cluster_settings: Mapping[str, Setting]) -> Iterator[Cluster]:
    """Three running in-process brokers that are one cluster; ``kafka_cluster.bootstrap`` has all their addresses."""
    from pybroker.testing.cluster import Cluster

    with Cluster(3, kafka_cluster_settings) as cluster:
        yield cluster
