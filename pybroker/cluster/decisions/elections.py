"""Electing leaders on request, or for balance: the preferred replica, or any that is left where no in-sync one is.

A broker that comes or goes is followed by elections (``broker_changes``, ``partition_changes``). So a request finds
something to do where the preferred replica is back, or where an unclean election is the last resort.

Counterpart in Kafka: ``ReplicationControlManager.electLeaders`` and the elections of ``PartitionChangeBuilder``.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable

from pybroker.cluster.decisions.operations import (
    PREFERRED,
    UNCLEAN,
    PartitionResult,
    PartitionResults,
    WantedElections,
    refused_partitions,
)
from pybroker.cluster.decisions.partition_changes import has_free_space, is_online, led_by, put_partitions
from pybroker.cluster.decisions.placement import choose_directory
from pybroker.cluster.image.cluster_image import NO_LEADER, ClusterImage, ImageBuilder, Overrides, PartitionImage
from pybroker.config.resources import BROKER, TOPIC, UNCLEAN_LEADER_ELECTION
from pybroker_protocol.errors import ErrorCode, readable


def elect_leaders(builder: ImageBuilder, election_type: int, wanted: WantedElections) -> PartitionResults:
    """Elect in each of the partitions for itself; of all partitions, those that need no election are left out."""
    if election_type not in (PREFERRED, UNCLEAN):
        return refused_partitions(wanted or (), ErrorCode.INVALID_REQUEST, f"Unknown election type {election_type}")
    if wanted is not None:
        return PartitionResults([(name, _elect(builder, election_type, name, indexes)) for name, indexes in wanted])
    topics = []
    for topic in list(builder.view().topics_by_name.values()):
        elections = _elect(builder, election_type, topic.name, range(len(topic.partitions)))
        needed = [election for election in elections if election.error_code != ErrorCode.ELECTION_NOT_NEEDED]
        topics.append((topic.name, needed))
    return PartitionResults(topics)


def balance_leaders(builder: ImageBuilder, elections_max: int) -> Generator[None, None, int]:
    """Elect the preferred leaders that could lead and do not, so many at most; gives back how many that were."""
    image = builder.view()
    count = 0
    for topic in list(image.topics_by_name.values()):
        partitions = []
        for before in topic.partitions:
            after = before
            if before.leader not in (before.replicas[0], NO_LEADER) and count < elections_max:
                after, _ = _elected(image, topic.name, before, PREFERRED)
                count += after is not before
            partitions.append(after)
        put_partitions(builder, topic, partitions)
        yield
        if count >= elections_max:
            break
    return count


def may_elect_uncleanly(image: ClusterImage, topic: str, static_permission: bool) -> bool:
    """Whether a replica of the topic may lead that is not in sync.

    ``static_permission`` is ``unclean.leader.election.enable`` in the brokers' files, here and below.
    """
    for resource in ((TOPIC, topic), (BROKER, "")):
        value = image.overrides(*resource).get(UNCLEAN_LEADER_ELECTION)
        if value is not None:
            return value.lower() == "true"
    return static_permission


def led_by_anybody(
    image: ClusterImage, topic: str, partition: PartitionImage, static_permission: bool
) -> PartitionImage:
    """The partition with a leader that need not be in sync, where it has no leader and that is allowed."""
    if partition.leader != NO_LEADER or not may_elect_uncleanly(image, topic, static_permission):
        return partition
    return _elected(image, topic, partition, UNCLEAN)[0]


def elect_uncleanly(builder: ImageBuilder, static_permission: bool) -> Generator[None, None, None]:
    """Where no replica leads, and that is allowed, one does that is not in sync: records may be lost.

    Called after whatever brings, or takes, brokers, log dirs and permissions.
    """
    image = builder.view()
    if not static_permission and not any(_allows_unclean(overrides) for overrides in image.configs.values()):
        return
    for topic in list(image.topics_by_name.values()):
        if may_elect_uncleanly(image, topic.name, static_permission):
            partitions = [
                _elected(image, topic.name, partition, UNCLEAN)[0] if partition.leader == NO_LEADER else partition
                for partition in topic.partitions
            ]
            put_partitions(builder, topic, partitions)
        yield


def _allows_unclean(overrides: Overrides) -> bool:
    return overrides.get(UNCLEAN_LEADER_ELECTION, "").lower() == "true"


def _elect(builder: ImageBuilder, election_type: int, name: str, indexes: Iterable[int]) -> list[PartitionResult]:
    image = builder.view()
    topic = image.topics_by_name.get(name)
    if topic is None:
        unknown = readable(f"No such topic as {name}")
        return [PartitionResult(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, unknown) for index in indexes]
    elections = []
    elected: dict[int, PartitionImage] = {}  # a topic that is named again and again is not copied as often
    for index in indexes:
        if not 0 <= index < len(topic.partitions):
            unknown = f"No such partition as {name}-{index}"
            elections.append(PartitionResult(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, unknown))
            continue
        before = elected.get(index, topic.partitions[index])
        after, code = _elected(image, name, before, election_type)
        if code == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE:
            after, code = _begun_anew(builder, name, before)
        if after is not before:
            elected[index] = after
        elections.append(PartitionResult(index, code, code.message if code else None))
    if elected:
        partitions = [elected.get(index, partition) for index, partition in enumerate(topic.partitions)]
        put_partitions(builder, topic, partitions)
    return elections


def _elected(
    image: ClusterImage, topic: str, partition: PartitionImage, election_type: int
) -> tuple[PartitionImage, ErrorCode]:
    """The partition after the election, and how that went."""
    satisfied = (
        partition.leader == partition.replicas[0] if election_type == PREFERRED else partition.leader != NO_LEADER
    )
    if satisfied:
        return partition, ErrorCode.ELECTION_NOT_NEEDED
    online = [replica for replica in partition.replicas if is_online(image, partition, replica)]
    preferences = [partition.replicas[0], partition.leader, *partition.replicas]
    candidates = [replica for replica in preferences if replica in online and replica in partition.candidates]
    candidates.sort(key=lambda replica: not has_free_space(image, partition, replica))
    if election_type == UNCLEAN:
        candidates += online
    if not candidates or candidates[0] == partition.leader:
        nobody = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        return partition, nobody if election_type == PREFERRED else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    return led_by(image, topic, partition, candidates[0]), ErrorCode.NONE


def _begun_anew(builder: ImageBuilder, topic: str, partition: PartitionImage) -> tuple[PartitionImage, ErrorCode]:
    """Where no broker has its replica's log dir any more, one of them leads an empty log in another one.

    Only the administrator who asks for an unclean election can say that the disks are gone for good.  A log dir that
    comes back after all, at its broker's next start, is where the replica lies again.
    """
    registered = {replica: builder.view().brokers.get(replica) for replica in partition.replicas}
    if not any(
        broker and broker.has_online_dir(partition.directory(replica)) for replica, broker in registered.items()
    ):
        for replica, broker in registered.items():
            if broker and broker.is_active and broker.log_dirs:
                empty = partition.in_directory(replica, choose_directory(builder, broker))
                return led_by(builder.view(), topic, empty._replace(isr=(), elr=()), replica), ErrorCode.NONE
    return partition, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
