"""Topics of connectors at a broker: what a pattern finds, and dead letters whose topic is made."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from harness.waiting import PATIENCE_S

from pybroker.connectors import connect_service
from pybroker.connectors.connect_service import Service
from pybroker.connectors.kinds.connector_runs import Work
from pybroker.connectors.state.connector_topics import create_dead_letters, topics_found
from pybroker.connectors.state.worker_settings import WorkerSettings
from pybroker.testing import Broker


def partitions(broker: Broker, topic: str) -> int | None:
    there = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=PATIENCE_S).topics
    return len(there[topic].partitions) if topic in there else None


def test_a_pattern_fits_whole_names_and_no_internal_topic(pybroker: Broker) -> None:
    name = f"p{uuid4().hex}"
    for topic in (f"{name}.a", f"{name}.b", f"{name}.a.more", f"of-{name}.a"):
        pybroker.create_topic(topic)
    client = {"bootstrap.servers": pybroker.bootstrap}
    assert topics_found(client, rf"{name}\.a|{name}\.[b-z]") == [f"{name}.a", f"{name}.b"]
    assert not any(each.startswith("__") for each in topics_found(client, ".*"))


def test_the_topic_of_dead_letters_is_made_where_it_is_missing_with_its_copies(pybroker: Broker) -> None:
    client, topic = {"bootstrap.servers": pybroker.bootstrap}, f"dead-{uuid4().hex}"
    with pytest.raises(KafkaException, match=r"(?i)replication factor"):
        create_dead_letters(client, topic, 7)
    assert partitions(pybroker, topic) is None
    create_dead_letters(client, topic, -1)
    assert partitions(pybroker, topic) == 1
    create_dead_letters(client, topic, 7)


@pytest.fixture
def service(pybroker: Broker, monkeypatch: pytest.MonkeyPatch) -> Service:
    """Without Spark: what a kind is given is what its start returns."""
    monkeypatch.setattr(connect_service, "start", lambda work: work)
    monkeypatch.setattr(Service, "_session", lambda _: object())
    made = Service(WorkerSettings({"bootstrap.servers": pybroker.bootstrap}), "127.0.0.1", 0, {}, "/data")
    state: Any = object()
    made._state = state
    return made


def test_a_sink_has_its_topic_of_dead_letters_when_it_starts(pybroker: Broker, service: Service) -> None:
    letters = f"dead-{uuid4().hex}"
    config = {"connector.class": "DeltaSink", "topics": "a", "path": "/t"}
    service._start("a", {**config, "errors.deadletterqueue.topic.name": letters}, 1)
    assert partitions(pybroker, letters) == 1
    service._start("a", config, 1)


def test_a_kind_is_given_what_references_find_and_what_may_be_shown(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ITEMS_URL", "https://h/?token=hunter2")
    providers = {
        "config.providers": "env",
        "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
    }
    service.settings = WorkerSettings(service.settings.client, providers=providers)
    work: Any = service._start("..", {"connector.class": "HttpSource", "url": "${env:ITEMS_URL}", "topic": "t"}, 3)
    assert isinstance(work, Work)
    assert (work.value("url"), work.shown("url")) == ("https://h/?token=hunter2", "${env:ITEMS_URL}")
    assert work.partition == {"url": "${env:ITEMS_URL}"}
    assert work.directory == "/data/%2E%2E/3"
    assert service._hidden.told("https://h/?token=hunter2 answers 500") == "${env:ITEMS_URL} answers 500"


def test_topics_that_a_pattern_names_are_those_of_a_sink(pybroker: Broker, service: Service) -> None:
    name = f"p{uuid4().hex}"
    pybroker.create_topic(f"{name}-a")
    config = {"connector.class": "TopicSink", "topics.regex": f"{name}-.*", "topic": "all"}
    assert service._topics(config) == [f"{name}-a"]
    assert service._topics({**config, "connector.class": "TopicSource", "topics.regex": ""}) == ["all"]
