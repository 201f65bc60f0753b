"""Requests for the active controller at a broker that is not it: forwarded, done as the client's own, and answered.

Two brokers of one cluster in this process, of which the first has the active controller.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.waiting import wait_until
from harness.wire import LENGTH, request_frame

from pybroker.cluster.image.cluster_image import ClusterImage
from pybroker.config.resources import BROKER, BROKER_LOGGER, TOPIC
from pybroker.handlers.authorizer import AuthorizableRequestContext
from pybroker.handlers.services import Services
from pybroker.server import BrokerServer
from pybroker.testing import Broker
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from pybroker_protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from pybroker_protocol.messages.delete_topics import DeleteTopicsRequest
from pybroker_protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from pybroker_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pybroker_protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.authorizers import AnyOfType
from tests.broker.wire_client import WireClient

CONTROLLER, OTHER = 1, 2
REQUEST_BYTES_MAX = 1 << 20
LOGGER = "pybroker.net.connection"
SETTINGS: dict[str, Any] = {"socket.request.max.bytes": REQUEST_BYTES_MAX}


class Watching(AnyOfType):
    """Allows everything, and keeps who asked."""

    def __init__(self) -> None:
        self.seen: set[tuple[Any, ...]] = set()

    def allows(
        self,
        ctx: AuthorizableRequestContext,
        operation: int,
        resource_type: int,
        name: str,
        *,
        log_if_denied: bool = True,
    ) -> bool:
        """See ``Authorizer``."""
        self.seen.add((ctx.api_key, ctx.api_version, ctx.principal, ctx.client_id, ctx.client_host, name))
        return True


def on_loop(broker: Broker, act: Callable[[Services], Any]) -> Any:
    """Run it on the broker's loop."""

    def run(server: BrokerServer, done: Callable[[Any], None]) -> None:
        done(act(server.services))

    return broker._call(run)


def image_of(broker: Broker) -> ClusterImage:
    image: ClusterImage = on_loop(broker, lambda services: services.metadata.image)
    return image


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite://{tmp_path_factory.mktemp('shared')}/metadata.db"


@pytest.fixture(scope="module")
def controller(store: str) -> Iterator[Broker]:
    with Broker({**SETTINGS, "node.id": CONTROLLER, "pybroker.metadata": store}) as broker:
        yield broker


@pytest.fixture(scope="module")
def other(controller: Broker, store: str) -> Iterator[Broker]:
    with Broker({**SETTINGS, "node.id": OTHER, "pybroker.metadata": store}) as broker:
        assert on_loop(controller, lambda services: services.controller.is_active)
        assert not on_loop(broker, lambda services: services.controller.is_active)
        yield broker


@pytest.fixture
def client(other: Broker) -> Iterator[WireClient]:
    with WireClient((other.host, other.port)) as client:
        yield client


@pytest.fixture(autouse=True)
def level_as_before() -> Iterator[None]:
    level = logging.getLogger(LOGGER).level
    yield
    logging.getLogger(LOGGER).setLevel(level)


def new_topic(name: str, **configs: str) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=1,
        replication_factor=1,
        assignments=[],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )


def altered(resource_type: int, name: str, key: str, value: str) -> AlterConfigsResource:
    config = AlterableConfig(name=key, config_operation=0, value=value)
    return AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=[config])


@pytest.mark.parametrize("version", range(2, 8))
def test_topic_is_created_by_the_active_controller(
    controller: Broker, other: Broker, client: WireClient, version: int
) -> None:
    name = f"made-{version}"
    request = CreateTopicsRequest(topics=[new_topic(name)], validate_only=False, timeout_ms=5_000)
    (result,) = client.ask(request, version).topics
    assert (result.name, result.error_code) == (name, 0)
    topic = image_of(controller).topics_by_name[name]
    assert result.topic_id == (topic.topic_id if version >= 7 else bytes(16))
    wait_until(lambda: name in image_of(other).topics_by_name, "the other broker hears of it")


def test_every_kind_of_change_finds_its_way(controller: Broker, client: WireClient) -> None:
    client.ask(CreateTopicsRequest(topics=[new_topic("changed")], validate_only=False), 7)
    grown = CreatePartitionsTopic(name="changed", count=3, assignments=None)
    (result,) = client.ask(CreatePartitionsRequest(topics=[grown], timeout_ms=5_000, validate_only=False), 3).results
    assert result.error_code == 0
    assert len(image_of(controller).topics_by_name["changed"].partitions) == 3
    wanted = [TopicPartitions(topic="changed", partitions=[0])]
    elected = client.ask(ElectLeadersRequest(election_type=0, topic_partitions=wanted, timeout_ms=5_000), 2)
    (partition,) = elected.replica_election_results[0].partition_result
    assert partition.error_code == ErrorCode.ELECTION_NOT_NEEDED
    unknown = FeatureUpdateKey(feature="no.such", max_version_level=1)
    assert client.ask(UpdateFeaturesRequest(timeout_ms=5_000, feature_updates=[unknown]), 2).error_code != 0
    (deleted,) = client.ask(DeleteTopicsRequest(topic_names=["changed"], timeout_ms=5_000), 5).responses
    assert deleted.error_code == 0
    assert "changed" not in image_of(controller).topics_by_name


def test_request_is_done_as_if_its_client_had_sent_it_to_the_controller(controller: Broker, client: WireClient) -> None:
    watching = Watching()
    on_loop(controller, lambda services: setattr(services, "authorizer", watching))
    try:
        client.ask(CreateTopicsRequest(topics=[new_topic("permitted")], validate_only=True), 6)
    finally:
        on_loop(controller, lambda services: setattr(services, "authorizer", None))
    assert (19, 6, "User:ANONYMOUS", "test", "/127.0.0.1", "kafka-cluster") in watching.seen
    assert (58, 0, "User:ANONYMOUS", f"broker-{OTHER}", "/127.0.0.1", "kafka-cluster") in watching.seen


def test_replies_keep_their_order_with_requests_that_are_forwarded(client: WireClient) -> None:
    for number in range(3):
        client.send(CreateTopicsRequest(topics=[new_topic(f"in-order-{number}")], validate_only=True), 7)
    for number in range(3):
        assert [topic.name for topic in client.receive().topics] == [f"in-order-{number}"]


def test_long_request_is_forwarded_in_steps(controller: Broker, client: WireClient) -> None:
    topics = [new_topic(f"many-{number:05}-{'x' * 200}") for number in range(2_000)]
    results = client.ask(CreateTopicsRequest(topics=topics, validate_only=True, timeout_ms=20_000), 7).topics
    assert [result.name for result in results] == [topic.name for topic in topics]
    assert {result.error_code for result in results} == {0}


def test_longest_request_that_a_client_may_send_is_forwarded(client: WireClient) -> None:
    topic = new_topic("long", **{f"no.such.{number:02}": "v" * 20_000 for number in range(40)})
    request = CreateTopicsRequest(topics=[topic], validate_only=True, timeout_ms=2_000)
    share, rest = divmod(REQUEST_BYTES_MAX - len(request_frame(request, 7)[LENGTH.size :]), len(topic.configs))
    for config in topic.configs:
        config.value = "v" * (20_000 + share)
    topic.configs[0].value = "v" * (20_000 + share + rest)
    assert len(request_frame(request, 7)) == LENGTH.size + REQUEST_BYTES_MAX
    (result,) = client.ask(request, 7).topics
    assert result.error_code == ErrorCode.INVALID_CONFIG, "there is no such setting, says the controller"


def test_settings_of_the_broker_asked_are_judged_there_and_kept_by_the_controller(
    controller: Broker, other: Broker, client: WireClient
) -> None:
    client.ask(CreateTopicsRequest(topics=[new_topic("configured")], validate_only=False), 7)
    resources = [
        altered(BROKER_LOGGER, str(OTHER), LOGGER, "INFO"),
        altered(TOPIC, "configured", "retention.ms", "12345"),
        altered(BROKER, str(CONTROLLER), "log.cleaner.threads", "2"),
        altered(BROKER, str(OTHER), "log.cleaner.threads", "2"),
        altered(BROKER_LOGGER, str(CONTROLLER), LOGGER, "INFO"),
        altered(BROKER, str(OTHER), "log.cleaner.threads", "2000"),
        altered(BROKER, "", "log.retention.ms", "54321"),
    ]
    for chosen in (resources[:5], resources[5:]):  # a resource comes once in a request
        reply = client.ask(IncrementalAlterConfigsRequest(resources=chosen, validate_only=False), 1)
        assert [(result.resource_type, result.resource_name) for result in reply.responses] == [
            (resource.resource_type, resource.resource_name) for resource in chosen
        ]
        refused = [bool(result.error_code) for result in reply.responses]
        assert refused == ([False, False, True, False, True] if len(chosen) == 5 else [True, False])
    configs = image_of(controller).configs
    assert configs[TOPIC, "configured"] == {"retention.ms": "12345"}
    assert configs[BROKER, str(OTHER)] == {"log.cleaner.threads": "2"}
    assert configs[BROKER, ""]["log.retention.ms"] == "54321"
    assert (BROKER, str(CONTROLLER)) not in configs


def test_request_that_only_this_broker_can_do_goes_nowhere(controller: Broker, client: WireClient) -> None:
    resources = [altered(BROKER_LOGGER, str(OTHER), LOGGER, "INFO")]
    watching = Watching()
    on_loop(controller, lambda services: setattr(services, "authorizer", watching))
    try:
        reply = client.ask(IncrementalAlterConfigsRequest(resources=resources, validate_only=False), 1)
    finally:
        on_loop(controller, lambda services: setattr(services, "authorizer", None))
    assert [result.error_code for result in reply.responses] == [0]
    assert not watching.seen


def test_request_that_comes_while_the_controller_changes_is_done_by_the_next_one(tmp_path: Path) -> None:
    settings = {"pybroker.metadata": f"sqlite://{tmp_path}/metadata.db"}
    with Broker({"node.id": OTHER, **settings}) as first, Broker({"node.id": CONTROLLER, **settings}) as next_one:
        with WireClient((next_one.host, next_one.port)) as client:
            client.ask(CreateTopicsRequest(topics=[new_topic("before")], validate_only=False), 7)
            assert "before" in image_of(first).topics_by_name
            first.stop()
            request = CreateTopicsRequest(topics=[new_topic("after")], validate_only=False, timeout_ms=20_000)
            (result,) = client.ask(request, 7).topics
        assert result.error_code == 0
        assert {"before", "after"} <= set(image_of(next_one).topics_by_name)
