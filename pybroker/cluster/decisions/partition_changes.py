"""Who is in sync, and who leads, when replicas come and go.

Owns: what becomes of a partition when a replica's broker, or its log dir, is lost, and who leads where replicas were
chosen anew. Owns whether a leader may have those in sync that it asks for (KIP-497, KIP-903), too. Does not own
elections on request (``elections``), what a reassignment wants (``reassignments``), nor when a follower has caught up:
its leader says so (``replication``).

A replica whose log dir has no space can be read and takes nothing.  It is in sync, and leads, only where no other that
is in sync has space (``relieved``).  Kafka takes the log dir offline, and what no other replica has with it.

Invariants:
- A leader is in sync, or was the last that was.
- The last replica that holds everything stays in sync, or eligible (``eligible_replicas``), whatever happens.
- The leader epoch grows whenever the leader changes, the partition epoch with each change.

Counterpart in Kafka: ``PartitionChangeBuilder`` and ``ReplicationControlManager.alterPartition``.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence

from pybroker.cluster.decisions import eligible_replicas
from pybroker.cluster.decisions.operations import InSyncChange, InSyncResult, InSyncState
from pybroker.cluster.decisions.reassigned_replicas import completed
from pybroker.cluster.image.cluster_image import (
    NO_LEADER,
    RECOVERED,
    RECOVERING,
    ClusterImage,
    ImageBuilder,
    PartitionImage,
    TopicImage,
)
from pybroker_protocol.errors import ErrorCode


def is_online(image: ClusterImage, partition: PartitionImage, replica: int) -> bool:
    """Whether the replica's broker is alive, and does not want to stop, and its log dir works."""
    broker = image.brokers.get(replica)
    return broker is not None and broker.is_active and broker.has_online_dir(partition.directory(replica))


def has_free_space(image: ClusterImage, partition: PartitionImage, replica: int) -> bool:
    """Whether the log dir of the replica has space, as far as its broker has said."""
    broker = image.brokers.get(replica)
    return broker is None or partition.directory(replica) not in broker.full_dirs


def led_by(image: ClusterImage, topic: str, partition: PartitionImage, leader: int) -> PartitionImage:
    """One that is not in sync is the only one that is from now on: its followers follow what it has.

    It is RECOVERING until it asks for in-sync replicas as one that has recovered (KIP-704).
    """
    is_clean = leader in partition.isr or leader in partition.elr
    led = partition._replace(
        leader=leader,
        isr=partition.isr if leader in partition.isr else (leader,),
        elr=tuple(replica for replica in partition.elr if replica != leader) if is_clean else (),
        last_known_elr=(),
        leader_epoch=partition.leader_epoch + 1,
        partition_epoch=partition.partition_epoch + 1,
        leader_recovery_state=partition.leader_recovery_state if is_clean else RECOVERING,
    )
    return eligible_replicas.elected(image, topic, led)


def with_leader(
    image: ClusterImage, topic: str, partition: PartitionImage, avoided: Iterable[int] = ()
) -> PartitionImage:
    """The partition with a leader, if it has none and one of its candidates is online; else the same object."""
    if partition.leader != NO_LEADER:
        return partition
    candidates = partition.candidates
    online = [
        replica
        for replica in partition.replicas
        if replica in candidates and replica not in avoided and is_online(image, partition, replica)
    ]
    if not online:
        return partition
    leader = next((replica for replica in online if has_free_space(image, partition, replica)), online[0])
    return led_by(image, topic, partition, leader)


def without_replica(
    image: ClusterImage, topic: str, partition: PartitionImage, broker_id: int, *, may_lack_its_end: bool = False
) -> PartitionImage:
    """The partition while a broker's replica is out of reach; ``image`` says so already.  The same object if unchanged.

    ``may_lack_its_end``: the replica may have lost its log's end, so that it is not eligible either, unless no other is
    and no other led last.
    """
    after = partition
    if broker_id in partition.isr or (may_lack_its_end and broker_id in partition.elr):
        after = _without_in_sync(image, topic, partition, broker_id, may_lack_its_end)
    if partition.leader == broker_id:
        return _led_anew(image, topic, after, avoided=(broker_id,))
    return partition if after is partition else after._replace(partition_epoch=partition.partition_epoch + 1)


def _led_anew(
    image: ClusterImage, topic: str, partition: PartitionImage, avoided: Iterable[int] = ()
) -> PartitionImage:
    """Its leader must not lead any more: another one does, or none.

    Where none is in sync either, the answer has the last leader (Kafka's
    PartitionChangeBuilder.maybeUpdateLastKnownLeader).
    """
    leaderless = partition._replace(leader=NO_LEADER)
    after = with_leader(image, topic, leaderless, avoided)
    if after is leaderless:
        if not after.isr and partition.leader != NO_LEADER:
            after = after._replace(last_known_elr=(partition.leader,))
        return after._replace(leader_epoch=partition.leader_epoch + 1, partition_epoch=partition.partition_epoch + 1)
    return after


def relieved(image: ClusterImage, topic: str, partition: PartitionImage) -> PartitionImage:
    """The partition without full log dirs among its in-sync replicas, and led by another, where any of these has space.

    Else those without space stay, and one of them goes on to lead: what it has can be read.  The same object if
    unchanged.
    """
    full = [replica for replica in partition.isr if not has_free_space(image, partition, replica)]
    others = [replica for replica in partition.isr if replica not in full and is_online(image, partition, replica)]
    if not full or not others or partition.leader == NO_LEADER:
        return partition
    after = partition
    for replica in full:
        after = _without_in_sync(image, topic, after, replica, may_lack_its_end=False)
    if partition.leader in full:
        return _led_anew(image, topic, after, avoided=full)
    return after._replace(partition_epoch=partition.partition_epoch + 1)


def settled(image: ClusterImage, topic: str, before: PartitionImage, after: PartitionImage) -> PartitionImage:
    """``after``, whose replicas or in-sync replicas were chosen anew: a reassignment ends that has come to its end.

    Who leads stays as long as it is in sync.  Where replicas are gone the leader epoch grows all the same, so that what
    they still ask for is of the past.  ``before`` itself where nothing has changed.
    """
    after = completed(after)
    if eligible_replicas.are_tracked(image):
        after = eligible_replicas.with_in_sync(image, topic, before, after)
    if after == before:
        return before
    leader = after.leader
    if leader != NO_LEADER and not (leader in after.isr and is_online(image, after, leader)):
        return _led_anew(image, topic, after)
    elected = with_leader(image, topic, after)
    if elected is not after:
        return elected
    all_stay = set(before.replicas) <= set(after.replicas)
    return after._replace(leader_epoch=before.leader_epoch + (not all_stay), partition_epoch=before.partition_epoch + 1)


def _without_in_sync(
    image: ClusterImage, topic: str, partition: PartitionImage, broker_id: int, may_lack_its_end: bool
) -> PartitionImage:
    others = tuple(replica for replica in partition.isr if replica != broker_id)
    if may_lack_its_end:
        eligible = tuple(replica for replica in partition.elr if replica != broker_id)
        if others or eligible or set(partition.last_known_elr) - {broker_id}:
            return partition._replace(isr=others, elr=eligible)
        return partition
    if eligible_replicas.are_tracked(image):
        return eligible_replicas.without_in_sync(image, topic, partition, broker_id)
    return partition._replace(isr=others) if others else partition


def take_replicas_offline(builder: ImageBuilder, brokers: Sequence[int]) -> Generator[None, None, None]:
    """The brokers, which the builder shows as gone or going, lead nothing and leave the in-sync replicas."""
    image = builder.view()
    for topic in list(image.topics_by_name.values()):
        partitions = []
        for partition in topic.partitions:
            for broker_id in brokers:
                if broker_id in partition.replicas:
                    partition = without_replica(image, topic.name, partition, broker_id)  # noqa: PLW2901
            partitions.append(partition)
        put_partitions(builder, topic, partitions)
        yield


def put_partitions(builder: ImageBuilder, topic: TopicImage, partitions: Sequence[PartitionImage]) -> None:
    """The topic with these partitions, if any of them is another object than before."""
    if any(after is not before for after, before in zip(partitions, topic.partitions, strict=True)):
        builder.put_topic(topic._replace(partitions=tuple(partitions)))


# ---------------------------------------------------------------- AlterPartition


def alter_partitions(
    builder: ImageBuilder, broker_id: int, changes: Sequence[InSyncChange]
) -> Generator[None, None, list[InSyncResult]]:
    """Give leaders the in-sync replicas that they ask for, each partition for itself; one answer each, in order."""
    results = []
    for change in changes:
        results.append(_alter(builder, broker_id, change))
        yield
    return results


def _alter(builder: ImageBuilder, broker_id: int, change: InSyncChange) -> InSyncResult:
    image = builder.view()
    topic = image.topics_by_id.get(change.topic_id)
    if topic is None:
        return InSyncResult(change.topic_id, change.partition_index, ErrorCode.UNKNOWN_TOPIC_ID)
    if not 0 <= change.partition_index < len(topic.partitions):
        return InSyncResult(change.topic_id, change.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    partition = topic.partitions[change.partition_index]
    refusal = _refusal(image, broker_id, partition, change)
    if refusal:
        return InSyncResult(change.topic_id, change.partition_index, refusal)
    after = _with_in_sync(image, topic.name, partition, change)
    if after is not partition:
        partitions = list(topic.partitions)
        partitions[change.partition_index] = after
        builder.put_topic(topic._replace(partitions=tuple(partitions)))
    if after.leader != broker_id:
        # The change ended a reassignment, which took the leader away: its next state comes with the image.
        return InSyncResult(change.topic_id, change.partition_index, ErrorCode.NEW_LEADER_ELECTED)
    state = InSyncState(after.leader, after.leader_epoch, after.isr, after.partition_epoch, after.leader_recovery_state)
    return InSyncResult(change.topic_id, change.partition_index, 0, state)


def _refusal(image: ClusterImage, broker_id: int, partition: PartitionImage, change: InSyncChange) -> int:
    # Who knows of newer epochs than this controller's has heard of a newer controller.
    if change.leader_epoch > partition.leader_epoch or change.partition_epoch > partition.partition_epoch:
        return ErrorCode.NOT_CONTROLLER
    if change.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if broker_id != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if change.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    in_sync = [replica for replica, _ in change.in_sync]
    if len(set(in_sync)) != len(in_sync) or not set(in_sync) <= set(partition.replicas) or broker_id not in in_sync:
        return ErrorCode.INVALID_REQUEST
    if change.leader_recovery_state not in (RECOVERED, RECOVERING):
        return ErrorCode.INVALID_REQUEST
    if change.leader_recovery_state == RECOVERING and (
        len(in_sync) > 1 or partition.leader_recovery_state == RECOVERED
    ):
        return ErrorCode.INVALID_REQUEST
    for replica, epoch in change.in_sync:
        if not is_online(image, partition, replica) or epoch not in (-1, image.brokers[replica].epoch):
            return ErrorCode.INELIGIBLE_REPLICA
        if replica not in partition.isr and not has_free_space(image, partition, replica):
            return ErrorCode.INELIGIBLE_REPLICA
    return 0


def _with_in_sync(image: ClusterImage, topic: str, partition: PartitionImage, change: InSyncChange) -> PartitionImage:
    wanted = {replica for replica, _ in change.in_sync}
    in_sync = tuple(replica for replica in partition.replicas if replica in wanted)
    after = partition._replace(isr=in_sync, leader_recovery_state=change.leader_recovery_state)
    return relieved(image, topic, settled(image, topic, partition, after))
