"""A broker that is killed while one of its topics is promoted, failed over or discarded goes on once it is back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness.waiting import wait_until

from pybroker.cluster.image.link_states import ADOPTED, FAILED_OVER, MIRRORING, PROMOTED, PROMOTING
from pybroker.testing import Broker
from tests.links.linked import (
    all_stored,
    commit,
    committed,
    end_of,
    image_of,
    link,
    produce,
    produce_transactions,
    read_all,
    reason_of,
    set_link,
    wait_for_state,
    wait_until_mirrored,
)

PARTITIONS = 3


@pytest.fixture
def source() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic("orders", partitions=PARTITIONS)
        produce(running, "orders", 60)
        yield running


@pytest.fixture
def here(source: Broker) -> Iterator[Broker]:
    with Broker() as running:
        link(running, source)
        wait_for_state(running, "orders", MIRRORING)
        wait_until_mirrored(source, running, "orders", PARTITIONS)
        yield running


def check_open_transaction_is_aborted(here: Broker) -> None:
    """And writes are taken, which readers of what is committed see."""
    wait_until(lambda: len(read_all(here, "orders")) == 65, "the open transaction to be aborted")
    produce(here, "orders", 30)
    assert len(read_all(here, "orders")) == 95


def test_a_promotion_goes_on_and_ends_open_transactions(source: Broker, here: Broker) -> None:
    left_open = produce_transactions(source, "orders", True, None)
    wait_until_mirrored(source, here, "orders", PARTITIONS)
    source.pause()
    set_link(here.bootstrap, promote="orders")
    wait_for_state(here, "orders", PROMOTING)
    here.kill()
    here.restart()
    wait_for_state(here, "orders", PROMOTING)
    source.resume()
    wait_for_state(here, "orders", PROMOTED)
    check_open_transaction_is_aborted(here)
    del left_open


def test_a_promotion_is_over_for_good_whenever_the_broker_is_killed(source: Broker, here: Broker) -> None:
    epochs = [each.leader_epoch for each in image_of(here).topics_by_name["orders"].partitions]
    set_link(here.bootstrap, promote="orders")
    here.kill()
    here.restart()
    mirror = wait_for_state(here, "orders", PROMOTED)
    assert all(first > before for first, before in zip(mirror.first_epochs, epochs, strict=True))
    produce(here, "orders", 30)
    here.kill()
    here.restart()
    assert wait_for_state(here, "orders", PROMOTED).first_epochs == mirror.first_epochs
    assert len(read_all(here, "orders")) == 90


def test_a_group_goes_on_where_it_was_whenever_the_broker_is_killed(source: Broker, here: Broker) -> None:
    commit(here, "of-before", {0: 1})
    set_link(here.bootstrap, groups="billing", refresh_interval_ms="60000")
    commit(source, "billing", {0: 3, 1: 4})
    set_link(here.bootstrap, promote="orders")
    wait_for_state(here, "orders", PROMOTED)
    here.kill()
    here.restart()
    wait_until(lambda: committed(here, "billing") == {0: 3, 1: 4}, "the group's offsets")


def test_a_group_that_had_read_further_goes_on_at_the_end_whenever_the_broker_is_killed(
    source: Broker, here: Broker
) -> None:
    source.kill()
    commit(here, "shipping", {0: 5_000})
    set_link(here.bootstrap, failover="orders")
    wait_for_state(here, "orders", FAILED_OVER)
    here.kill()
    here.restart()
    wait_until(lambda: committed(here, "shipping") == {0: end_of(here, 0)}, "the group's offset to be lowered")


def test_a_failover_goes_on_without_the_source_and_ends_open_transactions(source: Broker, here: Broker) -> None:
    left_open = produce_transactions(source, "orders", True, None)
    wait_until_mirrored(source, here, "orders", PARTITIONS)
    source.kill()
    set_link(here.bootstrap, failover="orders")
    here.kill()
    here.restart()
    wait_for_state(here, "orders", FAILED_OVER)
    check_open_transaction_is_aborted(here)
    del left_open


def test_a_discard_goes_on_and_cuts_what_was_told_and_nothing_else(source: Broker, here: Broker) -> None:
    set_link(here.bootstrap, failover="orders")
    wait_for_state(here, "orders", FAILED_OVER)
    produce(source, "orders", 30)
    produce(here, "orders", 45)
    link(source, here, adopt="orders")
    wait_for_state(source, "orders", ADOPTED)
    wait_until(lambda: reason_of(source, "orders").startswith("the source lacks 30 records"), "what would be lost")
    set_link(source.bootstrap, discard="orders")
    source.kill()
    source.restart()
    wait_for_state(source, "orders", MIRRORING)
    wait_until(
        lambda: all_stored(source, "orders", PARTITIONS) == all_stored(here, "orders", PARTITIONS), "the same logs"
    )
    assert len(read_all(source, "orders")) == 105
