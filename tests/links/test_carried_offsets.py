"""What groups commit at the source is taken over here, while they have no members here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from harness.waiting import PATIENCE_S, wait_until

from pybroker.cluster.image.link_states import FAILED_OVER, MIRRORING, PROMOTED
from pybroker.coordinators.news_of_groups import is_news
from pybroker.testing import Broker, Cluster
from tests.links.linked import (
    commit,
    committed,
    end_of,
    link,
    produce,
    set_link,
    wait_for_state,
    wait_until_mirrored,
)

PARTITIONS = 2


@pytest.fixture
def source() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic("orders", partitions=PARTITIONS)
        produce(running, "orders", 60)
        yield running


@pytest.fixture
def here(source: Broker) -> Iterator[Broker]:
    with Broker() as running:
        yield running


def consumer(side: Broker | Cluster, group: str, **settings: str) -> Consumer:
    given = {name.replace("_", "."): text for name, text in settings.items()}
    return Consumer(
        {
            "bootstrap.servers": side.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **given,
        }
    )


def read(side: Broker | Cluster, group: str, count: int, topic: str = "orders", **settings: str) -> list[bytes]:
    """Read so many records as a member of the group, commit, and leave it."""
    reading = consumer(side, group, **settings)
    reading.subscribe([topic])
    values: list[bytes] = []
    while len(values) < count:
        message = reading.poll(PATIENCE_S)
        assert message is not None, f"{len(values)} records alone"
        assert message.error() is None, message.error()
        values.append(message.value() or b"")
    reading.commit(asynchronous=False)
    reading.close()
    return values


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_goes_on_here_where_it_was_at_the_source(source: Broker, here: Broker, protocol: str) -> None:
    link(here, source, groups="billing*")
    wait_for_state(here, "orders", MIRRORING)
    before = read(source, "billing", 40, group_protocol=protocol)
    set_link(here.bootstrap, promote="orders")
    wait_for_state(here, "orders", PROMOTED)
    wait_until(lambda: committed(here, "billing") == committed(source, "billing"), "the group's offsets")
    after = read(here, "billing", 20, group_protocol=protocol)
    assert len({*before, *after}) == 60


def test_offsets_of_topics_with_a_prefix_are_those_of_the_mirrored_topic(source: Broker, here: Broker) -> None:
    commit(source, "billing", {0: 7, 1: 9})
    link(here, source, prefix="west.", groups="billing*")
    wait_for_state(here, "west.orders", MIRRORING)
    wait_until(lambda: committed(here, "billing", "west.orders") == {0: 7, 1: 9}, "the group's offsets")


def test_groups_that_are_not_named_are_left_alone(source: Broker, here: Broker) -> None:
    commit(source, "shipping", {0: 7})
    commit(source, "billing", {0: 7})
    link(here, source, groups="billing*")
    wait_until(lambda: committed(here, "billing") == {0: 7}, "the group's offsets")
    assert committed(here, "shipping") == {}


def test_what_a_group_has_read_here_is_not_taken_back_by_an_old_offset(source: Broker, here: Broker) -> None:
    commit(source, "billing", {0: 5})
    link(here, source, groups="billing*")
    wait_until(lambda: committed(here, "billing") == {0: 5}, "the group's offsets")
    wait_until_mirrored(source, here, "orders", PARTITIONS)
    commit(here, "billing", {0: 11})
    commit(source, "billing-too", {0: 1})
    wait_until(lambda: committed(here, "billing-too") == {0: 1}, "another look")
    assert committed(here, "billing") == {0: 11}
    commit(source, "billing", {0: 3})
    wait_until(lambda: committed(here, "billing") == {0: 3}, "what goes back at the source")


def test_a_group_with_members_here_keeps_its_offsets(source: Broker, here: Broker) -> None:
    link(here, source, groups="billing*")
    wait_for_state(here, "orders", MIRRORING)
    wait_until_mirrored(source, here, "orders", PARTITIONS)
    member = consumer(here, "billing")
    member.subscribe(["orders"])
    first = member.poll(PATIENCE_S)
    assert first is not None
    commit(source, "billing", {0: 12, 1: 12})
    commit(source, "billing-too", {0: 1})
    wait_until(lambda: committed(here, "billing-too") == {0: 1}, "another look")
    assert committed(here, "billing") == {}
    member.close()
    wait_until(lambda: committed(here, "billing") == {0: 12, 1: 12}, "the offsets of the group without members")


def test_brokers_take_over_the_groups_that_they_coordinate(source: Broker) -> None:
    names = [f"billing-{number}" for number in range(6)]
    for number, name in enumerate(names):
        commit(source, name, {0: number, 1: 2 * number})
    with Cluster(2) as here:
        link(here, source, replication_factor="2", groups="billing*")
        for number, name in enumerate(names):
            wait_until(partial(is_committed, here, name, {0: number, 1: 2 * number}), name)


def _has_both(side: Cluster, group: str) -> bool:
    return committed(side, group).keys() == {0, 1}


def _is_committed(side: Broker | Cluster, group: str, offsets: dict[int, int]) -> bool:
    return committed(side, group) == offsets


def is_within(side: Cluster, group: str) -> bool:
    """Whether the group has offsets of all partitions, and none past what is here."""
    found = committed(side, group)
    return len(found) == PARTITIONS and all(offset <= end_of(side, index) for index, offset in found.items())


def test_no_offset_is_past_what_is_here_whichever_broker_coordinates_the_group(source: Broker) -> None:
    names = [f"billing-{number}" for number in range(6)]
    for _ in range(5):
        produce(source, "orders", 20)
    for name in names:
        commit(source, name, {0: 60, 1: 60})
    with Cluster(3) as here:
        link(here, source, replication_factor="1", throttled_rate="1", groups="billing*")
        for name in names:
            wait_until(partial(_has_both, here, name), name)
            assert is_within(here, name)
        set_link(here.bootstrap, failover="orders")
        wait_for_state(here, "orders", FAILED_OVER)
        for name in names:
            assert is_within(here, name)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_offsets_past_the_end_are_lowered_as_a_topic_begins_to_take_writes(source: Broker, protocol: str) -> None:
    names = [f"shipping-{number}" for number in range(6)]
    with Cluster(3) as here:
        link(here, source, replication_factor="1", groups="")
        wait_for_state(here, "orders", MIRRORING)
        wait_until_mirrored(source, here, "orders", PARTITIONS)
        read(here, names[0], 60, group_protocol=protocol)
        before = committed(here, names[0])
        for name in names[1:]:
            commit(here, name, {0: 4, 1: 5_000})
        with closing(consumer(here, names[1], group_protocol=protocol)) as member:
            member.subscribe(["orders"])
            assert member.poll(PATIENCE_S) is not None
            set_link(here.bootstrap, failover="orders")
            wait_for_state(here, "orders", FAILED_OVER)
            for name in names[1:]:  # whether a group has members or none
                wait_until(partial(is_committed, here, name, {0: 4, 1: end_of(here, 1)}), name)
        assert committed(here, names[0]) == before


def test_what_a_group_has_read_here_stands_while_a_look_at_another_one_fails(source: Broker, here: Broker) -> None:
    commit(source, "billing", {0: 5})
    link(here, source, groups="billing*")
    wait_until(lambda: committed(here, "billing") == {0: 5}, "the group's offsets")
    wait_until_mirrored(source, here, "orders", PARTITIONS)
    producer = Producer({"bootstrap.servers": source.bootstrap, "transactional.id": "billing"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    with closing(consumer(source, "billing-open")) as member:
        member.subscribe(["orders"])
        assert member.poll(PATIENCE_S) is not None
        member.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)
        group = member.consumer_group_metadata()
        producer.send_offsets_to_transaction([TopicPartition("orders", 0, 1)], group, PATIENCE_S)
        commit(source, "billing", {0: 9})
        wait_until(lambda: committed(here, "billing") == {0: 9}, "the group's offsets")
        commit(here, "billing", {0: 12})
        for number in (1, 2):
            commit(source, "billing-too", {0: number})
            wait_until(partial(_is_committed, here, "billing-too", {0: number}), "another look")
        assert committed(here, "billing") == {0: 12}
        producer.abort_transaction(PATIENCE_S)


def is_committed(side: Cluster, group: str, offsets: dict[int, int]) -> bool:
    return committed(side, group) == offsets


@pytest.mark.parametrize(
    ("at_source", "here", "seen", "expected"),
    [
        (5, -1, None, True),  # none is here
        (5, 5, None, False),
        (5, 3, None, True),
        (5, 9, None, False),  # it was read further here before this broker looked
        (5, 9, 5, False),
        (5, 3, 5, False),  # it went back here on purpose
        (5, 9, 8, True),  # it has gone back at the source
        (8, 9, 5, False),  # it has gone on there, and further here
    ],
)
def test_an_offset_is_taken_over_where_the_source_has_moved(
    at_source: int, here: int, seen: int | None, expected: bool
) -> None:
    assert is_news(at_source, here, seen) is expected
