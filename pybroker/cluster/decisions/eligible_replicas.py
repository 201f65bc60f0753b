"""Eligible leader replicas (KIP-966): who may lead a partition whose in-sync replicas are fewer than they must be.

Owns: when the feature is on, what has to hold of ``min.insync.replicas`` then, and what becomes of a partition's
eligible replicas when a replica goes or that setting changes.

Invariants:
- While the feature is on, ``min.insync.replicas`` is set for all brokers together and for none alone, since eligibility
  must mean the same everywhere.
- No change of a setting takes the last replica that may lead a partition.

Counterpart in Kafka: ``PartitionChangeBuilder.maybePopulateTargetElr``,
``ConfigurationControlManager.maybeGenerateElrSafetyRecords`` and ``createClearElrRecordsAsNeeded``.
"""

from __future__ import annotations

from typing import Final

from pybroker.cluster.image.cluster_image import ClusterImage, ImageBuilder, PartitionImage
from pybroker.cluster.image.supported_features import ELIGIBLE_LEADER_REPLICAS_VERSION
from pybroker.config.resources import BROKER, MIN_INSYNC_REPLICAS, TOPIC, ConfigChange

_ALL_BROKERS: Final = (BROKER, "")


def are_tracked(image: ClusterImage) -> bool:
    """Whether the feature is finalized."""
    return image.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) > 0


def prepare_settings(builder: ImageBuilder, static_min_insync_replicas: str) -> None:
    """Set ``min.insync.replicas`` for all brokers, where it is not, to what their files say, and for none alone."""
    image = builder.view()
    for_all = image.overrides(*_ALL_BROKERS)
    if MIN_INSYNC_REPLICAS not in for_all:
        builder.put_overrides(_ALL_BROKERS, {**for_all, MIN_INSYNC_REPLICAS: static_min_insync_replicas})
    for resource, overrides in list(image.configs.items()):
        if resource[0] == BROKER and resource != _ALL_BROKERS and MIN_INSYNC_REPLICAS in overrides:
            rest = {name: value for name, value in overrides.items() if name != MIN_INSYNC_REPLICAS}
            builder.put_overrides(resource, rest)


def refusal(image: ClusterImage, change: ConfigChange) -> str | None:
    """Why the settings of brokers may not be changed like that, as Kafka says it; None where they may."""
    if change.resource_type != BROKER or not are_tracked(image):
        return None
    is_named = MIN_INSYNC_REPLICAS in change.updates
    is_dropped = change.replace and MIN_INSYNC_REPLICAS in image.overrides(BROKER, change.resource_name)
    if change.resource_name and (is_named or is_dropped):
        return f"Broker-level {MIN_INSYNC_REPLICAS} cannot be altered while ELR is enabled."
    if (is_named or is_dropped) and change.updates.get(MIN_INSYNC_REPLICAS) is None:
        return f"Cluster-level {MIN_INSYNC_REPLICAS} cannot be removed while ELR is enabled."
    return None


def without_in_sync(image: ClusterImage, topic: str, partition: PartitionImage, replica: int) -> PartitionImage:
    """The partition after ``replica`` has left its in-sync replicas; below the minimum it stays eligible to lead."""
    in_sync = tuple(other for other in partition.isr if other != replica)
    if len(in_sync) >= min(_min_insync_replicas(image, topic), len(partition.replicas)):
        return partition._replace(isr=in_sync, elr=(), last_known_elr=())
    eligible = dict.fromkeys((*partition.elr, *partition.isr))
    return partition._replace(isr=in_sync, elr=tuple(other for other in eligible if other not in in_sync))


def with_in_sync(image: ClusterImage, topic: str, before: PartitionImage, after: PartitionImage) -> PartitionImage:
    """``after``, whose in-sync replicas were chosen anew: who was in sync, or eligible, stays eligible below the
    minimum, since nothing is committed there that it lacks."""
    if len(after.isr) >= min(_min_insync_replicas(image, topic), len(after.replicas)):
        return after._replace(elr=(), last_known_elr=())
    eligible = [replica for replica in dict.fromkeys((*before.elr, *before.isr)) if replica in after.replicas]
    return after._replace(elr=tuple(replica for replica in eligible if replica not in after.isr))


def elected(image: ClusterImage, topic: str, partition: PartitionImage) -> PartitionImage:
    """The partition that has just got a leader: who else is eligible stays so only below the minimum.

    That may have been lowered while no replica led, so that the new leader commits alone what the others lack.
    """
    if partition.elr and len(partition.isr) >= min(_min_insync_replicas(image, topic), len(partition.replicas)):
        return partition._replace(elr=())
    return partition


def forget(builder: ImageBuilder, resource: tuple[int, str]) -> None:
    """``min.insync.replicas`` of a topic, or of brokers, has changed: who is eligible was judged by another one.

    A partition without in-sync replicas keeps its eligible ones, since nothing was written after they were, and is
    looked at again when it has a leader (``elected``). Kafka takes them away, and leaves it to an unclean election.
    """
    image = builder.view()
    resource_type, name = resource
    topics = list(image.topics_by_name.values()) if resource_type == BROKER else [image.topics_by_name[name]]
    for topic in topics:
        partitions = tuple(
            partition._replace(elr=(), last_known_elr=())
            if partition.isr and (partition.elr or partition.last_known_elr)
            else partition
            for partition in topic.partitions
        )
        if partitions != topic.partitions:
            builder.put_topic(topic._replace(partitions=partitions))


def _min_insync_replicas(image: ClusterImage, topic: str) -> int:
    of_topic = image.overrides(TOPIC, topic).get(MIN_INSYNC_REPLICAS)
    return int(of_topic or image.overrides(*_ALL_BROKERS).get(MIN_INSYNC_REPLICAS, "1"))
