"""Back again by a link the other way: what the source lacks is said before it is cut, and groups go back with it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError
from harness.waiting import wait_until

from pybroker.cluster.image.link_states import ADOPTED, FAILED_OVER, MIRRORING, PAUSED, PROMOTED
from pybroker.testing import Broker, Cluster
from tests.links.linked import (
    all_stored,
    brokers_of,
    code_of_a_write,
    commit,
    committed,
    link,
    mirror_of,
    produce,
    read_all,
    set_link,
    stored_in,
    wait_for_state,
    wait_until_mirrored,
)

PARTITIONS = 3


@pytest.fixture
def first() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic("orders", partitions=PARTITIONS)
        yield running


@pytest.fixture
def second(first: Broker) -> Iterator[Broker]:
    with Broker() as running:
        yield running


def ends_of(side: Broker) -> dict[int, int]:
    """Where the log of each partition ends."""
    replicas = side._running().services.replicas
    ends = {}
    for index in range(PARTITIONS):
        partition = replicas.partition("orders", index)
        assert partition is not None
        ends[index] = partition.log.log_end_offset
    return ends


def lost_of(side: Broker) -> int:
    """How many records a topic's reason says are lost, once all partitions are looked at."""
    mirror = mirror_of(side, "orders")
    assert mirror is not None
    found = re.match(r"the source lacks (\d+) records: partition", mirror.reason)
    return 0 if found is None else int(found[1])


def test_the_way_back_says_what_is_lost_before_it_is_cut_and_groups_go_back_to_there(
    first: Broker, second: Broker
) -> None:
    produce(first, "orders", 60)
    link(second, first)
    wait_for_state(second, "orders", MIRRORING)
    wait_until_mirrored(first, second, "orders", PARTITIONS)
    set_link(second.bootstrap, pause="orders")
    wait_for_state(second, "orders", PAUSED)
    parting = ends_of(first)
    produce(first, "orders", 30)  # these are lost with the former source
    commit(first, "has-read-it", ends_of(first))
    commit(first, "has-not", dict.fromkeys(range(PARTITIONS), 1))
    set_link(second.bootstrap, failover="orders")
    wait_for_state(second, "orders", FAILED_OVER)
    produce(second, "orders", 45)
    before = all_stored(first, "orders", PARTITIONS)
    link(first, second, adopt="orders")
    adopted = wait_for_state(first, "orders", ADOPTED)
    assert code_of_a_write(first, {}) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    wait_until(lambda: lost_of(first) == 30, "what the way back would cut")
    assert all_stored(first, "orders", PARTITIONS) == before
    set_link(first.bootstrap, discard="orders")
    wait_for_state(first, "orders", MIRRORING)
    wait_until(
        lambda: all_stored(first, "orders", PARTITIONS) == all_stored(second, "orders", PARTITIONS), "the same logs"
    )
    assert len(read_all(first, "orders")) == 105
    assert adopted.first_epochs == ()
    wait_until(lambda: committed(first, "has-read-it") == parting, "a group that has read what is lost")
    assert committed(first, "has-not") == dict.fromkeys(range(PARTITIONS), 1)
    set_link(first.bootstrap, promote="orders")
    wait_for_state(first, "orders", PROMOTED)
    produce(first, "orders", 10)


def test_the_way_back_begins_at_once_where_nothing_is_lost(first: Broker, second: Broker) -> None:
    produce(first, "orders", 60)
    link(second, first)
    wait_for_state(second, "orders", MIRRORING)
    set_link(second.bootstrap, promote="orders")
    wait_for_state(second, "orders", PROMOTED)
    produce(second, "orders", 45)
    link(first, second, adopt="orders")
    wait_for_state(first, "orders", MIRRORING)
    wait_until_mirrored(second, first, "orders", PARTITIONS)
    assert len(read_all(first, "orders")) == 105


def test_the_way_back_of_a_replicated_topic_cuts_its_followers_too() -> None:
    with Cluster(3) as first, Broker() as second:
        first.create_topic("orders", partitions=PARTITIONS, replication_factor=3)
        produce(first, "orders", 60)
        link(second, first)
        wait_for_state(second, "orders", MIRRORING)
        wait_until_mirrored(first, second, "orders", PARTITIONS)
        set_link(second.bootstrap, failover="orders")
        wait_for_state(second, "orders", FAILED_OVER)
        produce(first, "orders", 30)
        produce(second, "orders", 45)
        link(first, second, adopt="orders", discard="orders")
        wait_for_state(first, "orders", MIRRORING)
        original = all_stored(second, "orders", PARTITIONS)
        wait_until(lambda: all(replica == original for replica in replicas(first)), "the same logs")
        assert read_all(first, "orders") == read_all(second, "orders")


def replicas(cluster: Cluster) -> list[list[dict[int, bytes]]]:
    """What each broker has stored of each partition."""
    directories = [Path(path) for broker in brokers_of(cluster) for path in broker._running().config.log_dirs]
    return [[stored_in(path / f"orders-{index}") for index in range(PARTITIONS)] for path in directories]
