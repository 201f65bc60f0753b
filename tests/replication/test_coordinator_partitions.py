"""A coordinator's topic, as the coordinator sees it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.cluster.image.cluster_image import ClusterImage, ImageDelta, PartitionImage, TopicImage
from pybroker.cluster.image.coordinator_table import GROUPS
from pybroker.cluster.image.metadata_cache import MetadataCache
from pybroker.config.broker import BrokerConfig
from pybroker.replication.coordinator_partitions import CoordinatorPartitions
from pybroker.replication.replica_manager import ReplicaManager
from pybroker.storage.manager.log_manager import LogManager
from pybroker.storage_limits import INLINE_WRITE_BYTES_MAX
from pybroker_protocol.record_codec import build_batch
from tests.storage.logs import TOPIC_ID, Storage

TOPIC = GROUPS.topic


class Heard:
    """A coordinator that notes what it is told."""

    def __init__(self) -> None:
        self.leadership: list[tuple[set[int], set[int]]] = []
        self.high_watermarks: list[tuple[int, int]] = []

    def on_leadership(self, gained: set[int], lost: set[int]) -> None:
        self.leadership.append((gained, lost))

    def on_high_watermark(self, partition: int, high_watermark: int) -> None:
        self.high_watermarks.append((partition, high_watermark))


class Here:
    """The partitions of a coordinator's topic on broker 1, which leads partition 0 and not partition 1."""

    def __init__(self, world: VirtualWorld, replicas: ReplicaManager, metadata: MetadataCache) -> None:
        self.world = world
        self.replicas = replicas
        self.metadata = metadata
        self.heard = Heard()
        self.partitions = CoordinatorPartitions(replicas, metadata, 1, TOPIC, Mock())
        self.partitions.follow(lambda: self.heard)

    def append(self) -> int:
        errors: list[int] = []
        batch = build_batch([(b"key", b"value")], timestamp_ms=1)
        self.partitions.append(TOPIC, 0, batch, lambda error_code, _last_offset: errors.append(error_code))
        return errors[0]

    def raise_leader_epoch(self) -> None:
        before = self.metadata.image.topics_by_name[TOPIC]
        after = image(leader_epoch=before.partitions[0].leader_epoch + 1)
        self.metadata.apply(after, ImageDelta(topics_changed=((before, after.topics_by_name[TOPIC]),)))


def image(leader_epoch: int = 0, topic_id: bytes = TOPIC_ID, epoch: int = 0) -> ClusterImage:
    states = (PartitionImage((1,), (1,), 1, leader_epoch), PartitionImage((2,), (2,), 2))
    topic = TopicImage(TOPIC, topic_id, states, True)
    return ClusterImage(epoch=epoch or leader_epoch + 1, topics_by_name={TOPIC: topic}, topics_by_id={topic_id: topic})


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    world = VirtualWorld()
    storage = Storage(tmp_path / "data", world)
    metadata = MetadataCache(image())
    yield Here(world, ReplicaManager(world.env, 1, metadata, storage.manager, BrokerConfig.load()), metadata)
    storage.close()


def test_coordinator_hears_of_the_partitions_led_here(here: Here) -> None:
    assert here.heard.leadership == [({0}, set())]


def test_partition_that_is_not_led_here_has_no_range(here: Here) -> None:
    assert here.partitions.log_range(TOPIC, 0) == (0, 0)
    assert here.partitions.log_range(TOPIC, 1) is None
    assert here.append() == 0
    assert here.partitions.log_range(TOPIC, 0) == (0, 1)


def test_log_that_cannot_be_opened_has_no_range(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogManager, "open", lambda *_, **__: None)
    assert here.partitions.log_range(TOPIC, 0) is None


def test_coordinator_hears_of_every_high_watermark_under_every_leader_epoch(here: Here) -> None:
    for end_offset in range(1, 4):
        assert here.append() == 0
        assert here.heard.high_watermarks[-1] == (0, end_offset)
        here.raise_leader_epoch()


def test_asking_for_the_high_watermark_changes_nothing(here: Here) -> None:
    assert here.partitions.high_watermark(TOPIC, 0) == 0
    assert here.partitions.high_watermark(TOPIC, 1) == -1
    partition = here.replicas.partition(TOPIC, 0)
    assert partition is not None
    assert partition.high_watermark_listener is None


def test_partition_that_is_led_here_under_another_epoch_is_loaded_anew(here: Here) -> None:
    """Somebody else may have led it, and written, between two images."""
    here.raise_leader_epoch()
    assert here.heard.leadership[1:] == [({0}, {0})]


def test_partition_of_a_topic_that_was_made_anew_is_loaded_anew(here: Here) -> None:
    """Both changes may come as one, and the first leader epochs of both topics are the same."""
    before = here.metadata.image.topics_by_name[TOPIC]
    after = image(topic_id=bytes(reversed(TOPIC_ID)), epoch=2)
    delta = ImageDelta(topics_deleted=(before,), topics_created=(after.topics_by_name[TOPIC],))
    here.metadata.apply(after, delta)
    assert here.heard.leadership[1:] == [({0}, {0})]


def test_partition_with_a_write_on_its_way_has_no_range_before_it_is_there(here: Here) -> None:
    """A thread writes it, and the leader epoch may grow meanwhile: who loads then would miss it."""
    large = build_batch([(b"key", bytes(INLINE_WRITE_BYTES_MAX))], timestamp_ms=1)
    ends: list[int] = []
    here.partitions.append(TOPIC, 0, large, lambda error_code, last_offset: ends.append(last_offset))
    here.raise_leader_epoch()
    assert (ends, here.partitions.log_range(TOPIC, 0)) == ([], None)
    here.world.run()
    assert here.partitions.log_range(TOPIC, 0) == (0, 1)
