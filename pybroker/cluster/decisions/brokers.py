"""Registering a broker and giving it its partitions back.

Counterpart in Kafka: ``ClusterControlManager.registerBroker`` and the leader elections of ``PartitionChangeBuilder``.
"""

from __future__ import annotations

from pybroker.cluster.image import NO_LEADER, BrokerRegistration, ImageBuilder, PartitionImage


def register_broker(builder: ImageBuilder, registration: BrokerRegistration, *, clean_shutdown: bool) -> None:
    """Register under the next broker epoch, and elect this broker where it may lead and nobody does.

    After an unclean shutdown the leader epochs of its partitions grow too: the end of its log may be lost, and
    whatever is written in that place next must not pass for what was there before.
    """
    image = builder.view()
    before = image.brokers.get(registration.broker_id)
    epoch = 0 if before is None else before.epoch + 1
    builder.put_broker(registration._replace(epoch=epoch))
    for topic in list(image.topics_by_name.values()):
        partitions = tuple(_led(partition, registration.broker_id, clean_shutdown) for partition in topic.partitions)
        if partitions != topic.partitions:
            builder.put_topic(topic._replace(partitions=partitions))


def _led(partition: PartitionImage, broker_id: int, clean_shutdown: bool) -> PartitionImage:
    unclean_leader = partition.leader == broker_id and not clean_shutdown
    leaderless = partition.leader == NO_LEADER and broker_id in (partition.isr or partition.elr)
    if not unclean_leader and not leaderless:
        return partition
    return partition._replace(
        leader=broker_id,
        isr=partition.isr or (broker_id,),
        elr=tuple(replica for replica in partition.elr if replica != broker_id),
        last_known_elr=(),
        leader_epoch=partition.leader_epoch + 1,
        partition_epoch=partition.partition_epoch + 1,
    )
