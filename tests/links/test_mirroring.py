"""Two clusters and a link on loopback: what the source has is here, at the same offsets, byte for byte."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, ResourceType
from harness.waiting import PATIENCE_S, wait_until

from pybroker.cluster.image.link_states import (
    FAILED_OVER,
    MIRRORING,
    PAUSED,
    PROMOTED,
    STOPPED,
    own_producer_ids,
)
from pybroker.config.resources import BROKER
from pybroker.net.source_client import SourceClient
from pybroker.testing import Broker, Cluster
from pybroker_protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pybroker_protocol.messages.init_producer_id import InitProducerIdRequest
from pybroker_protocol.messages.list_offsets import ListOffsetsRequest
from pybroker_protocol.uuids import uuid_text
from tests.broker.wire_client import WireClient
from tests.links.linked import (
    all_stored,
    alter_link,
    code_of_a_write,
    image_of,
    leader_of,
    link,
    mirror_of,
    produce,
    produce_transactions,
    read_all,
    set_link,
    stored,
    wait_for_state,
    wait_until_mirrored,
)

PARTITIONS = 3


@pytest.fixture
def source() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic("orders", partitions=PARTITIONS, configs={"retention.ms": 123_456_789})
        yield running


@pytest.fixture
def here(source: Broker) -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd", "lz4", "snappy"])
def test_records_are_mirrored_byte_for_byte(source: Broker, here: Broker, compression: str) -> None:
    produce(source, "orders", 300, compression_type=compression, enable_idempotence=True)
    link(here, source)
    wait_for_state(here, "orders", MIRRORING)
    wait_until_mirrored(source, here, "orders", PARTITIONS)
    produce(source, "orders", 100, compression_type=compression)
    produce_transactions(source, "orders", True, False, True)
    wait_until_mirrored(source, here, "orders", PARTITIONS)
    assert read_all(here, "orders") == read_all(source, "orders")
    assert image_of(here).overrides(2, "orders") == {"retention.ms": "123456789"}


def test_a_topic_has_a_prefix_and_new_topics_and_partitions_come(source: Broker, here: Broker) -> None:
    link(here, source, topics="orders*", prefix="west.")
    wait_for_state(here, "west.orders", MIRRORING)
    source.create_topic("orders-of-today")
    source.create_topic("payments")
    wait_for_state(here, "west.orders-of-today", MIRRORING)
    admin = AdminClient({"bootstrap.servers": source.bootstrap})
    admin.create_partitions([NewPartitions("orders", 5)])["orders"].result(PATIENCE_S)
    wait_until(lambda: len(image_of(here).topics_by_name["west.orders"].partitions) == 5, "more partitions")
    assert "west.payments" not in image_of(here).topics_by_name


@pytest.mark.parametrize("settings", [{}, {"acks": 1}, {"enable.idempotence": True}])
def test_producers_are_refused_until_the_topic_is_promoted(
    source: Broker, here: Broker, settings: dict[str, Any]
) -> None:
    produce(source, "orders", 10)
    link(here, source)
    wait_for_state(here, "orders", MIRRORING)
    wait_until_mirrored(source, here, "orders", PARTITIONS)
    assert code_of_a_write(here, settings) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    set_link(here.bootstrap, promote="orders")
    wait_for_state(here, "orders", PROMOTED)
    assert code_of_a_write(here, settings) is None


def test_a_transaction_with_a_mirrored_topic_is_refused_until_it_is_promoted(source: Broker, here: Broker) -> None:
    link(here, source)
    wait_for_state(here, "orders", MIRRORING)
    with pytest.raises(KafkaException) as refused:
        write_in_a_transaction(here)
    error = refused.value.args[0]
    assert (error.code(), error.txn_requires_abort()) == (KafkaError.TOPIC_AUTHORIZATION_FAILED, True)
    set_link(here.bootstrap, promote="orders")
    wait_for_state(here, "orders", PROMOTED)
    write_in_a_transaction(here)
    assert read_all(here, "orders") == [b"a write"]


def write_in_a_transaction(here: Broker) -> None:
    producer = Producer({"bootstrap.servers": here.bootstrap, "transactional.id": "t", "linger.ms": 0})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce("orders", b"a write")
    producer.commit_transaction(PATIENCE_S)


def test_whatever_else_writes_to_a_mirrored_topic_is_refused(source: Broker, here: Broker) -> None:
    produce(source, "orders", 10)
    link(here, source)
    wait_for_state(here, "orders", MIRRORING)
    wait_until_mirrored(source, here, "orders", PARTITIONS)
    admin = AdminClient({"bootstrap.servers": here.bootstrap})
    for futures in (
        admin.create_partitions([NewPartitions("orders", 9)]),
        admin.delete_records([TopicPartition("orders", 0, 1)]),
    ):
        (future,) = futures.values()
        with pytest.raises(KafkaException) as refused:
            future.result(PATIENCE_S)
        assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_promotion_ends_open_transactions_and_takes_all_that_the_source_has(source: Broker, here: Broker) -> None:
    link(here, source)
    wait_for_state(here, "orders", MIRRORING)
    left_open = produce_transactions(source, "orders", True, False, None)
    committed = read_all(source, "orders")
    wait_until_mirrored(source, here, "orders", PARTITIONS)
    set_link(here.bootstrap, promote="orders")
    mirror = wait_for_state(here, "orders", PROMOTED)
    assert mirror.ended == ()
    produce(here, "orders", 30)
    wait_until(lambda: len(read_all(here, "orders")) == len(committed) + 30, "the open transaction to be aborted")
    assert set(committed) <= set(read_all(here, "orders"))
    left_open.abort_transaction(PATIENCE_S)


def test_many_partitions_that_are_promoted_ask_the_source_together(
    source: Broker, here: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    ask = SourceClient.ask

    def counted(self: SourceClient, broker_id: int, request: Any, *rest: Any, **named: Any) -> None:
        if isinstance(request, ListOffsetsRequest):
            asked.append(sum(len(topic.partitions) for topic in request.topics))
        ask(self, broker_id, request, *rest, **named)

    monkeypatch.setattr(SourceClient, "ask", counted)
    source.create_topic("orders-of-many", partitions=100)
    produce(source, "orders-of-many", 200)
    link(here, source, topics="orders*")
    wait_for_state(here, "orders-of-many", MIRRORING)
    wait_until_mirrored(source, here, "orders-of-many", 100)
    set_link(here.bootstrap, promote="orders-of-many")
    mirror = wait_for_state(here, "orders-of-many", PROMOTED)
    assert len(mirror.first_epochs) == 100
    assert max(asked) == 100
    produce(here, "orders-of-many", 200)


def test_a_broker_tells_how_far_it_is_where_it_is_asked(source: Broker, here: Broker) -> None:
    produce(source, "orders", 30)
    link(here, source, prefix="west.")
    wait_for_state(here, "west.orders", MIRRORING)
    wait_until(lambda: [each["lag"] for each in progress(here)] == [0] * PARTITIONS, "an end of the lag")
    shown = progress(here)
    assert {(each["topic"], each["partition"]) for each in shown} == {("west.orders", at) for at in range(PARTITIONS)}
    assert sum(each["end"] for each in shown) == sum(each["sourceEnd"] for each in shown) == 30
    assert sum(each["rate"] for each in shown) > 0
    set_link(here.bootstrap, pause="*")
    wait_for_state(here, "west.orders", PAUSED)
    assert progress(here) == []


def progress(here: Broker) -> list[dict[str, Any]]:
    broker_id = here._running().services.broker_id
    shown = of_brokers(here, str(broker_id), "pybroker.links.west.partitions")
    return [each for text in shown.values() for each in json.loads(text)]


def of_brokers(here: Broker, name: str, *keys: str) -> dict[str, Any]:
    """What is described of one broker, or "" of all together."""
    asked = DescribeConfigsResource(resource_type=BROKER, resource_name=name, configuration_keys=list(keys) or None)
    request = DescribeConfigsRequest(resources=[asked], include_synonyms=False, include_documentation=False)
    host, _, port = here.bootstrap.rpartition(":")
    with WireClient((host, int(port))) as client:
        (result,) = client.ask(request, 4).results
    assert not result.error_code, result
    return {entry.name: entry.value for entry in result.configs}


def test_a_transactional_id_of_before_the_first_mirrored_topic_gets_a_producer_id_of_this_clusters_own(
    source: Broker, here: Broker
) -> None:
    produce_transactions(here, "__nothing", name="app")
    before = producer_id_of(here, "app")
    link(here, source)
    wait_for_state(here, "orders", MIRRORING)
    after = producer_id_of(here, "app")
    assert before < own_producer_ids(image_of(here).cluster_id) <= after
    assert producer_id_of(here, "app") == after


def test_what_a_producer_of_before_the_link_is_acknowledged_is_there_though_the_sources_had_its_id(
    source: Broker, here: Broker
) -> None:
    """Both clusters have given their first id: to a producer of here that lives on, and to one of the source."""
    settings = {"enable.idempotence": True, "linger.ms": 0}
    mine = Producer({"bootstrap.servers": here.bootstrap, **settings})
    theirs = Producer({"bootstrap.servers": source.bootstrap, **settings})
    here.create_topic("own")
    assert send(mine, "own", 1) == [0]
    assert send(theirs, "orders", 3) == [0, 1, 2]
    link(here, source)
    wait_for_state(here, "orders", MIRRORING)
    wait_until_mirrored(source, here, "orders", PARTITIONS)
    set_link(here.bootstrap, promote="orders")
    wait_for_state(here, "orders", PROMOTED)
    assert send(mine, "orders", 4) == [3, 4, 5, 6]


def send(producer: Producer, topic: str, how_many: int) -> list[int]:
    """Produce records one by one to partition 0: the offsets that are acknowledged."""
    offsets: list[int] = []

    def delivered(error: Any, message: Any) -> None:
        assert error is None, error
        offsets.append(message.offset())

    for _ in range(how_many):
        producer.produce(topic, b"v", partition=0, on_delivery=delivered)
        assert producer.flush(PATIENCE_S) == 0
    return offsets


def producer_id_of(here: Broker, transactional_id: str) -> int:
    """What a producer that begins under this id gets."""
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    host, _, port = here.bootstrap.rpartition(":")
    with WireClient((host, int(port))) as client:
        response = client.ask(request, 4)
    assert not response.error_code
    return int(response.producer_id)


def test_failover_takes_what_is_here_while_the_source_is_away(source: Broker, here: Broker) -> None:
    produce(source, "orders", 50)
    link(here, source)
    wait_for_state(here, "orders", MIRRORING)
    wait_until_mirrored(source, here, "orders", PARTITIONS)
    before = all_stored(here, "orders", PARTITIONS)
    source.kill()
    set_link(here.bootstrap, failover="orders")
    wait_for_state(here, "orders", FAILED_OVER)
    produce(here, "orders", 30)
    for index in range(PARTITIONS):
        after = stored(here, "orders", index)
        assert before[index] == {offset: after[offset] for offset in before[index]}


def test_a_paused_topic_stands_still_and_goes_on(source: Broker, here: Broker) -> None:
    produce(source, "orders", 30)
    link(here, source)
    wait_for_state(here, "orders", MIRRORING)
    wait_until_mirrored(source, here, "orders", PARTITIONS)
    set_link(here.bootstrap, pause="orders")
    wait_for_state(here, "orders", PAUSED)
    before = all_stored(here, "orders", PARTITIONS)
    produce(source, "orders", 30)
    assert all_stored(here, "orders", PARTITIONS) == before
    set_link(here.bootstrap, pause=None)
    wait_until_mirrored(source, here, "orders", PARTITIONS)


def test_a_topic_that_is_made_anew_at_the_source_stops_with_what_is_here(source: Broker, here: Broker) -> None:
    produce(source, "orders", 30)
    link(here, source)
    wait_for_state(here, "orders", MIRRORING)
    wait_until_mirrored(source, here, "orders", PARTITIONS)
    before = all_stored(here, "orders", PARTITIONS)
    source.delete_topic("orders")
    source.create_topic("orders", partitions=PARTITIONS)
    produce(source, "orders", 5)
    mirror = wait_for_state(here, "orders", STOPPED)
    assert mirror.reason
    assert all_stored(here, "orders", PARTITIONS) == before


def test_a_log_that_begins_late_begins_here_at_the_same_offset(source: Broker, here: Broker) -> None:
    produce(source, "orders", 300, linger_ms=0, batch_num_messages=10)
    admin = AdminClient({"bootstrap.servers": source.bootstrap})
    (deleted,) = admin.delete_records([TopicPartition("orders", 0, 20)]).values()
    assert deleted.result(PATIENCE_S).low_watermark == 20
    link(here, source)
    wait_for_state(here, "orders", MIRRORING)

    def start(side: Broker) -> int:
        client = Consumer({"bootstrap.servers": side.bootstrap, "group.id": "g"})
        low, _ = client.get_watermark_offsets(TopicPartition("orders", 0), PATIENCE_S)
        client.close()
        return int(low)

    wait_until(lambda: start(here) == start(source) == 20, "the same start")
    left = read_all(source, "orders")
    wait_until(lambda: read_all(here, "orders") == left, "all that is left")


def test_a_link_to_this_cluster_itself_is_told_and_mirrors_nothing(here: Broker) -> None:
    here.create_topic("orders")
    link(here, here, prefix="x")
    wait_until(lambda: "west" in image_of(here).links, "what is known of the link")
    assert image_of(here).links["west"].problem == "its source is this cluster itself"
    assert not image_of(here).mirrors


def test_a_broker_that_starts_with_a_link_in_its_settings_mirrors(source: Broker) -> None:
    produce(source, "orders", 10)
    settings: dict[str, str | int | float] = {
        "pybroker.links.west.bootstrap.servers": source.bootstrap,
        "pybroker.links.west.topics": "orders",
        "pybroker.links.west.refresh.interval.ms": 100,
    }
    with Broker(settings) as here:
        wait_for_state(here, "orders", MIRRORING)
        wait_until_mirrored(source, here, "orders", PARTITIONS)
        here.restart()
        produce(source, "orders", 10)
        wait_until_mirrored(source, here, "orders", PARTITIONS)


def test_leaders_that_change_on_either_side_change_nothing_of_what_is_mirrored() -> None:
    with Cluster(3) as source, Cluster(3) as here:
        source.create_topic("orders", partitions=PARTITIONS, replication_factor=3)
        link(here, source, replication_factor="3")
        wait_for_state(here, "orders", MIRRORING)
        produce(source, "orders", 200, enable_idempotence=True)
        source.kill(leader_of(source, "orders", 0).broker_id)
        produce(source, "orders", 200, enable_idempotence=True)
        produce_transactions(source, "orders", True, False)
        killed = leader_of(here, "orders", 0).broker_id
        here.kill(killed)
        produce(source, "orders", 200, enable_idempotence=True)
        wait_until_mirrored(source, here, "orders", PARTITIONS)
        here.restart(killed)
        produce(source, "orders", 200)
        wait_until_mirrored(source, here, "orders", PARTITIONS)
        set_link(here.bootstrap.split(",")[0], promote="orders")
        wait_for_state(here, "orders", PROMOTED)
        assert read_all(here, "orders") == read_all(source, "orders")
        mirror = mirror_of(here, "orders")
        assert mirror is not None
        assert len(mirror.first_epochs) == PARTITIONS


def test_a_cut_at_the_source_is_followed_under_another_leader_epoch() -> None:
    with Cluster(2) as source, Broker() as here:
        settings: dict[str, str | int | float] = {"unclean.leader.election.enable": "true", "min.insync.replicas": 1}
        source.create_topic("orders", replication_factor=2, configs=settings)
        link(here, source)
        wait_for_state(here, "orders", MIRRORING)
        produce(source, "orders", 50)
        wait_until_mirrored(source, here, "orders", 1)
        first = leader_of(source, "orders", 0).broker_id
        second = next(broker_id for broker_id in source.brokers if broker_id != first)
        source.kill(second)
        produce(source, "orders", 50)
        wait_until_mirrored(source, here, "orders", 1)
        epoch = image_of(here).topics_by_name["orders"].partitions[0].leader_epoch
        source.kill(first)
        source.restart(second)
        wait_until(lambda: source.leader("orders") == second, "a leader that lacks records")
        produce(source, "orders", 20)
        wait_until(lambda: stored(here, "orders", 0) == stored(source, "orders", 0), "the same log")
        assert image_of(here).topics_by_name["orders"].partitions[0].leader_epoch > epoch
        assert read_all(here, "orders") == read_all(source, "orders")


def test_a_link_whose_bootstrap_server_is_gone_asks_other_brokers_of_its_source() -> None:
    with Cluster(2) as source, Broker() as here:
        source.create_topic("orders", replication_factor=2)
        link(here, source.brokers[1], topics="orders*")
        wait_for_state(here, "orders", MIRRORING)
        source.kill(1)
        source.create_topic("orders-of-today")
        wait_for_state(here, "orders-of-today", MIRRORING)
        assert not problem_of(here)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("protocol", ["SASL_SSL", "SASL_PLAINTEXT"])
def test_a_link_logs_in_at_a_source_that_asks_who_comes(protocol: str, mechanism: str, here: Broker) -> None:
    with Broker(security=protocol) as source:
        source.create_topic("orders")
        settings = source.client_settings("java", mechanism=mechanism)
        answer = alter_link(here.bootstrap, "west", {**settings, "topics": "orders", "refresh.interval.ms": "100"})
        assert answer.error_code == 0, answer
        wait_for_state(here, "orders", MIRRORING)
        produce(source, "orders", 20, **source.client_settings("confluent-kafka"))
        wait_until_mirrored(source, here, "orders", 1)


def test_a_wrong_password_is_told_and_a_right_one_mends_it(here: Broker) -> None:
    with Broker(security="SASL_PLAINTEXT") as source:
        source.create_topic("orders")
        settings = source.client_settings("java")
        wrong = {**settings, "sasl.jaas.config": settings["sasl.jaas.config"].replace("alice-secret", "a-guess")}
        alter_link(here.bootstrap, "west", {**wrong, "topics": "orders", "refresh.interval.ms": "100"})
        wait_until(lambda: "login refused" in problem_of(here), "the refusal")
        assert "a-guess" not in problem_of(here)
        alter_link(here.bootstrap, "west", settings)
        wait_for_state(here, "orders", MIRRORING)
        wait_until(lambda: not problem_of(here), "an end of the problem")


def problem_of(here: Broker) -> str:
    state = image_of(here).links.get("west")
    return "" if state is None else str(state.problem)


def test_stock_tools_see_states_and_problems(source: Broker, here: Broker) -> None:
    link(here, source, topics="orders*")
    wait_for_state(here, "orders", MIRRORING)
    here.create_topic("orders-here")
    source.create_topic("orders-here")
    wait_until(lambda: image_of(here).links["west"].refused, "what is refused")
    admin = AdminClient({"bootstrap.servers": here.bootstrap})
    (described,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, "orders")]).values()
    shown = {name: entry.value for name, entry in described.result(PATIENCE_S).items() if name.startswith("pybroker.m")}
    assert shown == {
        "pybroker.mirror.link": "west",
        "pybroker.mirror.topic": "orders",
        "pybroker.mirror.topic.id": uuid_text(image_of(source).topics_by_name["orders"].topic_id),
        "pybroker.mirror.state": MIRRORING,
    }
    shown = {name.rpartition("west.")[2]: text for name, text in of_brokers(here, "").items()}
    assert shown["source.cluster.id"] == image_of(source).cluster_id
    assert shown["refused"] == "orders-here: a topic orders-here is here already"
    assert image_of(here).links["west"].refused == (("orders-here", "a topic orders-here is here already"),)
