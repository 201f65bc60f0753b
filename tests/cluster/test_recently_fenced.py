"""Brokers that died a moment ago, and are still named to clients."""

from __future__ import annotations

from typing import Any

from harness.virtual_world import VirtualWorld

from pybroker.cluster.failure_detection.recently_fenced import FENCED_NAMED_MS, RecentlyFenced
from pybroker.cluster.image.cluster_image import BrokerRegistration, ClusterImage, ImageBuilder


class Cluster:
    """Brokers 1 and 2, of which some are fenced."""

    def __init__(self) -> None:
        self.world = VirtualWorld()
        self.image = ClusterImage(
            epoch=1, brokers={number: BrokerRegistration(number, 0, bytes(16), {}) for number in (1, 2)}
        )
        self.recently_fenced = RecentlyFenced(self.world.env, self.image)

    def fence(self, broker_id: int, *, fenced: bool = True) -> None:
        self.change(broker_id, fenced=fenced)

    def change(self, broker_id: int, **fields: Any) -> None:
        builder = ImageBuilder(self.image)
        builder.put_broker(self.image.brokers[broker_id]._replace(**fields))
        self.image, delta = builder.build(self.image.epoch + 1)
        self.recently_fenced.on_image(self.image, delta)


def test_a_broker_is_named_for_a_while_after_it_was_fenced() -> None:
    cluster = Cluster()
    assert set(cluster.recently_fenced.broker_ids) == set()
    cluster.fence(2)
    cluster.world.advance(FENCED_NAMED_MS - 1)
    assert set(cluster.recently_fenced.broker_ids) == {2}
    cluster.world.advance(1)
    assert set(cluster.recently_fenced.broker_ids) == set()


def test_a_broker_that_registers_anew_has_not_departed() -> None:
    cluster = Cluster()
    cluster.fence(2)
    cluster.fence(2, fenced=False)
    assert set(cluster.recently_fenced.broker_ids) == set()


def test_each_time_of_being_fenced_is_a_departure_of_its_own() -> None:
    cluster = Cluster()
    cluster.fence(2)
    cluster.world.advance(FENCED_NAMED_MS - 1)
    cluster.fence(2, fenced=False)
    cluster.fence(2)
    cluster.world.advance(FENCED_NAMED_MS - 1)
    assert set(cluster.recently_fenced.broker_ids) == {2}


def test_a_broker_that_stopped_cleanly_is_named_no_more() -> None:
    cluster = Cluster()
    cluster.change(2, in_controlled_shutdown=True)
    assert set(cluster.recently_fenced.broker_ids) == set(), "it is alive"
    cluster.fence(2)
    assert set(cluster.recently_fenced.broker_ids) == set()


def test_a_broker_that_was_stopped_and_came_back_is_named_when_it_dies() -> None:
    cluster = Cluster()
    cluster.change(2, in_controlled_shutdown=True)
    cluster.fence(2)
    cluster.change(2, fenced=False, in_controlled_shutdown=False)
    cluster.fence(2)
    assert set(cluster.recently_fenced.broker_ids) == {2}
