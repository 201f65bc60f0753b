"""One that fails to hear of the cluster keeps nobody else from hearing of it: listeners, those who wait, the cache."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.cluster.failure_detection.live_brokers import LiveBrokers
from pybroker.cluster.image.cluster_image import ClusterImage, ImageBuilder
from pybroker.cluster.image.metadata_cache import MetadataCache
from pybroker.cluster.store import store_codec
from pybroker.cluster.store.metadata_follower import MetadataFollower
from pybroker.cluster.store.metadata_store import Transaction
from pybroker.cluster.store.store_codec import LiveBroker

from .memory_store import MemoryStore, SharedMemory


def fail(*_: object) -> None:
    raise ZeroDivisionError


class Following:
    """A broker's image of a store, published from the start, and another broker's way to that store."""

    def __init__(self) -> None:
        self.world = VirtualWorld()
        env, shared = self.world.env, SharedMemory()
        self.other, self.store = MemoryStore(shared, env), MemoryStore(shared, env)
        self.cache = MetadataCache()
        self.follower = MetadataFollower(env, self.store, self.cache, ClusterImage(epoch=1))
        shared.revision = 1
        self.follower.start()
        self.follower.publish()

    def change(self, *, by_its_own_controller: bool = False) -> None:
        """Another broker's controller has committed a change, or this one's."""
        builder = ImageBuilder(self.follower.image)
        builder.put_feature("a.version", self.follower.image.epoch)
        image, delta = builder.build(self.follower.image.epoch + 1)
        puts, deletes = store_codec.encode(self.follower.image, image, delta)
        self.other.commit(Transaction(puts=puts, deletes=deletes), lambda result: None)
        if by_its_own_controller:
            self.follower.apply(image, delta)
        self.world.run()


@pytest.fixture
def following() -> Iterator[Following]:
    made = Following()
    yield made
    made.follower.close()


@pytest.mark.parametrize("by_its_own_controller", [False, True])
def test_the_cache_misses_no_change_whatever_a_listener_does(
    following: Following, caplog: pytest.LogCaptureFixture, by_its_own_controller: bool
) -> None:
    heard: list[int] = []
    following.follower.subscribe(fail)
    following.follower.subscribe(lambda image, delta: heard.append(image.epoch))
    for epoch in (2, 3):
        following.change(by_its_own_controller=by_its_own_controller)
        assert following.cache.image is following.follower.image
        assert following.cache.image.epoch == epoch
    assert heard == [2, 3]
    assert caplog.text.count("a listener failed on the image of epoch") == 2


def test_who_waits_for_a_revision_hears_of_it_whatever_others_do(
    following: Following, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[str] = []
    following.follower.when_at(2, fail)
    following.follower.when_at(2, lambda: heard.append("it is reached"))
    following.follower.listeners += [fail, lambda: heard.append("a step")]
    following.change()
    assert heard == ["it is reached", "a step"]
    assert caplog.text.count("a callback that waited for revision") == 2


def test_who_follows_which_brokers_are_alive_hears_of_it_whatever_others_do(
    following: Following, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[list[int]] = []
    live = LiveBrokers(following.store, 1, LiveBroker(bytes(16), ()))
    live.listeners += [fail, lambda: heard.append(list(live.brokers))]
    live.start()
    live.enter(lambda why: None)
    following.world.run()
    assert heard[-1] == [1]
    assert "a listener of which brokers are alive failed" in caplog.text
    live.close()
