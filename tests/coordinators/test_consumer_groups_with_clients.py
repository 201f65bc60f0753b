"""librdkafka's consumers with ``group.protocol=consumer`` (KIP-848) against a running broker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from harness.pybroker_process import PybrokerProcess
from harness.waiting import PATIENCE_S

from pybroker.testing import Broker
from tests.coordinators.polling import WAIT_S, poll_until

PARTITIONS = 6
# Members of a test do not wait for five seconds between heartbeats.
SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "2000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.assignment.interval.ms": "50",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(SETTINGS, data_dir=tmp_path) as running:
        running.create_topic("t", partitions=PARTITIONS)
        yield running


def consumer(bootstrap: str, protocol: str = "consumer", **settings: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "g",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 200,
            **({"session.timeout.ms": 6_000, "heartbeat.interval.ms": 200} if protocol == "classic" else {}),
            **settings,
        }
    )


def divided(consumers: list[Consumer], partitions: int = PARTITIONS) -> bool:
    """Whether the consumers have so many partitions in common, about the same number each."""
    counts = [len(member.assignment()) for member in consumers]
    owned = {(each.topic, each.partition) for member in consumers for each in member.assignment()}
    return sum(counts) == len(owned) == partitions and max(counts) - min(counts) <= 1


def produce(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0


def close(*consumers: Consumer) -> None:
    for member in consumers:
        member.close()


def test_partitions_are_divided_among_members_that_come_and_go(broker: Broker) -> None:
    members = [consumer(broker.bootstrap) for _ in range(3)]
    try:
        for count in (1, 2, 3):
            members[count - 1].subscribe(["t"])
            poll_until(members[:count], partial(divided, members[:count]))
        members[0].close()
        poll_until(members[1:], lambda: divided(members[1:]))
    finally:
        close(*members[1:])


def test_every_record_is_read_once_across_rebalances(broker: Broker) -> None:
    produce(broker.bootstrap, "t", 600)
    first, second = consumer(broker.bootstrap), consumer(broker.bootstrap)
    read: list[bytes | None] = []
    try:
        first.subscribe(["t"])
        deadline = time.monotonic() + WAIT_S
        joined = False
        while len(set(read)) < 600:
            assert time.monotonic() < deadline
            for member in (first, second) if joined else (first,):
                message = member.poll(0.02)
                if message is not None and message.error() is None:
                    read.append(message.value())
                    member.commit(message=message, asynchronous=False)
            if len(read) > 100 and not joined:
                second.subscribe(["t"])
                joined = True
        assert len(read) == len(set(read)) == 600
    finally:
        close(first, second)


def test_regular_expression_takes_in_topics_that_come_later(broker: Broker) -> None:
    member = consumer(broker.bootstrap)
    try:
        member.subscribe(["^re.*"])
        broker.create_topic("re1", partitions=2)
        poll_until([member], lambda: len(member.assignment()) == 2)
        broker.create_topic("re2", partitions=1)
        poll_until([member], lambda: len(member.assignment()) == 3)
    finally:
        close(member)


def test_static_member_comes_back_to_its_partitions(broker: Broker) -> None:
    first = consumer(broker.bootstrap, **{"group.instance.id": "one"})
    second = consumer(broker.bootstrap, **{"group.instance.id": "two"})
    first.subscribe(["t"])
    second.subscribe(["t"])
    poll_until([first, second], lambda: divided([first, second]))
    had = {each.partition for each in second.assignment()}
    second.close()
    second = consumer(broker.bootstrap, **{"group.instance.id": "two"})
    try:
        second.subscribe(["t"])
        poll_until([first, second], lambda: bool(second.assignment()))
        assert {each.partition for each in second.assignment()} == had
        assert len(first.assignment()) == PARTITIONS - len(had)
    finally:
        close(first, second)


def test_admin_sees_a_consumer_group(broker: Broker) -> None:
    member = consumer(broker.bootstrap)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    try:
        member.subscribe(["t"])
        poll_until([member], lambda: len(member.assignment()) == PARTITIONS)
        (listed,) = admin.list_consumer_groups().result().valid
        assert (listed.group_id, listed.type.name, listed.state.name) == ("g", "CONSUMER", "STABLE")
        described = admin.describe_consumer_groups(["g"])["g"].result()
        assert described.type.name == "CONSUMER"
        assert len(described.members[0].assignment.topic_partitions) == PARTITIONS
        member.commit(offsets=[TopicPartition("t", 0, 0)], asynchronous=False)
        asked = ConsumerGroupTopicPartitions("g")
        offsets = admin.list_consumer_group_offsets([asked])["g"].result()
        assert [(each.topic, each.offset) for each in offsets.topic_partitions] == [("t", 0)]
    finally:
        close(member)


def test_group_changes_its_protocol_while_its_members_read_on(broker: Broker) -> None:
    """Two classic members are replaced by two of the new protocol, one by one, and by classic ones again."""
    produce(broker.bootstrap, "t", 60)
    members = [consumer(broker.bootstrap, "classic") for _ in range(2)]
    for member in members:
        member.subscribe(["t"])
    poll_until(members, lambda: divided(members))
    kinds = []
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for protocol in ("consumer", "consumer", "classic", "classic"):
        new = consumer(broker.bootstrap, protocol)
        new.subscribe(["t"])
        members.append(new)
        poll_until(members, lambda: divided(members))
        members.pop(0).close()
        poll_until(members, lambda: divided(members))
        kinds.append(admin.list_consumer_groups().result().valid[0].type.name)
    close(*members)
    assert kinds == ["CONSUMER", "CONSUMER", "CONSUMER", "CLASSIC"]


@pytest.mark.slow
def test_group_goes_on_after_the_broker_was_killed(tmp_path: Path) -> None:
    broker = PybrokerProcess(tmp_path, {**SETTINGS, "num.partitions": str(PARTITIONS)})
    broker.start()
    bootstrap = broker.bootstrap
    produce(bootstrap, "t", PARTITIONS)
    members = [consumer(bootstrap) for _ in range(2)]
    try:
        for member in members:
            member.subscribe(["t"])
        poll_until(members, lambda: divided(members))
        broker.kill()
        broker.start()
        produce(bootstrap, "t", PARTITIONS)
        poll_until(members, lambda: divided(members))
        members.append(consumer(bootstrap))
        members[2].subscribe(["t"])
        poll_until(members, lambda: divided(members))
    finally:
        close(*members)
        broker.kill()
