"""The group epoch, the metadata hash and the target assignment of a consumer group.

Owns: when the group epoch grows, when a new target assignment is computed, and the records of both.

The group epoch grows when a subscription changes or a topic does; the target follows it, but not more often than the
group's assignment interval allows: members that heartbeat meanwhile go by the last one.

Counterpart in Kafka: ``TargetAssignmentBuilder``, and ``updateSubscriptionMetadata`` and
``maybeUpdateTargetAssignment`` of ``GroupMetadataManager``.
"""

from __future__ import annotations

import logging

from pybroker.coordinators.group.assignors.spec import GroupSpec, MemberSubscription, Partitions
from pybroker.coordinators.group.consumer_group import NOTHING, ConsumerGroup
from pybroker.coordinators.group.consumer_member import ConsumerMember
from pybroker.coordinators.group.consumer_records import (
    PARTITION_METADATA,
    group_metadata_record,
    target_member_record,
    target_metadata_record,
    tombstone,
)
from pybroker.coordinators.group.consumer_settings import ConsumerSettings
from pybroker.coordinators.group.topics import Topics
from pybroker.coordinators.result import Record

logger = logging.getLogger(__name__)


def update_group_epoch(
    group: ConsumerGroup,
    topics: Topics,
    bump: bool,
    after: ConsumerMember,
    records: list[Record],
) -> int:
    """The group epoch with one member changed: a new one if ``bump``, or if the topics are not what they were."""
    before = group.predecessor(after)
    removed = [] if before is None else [before]
    metadata_hash = topics.metadata_hash(group.subscribed_topics(removed, [after]))
    epoch = group.group_epoch
    if bump or metadata_hash != group.metadata_hash:
        epoch += 1
        records.append(group_metadata_record(group.group_id, epoch, metadata_hash))
        logger.info("group %s: epoch %d", group.group_id, epoch)
    group.metadata_checked = (topics.version, epoch)
    if group.has_partition_metadata:
        records.append(tombstone(PARTITION_METADATA, group.group_id))
    return epoch


def update_target(
    group: ConsumerGroup,
    settings: ConsumerSettings,
    topics: Topics,
    group_epoch: int,
    after: ConsumerMember,
    now_ms: int,
    records: list[Record],
) -> tuple[int, Partitions]:
    """(epoch of the target assignment, what it gives the member): a new one when it is time for it."""
    if not is_target_due(group, settings, group_epoch, now_ms):
        return group.assignment_epoch, group.target_of(after)
    name = group.preferred_assignor(group.predecessor(after), after) or settings.default_assignor
    assignor = settings.assignors.get(name) or settings.assignors[settings.default_assignor]
    target = assignor.assign(_spec(group, topics, after), topics)
    for member_id, partitions in target.items():
        if group.target.get(member_id) != partitions:
            records.append(target_member_record(group.group_id, member_id, partitions))
    records.append(target_metadata_record(group.group_id, group_epoch, now_ms))
    logger.info("group %s: target assignment of epoch %d by %s", group.group_id, group_epoch, assignor.name)
    return group_epoch, target.get(after.member_id, NOTHING)


def is_target_due(group: ConsumerGroup, settings: ConsumerSettings, group_epoch: int, now_ms: int) -> bool:
    """Whether the target assignment is behind that epoch of the group, and old enough for another."""
    if group_epoch <= group.assignment_epoch:
        return False
    last_ms = group.assignment_timestamp_ms
    if last_ms == 0:
        return True
    interval_ms = settings.assignment_interval_ms(group.group_id)
    return interval_ms == 0 or now_ms >= last_ms + interval_ms


def _spec(group: ConsumerGroup, topics: Topics, after: ConsumerMember) -> GroupSpec:
    """All members as they are about to be."""
    members = dict(group.members)
    predecessor = group.predecessor(after)
    if predecessor is not None and predecessor.member_id != after.member_id:
        del members[predecessor.member_id]
    members[after.member_id] = after
    # Members have few different subscriptions, and those that have the same one share a set of ids.
    ids: dict[tuple[frozenset[str], str], frozenset[bytes]] = {}
    spec: dict[str, MemberSubscription] = {}
    for member_id, member in members.items():
        subscribed_to = (member.subscribed_topic_names, member.subscribed_topic_regex)
        if subscribed_to not in ids:
            ids[subscribed_to] = topics.ids_of(group.subscription(member))
        assigned = group.target_of(member) if member_id == after.member_id else group.target.get(member_id, NOTHING)
        spec[member_id] = MemberSubscription(
            member_id, member.instance_id, member.rack_id, ids[subscribed_to], assigned
        )
    return GroupSpec(spec, len(ids) == 1)
