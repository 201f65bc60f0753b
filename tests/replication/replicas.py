"""The partitions of one topic as their leader has them, over a storage of its own."""

from __future__ import annotations

from harness.virtual_world import VirtualWorld

from pybroker.cluster.image.cluster_image import ClusterImage, PartitionImage, TopicImage
from pybroker.cluster.image.metadata_cache import MetadataCache
from pybroker.config.broker import BrokerConfig
from pybroker.replication.replica_manager import ReplicaManager
from tests.storage.logs import TOPIC_ID, Storage


def leader_of(
    world: VirtualWorld, storage: Storage, partitions: int, config: BrokerConfig | None = None
) -> ReplicaManager:
    """The only broker, which leads the partitions of the topic ``t``."""
    topic = TopicImage("t", TOPIC_ID, (PartitionImage((1,), (1,), 1),) * partitions)
    image = ClusterImage(topics_by_name={"t": topic}, topics_by_id={TOPIC_ID: topic})
    return ReplicaManager(world.env, 1, MetadataCache(image), storage.manager, config or BrokerConfig.load())
