"""Stock tools at a mirrored topic: they see an ordinary one, and clients go from the source to it without a reset."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from harness.apache_kafka import CONSOLE_CONSUMER, TOPIC_COMMAND, missing_requirement, run_kafka_tool
from harness.waiting import PATIENCE_S, wait_until
from kafka import KafkaConsumer
from kafka.admin import KafkaAdminClient

from pybroker.cluster.image.link_states import MIRRORING, PROMOTED
from pybroker.config.broker_settings import RACK_AWARE_SELECTOR
from pybroker.testing import Broker, Cluster
from tests.links.linked import (
    committed,
    image_of,
    link,
    produce,
    read_all,
    set_link,
    wait_for_state,
    wait_until_mirrored,
)

COUNT = 30


@pytest.fixture
def source() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic("orders")
        produce(running, "orders", COUNT)
        yield running


@pytest.fixture
def here(source: Broker) -> Iterator[Broker]:
    with Broker() as running:
        mirror(running, source)
        yield running


def mirror(here: Broker | Cluster, source: Broker, **settings: str) -> None:
    link(here, source, **settings)
    wait_for_state(here, "orders", MIRRORING)
    wait_until_mirrored(source, here, "orders", 1)


@pytest.mark.skipif(shutil.which("kcat") is None, reason="there is no kcat (Debian's package kcat)")
def test_kcat_lists_and_reads_a_mirrored_topic_and_is_refused_a_write(source: Broker, here: Broker) -> None:
    def kcat(*arguments: str, says: str = "") -> subprocess.CompletedProcess[str]:
        words = ["kcat", "-b", here.bootstrap, *arguments]
        return subprocess.run(words, input=says, capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    assert 'topic "orders" with 1 partitions:' in kcat("-L", "-t", "orders").stdout
    read = kcat("-C", "-t", "orders", "-o", "beginning", "-e", "-q").stdout.split()
    assert [line.encode() for line in sorted(read)] == read_all(source, "orders")
    refused = kcat("-P", "-t", "orders", "-X", "message.timeout.ms=20000", says="no\n")
    assert "Topic authorization failed" in refused.stderr


def test_the_admin_of_kafka_python_sees_a_mirrored_topic_as_an_ordinary_one(here: Broker) -> None:
    admin = KafkaAdminClient(bootstrap_servers=here.bootstrap)
    (topic,) = admin.describe_topics(["orders"])
    admin.close()
    (partition,) = topic["partitions"]
    assert (topic["error_code"], topic["is_internal"]) == (0, False)
    assert partition["leader_id"] == here._running().services.broker_id
    assert partition["isr_nodes"] == partition["replica_nodes"]
    assert partition["leader_epoch"] == image_of(here).topics_by_name["orders"].partitions[0].leader_epoch


def test_a_consumer_with_a_rack_reads_a_mirrored_topic_of_the_replica_there(source: Broker) -> None:
    nearby: dict[str, str | int | float] = {"replica.selector.class": RACK_AWARE_SELECTOR, "broker.rack": "here"}
    with Cluster(2, settings=nearby) as here:
        mirror(here, source, replication_factor="2")
        values = read(here, {"client.rack": "here"})
        assert sorted(values) == read_all(source, "orders")


def read(side: Broker | Cluster, settings: dict[str, str]) -> list[bytes]:
    """The values of all that is there, from the begin on."""
    consumer = Consumer(
        {"bootstrap.servers": side.bootstrap, "group.id": "racks", "auto.offset.reset": "error"} | settings
    )
    consumer.assign([TopicPartition("orders", 0, 0)])
    values = [value_of(consumer) for _ in range(COUNT)]
    consumer.close()
    return values


def value_of(consumer: Consumer) -> bytes:
    message = consumer.poll(PATIENCE_S)
    assert message is not None, "nothing comes any more"
    assert message.error() is None, message.error()
    return message.value() or b""


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_goes_on_at_the_mirror_under_the_leader_epoch_that_it_has_committed(
    source: Broker, here: Broker, protocol: str
) -> None:
    """A reset would be an error to it, and it is fetched again only under an epoch that it may have."""
    first = values_by_group(source, protocol, COUNT - 10)
    set_link(here.bootstrap, groups="movers")
    wait_until(lambda: committed(here, "movers") == {0: COUNT - 10}, "the group's offset")
    more = values_by_group(here, protocol, 5)  # while it is mirrored
    set_link(here.bootstrap, promote="orders")
    wait_for_state(here, "orders", PROMOTED)
    produce(here, "orders", 10)
    rest = values_by_group(here, protocol, 15)
    assert sorted([*first, *more, *rest]) == read_all(here, "orders")
    assert len({*first, *more, *rest}) == COUNT + 10


def values_by_group(side: Broker, protocol: str, count: int) -> list[bytes]:
    """So many values of a member that commits each, with the epoch under which it was read."""
    consumer = Consumer(
        {
            "bootstrap.servers": side.bootstrap,
            "group.id": "movers",
            "group.protocol": protocol,
            "auto.offset.reset": "error" if committed(side, "movers") else "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["orders"])
    values = [value_of(consumer) for _ in range(count)]
    (position,) = consumer.position([TopicPartition("orders", 0)])
    assert position.leader_epoch is not None
    assert position.leader_epoch >= 0
    (done,) = consumer.commit(offsets=[position], asynchronous=False) or []
    assert done.error is None or done.error.code() == KafkaError.NO_ERROR
    consumer.close()
    return values


def test_kafka_python_goes_on_at_the_mirror_where_its_group_has_stopped(source: Broker, here: Broker) -> None:
    set_link(here.bootstrap, groups="movers")
    first = by_kafka_python(source, COUNT - 10, reset="earliest")
    wait_until(lambda: committed(here, "movers") == {0: COUNT - 10}, "the group's offset")
    set_link(here.bootstrap, promote="orders")
    wait_for_state(here, "orders", PROMOTED)
    produce(here, "orders", 10)
    assert sorted(first + by_kafka_python(here, 20, reset="none")) == read_all(here, "orders")


def by_kafka_python(side: Broker, count: int, *, reset: str) -> list[bytes]:
    """So many values of a member that commits the last; ``reset`` "none" is an error where there is no offset."""
    consumer = KafkaConsumer(
        "orders",
        bootstrap_servers=side.bootstrap,
        group_id="movers",
        auto_offset_reset=reset,
        enable_auto_commit=False,
        max_poll_records=1,
    )
    values = [next(consumer).value for _ in range(count)]
    consumer.commit()
    consumer.close()
    return values


@pytest.mark.jvm
def test_kafkas_own_tools_see_an_ordinary_topic_and_read_it(source: Broker, here: Broker) -> None:
    if (reason := missing_requirement()) is not None:
        pytest.skip(reason)
    described = run_kafka_tool(
        TOPIC_COMMAND, "--bootstrap-server", here.bootstrap, "--describe", "--topic", "orders"
    ).stdout
    assert "PartitionCount: 1" in described
    at_the_mirror = ("--bootstrap-server", here.bootstrap, "--topic", "orders", "--from-beginning")
    read = run_kafka_tool(CONSOLE_CONSUMER, *at_the_mirror, "--max-messages", str(COUNT)).stdout
    assert sorted(line.encode() for line in read.split() if line.startswith("value-")) == read_all(source, "orders")
