"""Registering a broker, giving it its partitions back, and taking from it those in log dirs that do not work.

Invariants: a broker leads no partition whose replica lies in a log dir that it did not register (KIP-858); once it has
registered, every replica of it has a log dir.

Counterpart in Kafka: ``ClusterControlManager.registerBroker``, the leader elections of ``PartitionChangeBuilder``, and
``ReplicationControlManager.handleDirectoriesOffline`` and ``handleAssignReplicasToDirs``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from pybroker.cluster.decisions import eligible_replicas
from pybroker.cluster.decisions.placement import choose_directory
from pybroker.cluster.image import (
    NO_LEADER,
    UNCHOSEN_DIRECTORIES,
    BrokerRegistration,
    ClusterImage,
    ImageBuilder,
    PartitionImage,
)

# Log dir ids by topic id and partition.
FoundReplicas = Mapping[tuple[bytes, int], bytes]


def register_broker(
    builder: ImageBuilder, registration: BrokerRegistration, found: FoundReplicas, *, clean_shutdown: bool
) -> Counter[bytes]:
    """Register under the next broker epoch, and elect this broker where it may lead and nobody does.

    ``found`` says where the broker found replicas for which the image names another log dir, or none.  After an unclean
    shutdown the leader epochs of its partitions grow too: the end of its log may be lost, and whatever is written in
    that place next must not pass for what was there before.  Returns how many replicas of the broker each log dir has
    that it did not register.
    """
    image = builder.view()
    before = image.brokers.get(registration.broker_id)
    registration = registration._replace(epoch=0 if before is None else before.epoch + 1)
    builder.put_broker(registration)
    broker_id = registration.broker_id
    missing: Counter[bytes] = Counter()
    for topic in list(image.topics_by_name.values()):
        partitions = []
        for index, partition in enumerate(topic.partitions):
            if broker_id in partition.replicas:
                directory = found.get((topic.topic_id, index)) or partition.directory(broker_id)
                placed = _placed(builder, partition, registration, directory)
                if registration.has_online_dir(placed.directory(broker_id)):
                    partitions.append(_led(placed, broker_id, clean_shutdown))
                else:
                    missing[placed.directory(broker_id)] += 1
                    partitions.append(_not_led(image, topic.name, placed, broker_id))
            else:
                partitions.append(partition)
        if any(after is not former for after, former in zip(partitions, topic.partitions, strict=True)):
            builder.put_topic(topic._replace(partitions=tuple(partitions)))
    return missing


def _placed(
    builder: ImageBuilder, partition: PartitionImage, broker: BrokerRegistration, directory: bytes
) -> PartitionImage:
    """The partition with the broker's replica in ``directory``; one that never got a log dir gets one now."""
    if directory in UNCHOSEN_DIRECTORIES:
        directory = choose_directory(builder, broker)
    if partition.directory(broker.broker_id) == directory:
        return partition
    return partition.in_directory(broker.broker_id, directory)


def _led(partition: PartitionImage, broker_id: int, clean_shutdown: bool) -> PartitionImage:
    unclean_leader = partition.leader == broker_id and not clean_shutdown
    elected = partition.leader == NO_LEADER and broker_id in (partition.isr or partition.elr)
    if not unclean_leader and not elected:
        return partition
    return partition._replace(
        leader=broker_id,
        isr=partition.isr or (broker_id,),
        elr=tuple(replica for replica in partition.elr if replica != broker_id),
        last_known_elr=(),
        leader_epoch=partition.leader_epoch + 1,
        partition_epoch=partition.partition_epoch + 1,
    )


def _not_led(image: ClusterImage, topic: str, partition: PartitionImage, broker_id: int) -> PartitionImage:
    """The partition while the broker's log dir does not work, so that it leads again when that is back.

    Without eligible replicas the last in-sync replica stays one.  Electing others is for a cluster of several.
    """
    after = partition
    if eligible_replicas.are_tracked(image) and broker_id in partition.isr:
        after = eligible_replicas.without_in_sync(image, topic, partition, broker_id)
    if partition.leader == broker_id:
        after = after._replace(leader=NO_LEADER, leader_epoch=partition.leader_epoch + 1)
    return partition if after is partition else after._replace(partition_epoch=partition.partition_epoch + 1)


def take_directories_offline(builder: ImageBuilder, broker_id: int, directories: Collection[bytes]) -> None:
    """Log dirs of a broker failed: it stops leading what lies in them."""
    image = builder.view()
    broker = image.brokers[broker_id]
    remaining = tuple(directory for directory in broker.log_dirs if directory not in directories)
    if not remaining or len(remaining) == len(broker.log_dirs):
        return  # known already, or the last one: then the broker ends
    builder.put_broker(broker._replace(log_dirs=remaining))
    for topic in list(image.topics_by_name.values()):
        partitions = tuple(
            _not_led(image, topic.name, partition, broker_id)
            if broker_id in partition.replicas and partition.directory(broker_id) in directories
            else partition
            for partition in topic.partitions
        )
        if partitions != topic.partitions:
            builder.put_topic(topic._replace(partitions=partitions))
