"""The cluster's topics as groups see them: one for all groups of a broker.

Owns: which image groups go by, the hashes of topics, and the version in which topics were last created.  It changes
between operations, never inside one; the service tells it of every image.

Counterpart in Kafka: ``CoordinatorMetadataImage``, ``TopicIds`` and the topic hashes of ``GroupMetadataManager``.
"""

from __future__ import annotations

from collections.abc import Iterable

from pybroker.cluster.image.cluster_image import ClusterImage, ImageDelta, TopicImage
from pybroker.coordinators.group.topic_hashes import group_metadata_hash, topic_hash


class Topics:
    """The current image, asked by the rules of groups.  It is the ``TopicDescriber`` of the assignors."""

    __slots__ = ("_hashes", "image", "version", "version_with_new_topics")

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        # Grows when topics change, not with every image: what was worked out of topics is right until then.
        self.version = 0
        # Nobody knows what was new in the first image: a regular expression resolved before it may miss topics.
        self.version_with_new_topics = image.epoch
        self._hashes: dict[str, int] = {}

    def on_image(self, image: ClusterImage, delta: ImageDelta) -> None:
        """Go by the next image."""
        self.image = image
        if delta.topics_created:
            self.version_with_new_topics = image.epoch
        changed = {topic.name for topic in (*delta.topics_created, *delta.topics_deleted)}
        changed |= {after.name for _, after in delta.topics_changed}
        if changed:
            self.version += 1
        for name in changed:
            self._hashes.pop(name, None)

    # --- names and ids --------------------------------------------------------------------------------------------

    def ids_of(self, names: Iterable[str]) -> frozenset[bytes]:
        """The ids of those topics that exist."""
        by_name = self.image.topics_by_name
        return frozenset(by_name[name].topic_id for name in names if name in by_name)

    def id_of(self, name: str) -> bytes | None:
        topic = self.image.topics_by_name.get(name)
        return None if topic is None else topic.topic_id

    def name_of(self, topic_id: bytes) -> str | None:
        topic = self.image.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    # --- for the assignors ----------------------------------------------------------------------------------------

    def partition_count(self, topic_id: bytes) -> int:
        """How many partitions the topic has, -1 when there is no such topic."""
        topic = self.image.topics_by_id.get(topic_id)
        return -1 if topic is None else len(topic.partitions)

    def racks(self, topic_id: bytes, partition: int) -> frozenset[str]:
        """The racks of the partition's replicas."""
        topic = self.image.topics_by_id.get(topic_id)
        if topic is None or not 0 <= partition < len(topic.partitions):
            return frozenset()
        return frozenset(self._racks(topic, partition))

    def _racks(self, topic: TopicImage, partition: int) -> list[str]:
        brokers = self.image.brokers
        registered = (brokers.get(replica) for replica in topic.partitions[partition].replicas)
        return [broker.rack for broker in registered if broker is not None and broker.rack is not None]

    # --- hashes ---------------------------------------------------------------------------------------------------

    def metadata_hash(self, names: Iterable[str]) -> int:
        """What changes when one of these topics is created, deleted, grown or moved between racks (KIP-1101)."""
        by_name = self.image.topics_by_name
        return group_metadata_hash({name: self._hash(by_name[name]) for name in names if name in by_name})

    def _hash(self, topic: TopicImage) -> int:
        known = self._hashes.get(topic.name)
        if known is None:
            racks = [self._racks(topic, partition) for partition in range(len(topic.partitions))]
            known = self._hashes[topic.name] = topic_hash(topic.topic_id, topic.name, racks)
        return known
