"""Moving partitions to other brokers: what is asked for, what is refused, and what is under way (KIP-455).

Owns: the rules of AlterPartitionReassignments and ListPartitionReassignments.  Each partition is reassigned for itself.
No part sees a reassignment through: all of it is in the image.  It ends with the change of the in-sync replicas that
completes it (``partition_changes``), under any controller.

Counterpart in Kafka: ``ReplicationControlManager.alterPartitionReassignments`` and ``listPartitionReassignments``.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import NamedTuple

from pybroker.cluster.decisions.elections import led_by_anybody, may_elect_uncleanly
from pybroker.cluster.decisions.operations import (
    OngoingReassignment,
    PartitionResult,
    PartitionResults,
    Reassignment,
    WantedPartitions,
    WantedReassignments,
)
from pybroker.cluster.decisions.partition_changes import put_partitions, settled
from pybroker.cluster.decisions.placement import Refused, check_assignment, choose_directory
from pybroker.cluster.decisions.reassigned_replicas import is_reassigned, original_replicas, reassigned, reverted
from pybroker.cluster.image.cluster_image import ClusterImage, ImageBuilder, PartitionImage, TopicImage
from pybroker_protocol.errors import ErrorCode


class ReassignmentRules(NamedTuple):
    """What a reassignment needs to know besides the image.

    ``unclean_elections``: whether the brokers' files allow them.  ``may_change_factor``: whether a partition may have
    more or fewer replicas afterwards.
    """

    unclean_elections: bool
    may_change_factor: bool = True


def alter_reassignments(
    builder: ImageBuilder, wanted: WantedReassignments, rules: ReassignmentRules
) -> Generator[None, None, PartitionResults]:
    """Begin, change or take back reassignments; one answer for each partition, in the order asked."""
    topics = []
    for name, reassignments in wanted:
        results = yield from _alter_topic(builder, name, reassignments, rules)
        topics.append((name, results))
    return PartitionResults(topics)


def _alter_topic(
    builder: ImageBuilder, name: str, reassignments: Sequence[Reassignment], rules: ReassignmentRules
) -> Generator[None, None, list[PartitionResult]]:
    image = builder.view()
    topic = image.topics_by_name.get(name)
    altered: dict[int, PartitionImage] = {}  # the topic is copied once
    results = []
    for reassignment in reassignments:
        index = reassignment.partition
        try:
            before = altered.get(index) or _existing(topic, name, index)
            after = _altered(builder, image, name, before, reassignment, rules)
            if after is not before:
                altered[index] = after
            results.append(PartitionResult(index))
        except Refused as refused:
            results.append(PartitionResult(index, refused.error_code, refused.message))
        yield
    if topic is not None and altered:
        put_partitions(builder, topic, [altered.get(index, each) for index, each in enumerate(topic.partitions)])
    return results


def _existing(topic: TopicImage | None, name: str, index: int) -> PartitionImage:
    if topic is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    if not 0 <= index < len(topic.partitions):
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}.")
    return topic.partitions[index]


def _altered(
    builder: ImageBuilder,
    image: ClusterImage,
    name: str,
    before: PartitionImage,
    wanted: Reassignment,
    rules: ReassignmentRules,
) -> PartitionImage:
    if wanted.replicas is None:
        back = settled(image, name, before, _taken_back(image, name, before, wanted.partition, rules))
        return led_by_anybody(image, name, back, rules.unclean_elections)
    check_assignment(wanted.replicas, image.brokers, None)
    factor = len(original_replicas(before))
    if not rules.may_change_factor and len(wanted.replicas) != factor:
        message = f"The replication factor is changed from {factor} to {len(wanted.replicas)}"
        raise Refused(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    after = reassigned(before, wanted.replicas, lambda broker: choose_directory(builder, image.brokers[broker]))
    return settled(image, name, before, after)


def _taken_back(
    image: ClusterImage, name: str, before: PartitionImage, index: int, rules: ReassignmentRules
) -> PartitionImage:
    if not is_reassigned(before):
        raise Refused(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    after, is_unclean = reverted(before)
    if is_unclean and not may_elect_uncleanly(image, name, rules.unclean_elections):
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Unable to revert partition assignment for {name}:{index} because it would require an unclean leader "
            "election.",
        )
    return after


def ongoing_reassignments(
    image: ClusterImage, wanted: WantedPartitions | None
) -> Iterator[tuple[str, list[OngoingReassignment]]]:
    """The partitions that are being reassigned, of those wanted (None: of all), a topic at each step.

    Topics and partitions that do not exist are left out; a topic of which nothing moves has none.
    """
    if wanted is None:
        for topic in image.topics_by_name.values():
            yield topic.name, _ongoing(topic, range(len(topic.partitions)))
        return
    for name, indexes in wanted:
        known = image.topics_by_name.get(name)
        if known is not None:
            yield known.name, _ongoing(known, indexes)


def _ongoing(topic: TopicImage, indexes: Iterable[int]) -> list[OngoingReassignment]:
    return [
        OngoingReassignment(index, topic.partitions[index])
        for index in indexes
        if 0 <= index < len(topic.partitions) and is_reassigned(topic.partitions[index])
    ]
