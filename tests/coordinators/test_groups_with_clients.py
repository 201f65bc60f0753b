"""Stock clients' consumer groups against a broker in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from pybroker.testing import Broker
from tests.coordinators.polling import WAIT_S, poll_until

PARTITIONS = 4


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(data_dir=tmp_path) as running:
        running.create_topic("t", partitions=PARTITIONS)
        yield running


def consumer(broker: Broker, **settings: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 200,
            **settings,
        }
    )


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "cooperative-sticky"])
def test_partitions_move_to_new_members_and_back(broker: Broker, assignor: str) -> None:
    settings = {"partition.assignment.strategy": assignor}
    first, second = consumer(broker, **settings), consumer(broker, **settings)
    try:
        first.subscribe(["t"])
        poll_until([first], lambda: len(first.assignment()) == PARTITIONS)
        second.subscribe(["t"])
        poll_until(
            [first, second],
            lambda: len(first.assignment()) == len(second.assignment()) == PARTITIONS // 2,
        )
        owned = {partition.partition for member in (first, second) for partition in member.assignment()}
        assert owned == set(range(PARTITIONS))
        second.close()
        poll_until([first], lambda: len(first.assignment()) == PARTITIONS)
    finally:
        first.close()


def test_static_member_comes_back_to_its_partitions_without_disturbing_the_other(broker: Broker) -> None:
    stays, leaves = (consumer(broker, **{"group.instance.id": name}) for name in ("stays", "leaves"))
    revoked: list[object] = []
    try:
        stays.subscribe(["t"], on_revoke=lambda *_: revoked.append(1))
        leaves.subscribe(["t"])
        poll_until([stays, leaves], lambda: len(stays.assignment()) == len(leaves.assignment()) == PARTITIONS // 2)
        had = {partition.partition for partition in leaves.assignment()}
        leaves.close()
        revoked.clear()
        leaves = consumer(broker, **{"group.instance.id": "leaves"})
        leaves.subscribe(["t"])
        poll_until([stays, leaves], lambda: bool(leaves.assignment()))
        assert {partition.partition for partition in leaves.assignment()} == had
        assert revoked == []
    finally:
        stays.close()
        leaves.close()


def test_group_goes_on_where_it_was_after_the_broker_restarts(tmp_path: Path) -> None:
    values = [b"%d" % number for number in range(20)]
    for half in (values[:10], values[10:]):
        with Broker(data_dir=tmp_path) as running:
            producer = Producer({"bootstrap.servers": running.bootstrap})
            for value in half:
                producer.produce("u", value)
            producer.flush()
            member = consumer(running)
            member.subscribe(["u"])
            read: list[bytes | None] = []
            while len(read) < len(half):
                read += [message.value() for message in member.consume(10, timeout=0.2) if message.error() is None]
            member.commit(asynchronous=False)
            member.close()
            assert read == half
    with Broker(data_dir=tmp_path) as running:
        member = consumer(running)
        assert member.committed([TopicPartition("u", 0)], timeout=WAIT_S)[0].offset == 20
        member.close()
