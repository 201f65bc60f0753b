"""The group epoch, the metadata hash and the target assignment of a consumer group.

Owns: when the group epoch grows, when a new target assignment is computed, and the records of both.

The group epoch grows when a subscription changes or a topic does. The target follows it, but not more often than the
group's assignment interval allows: members that heartbeat meanwhile go by the last one. A target that takes long is
worked out in slices of the loop's time behind the request that asked for it, one at a time. It then is the target of
the epoch in which it began.

A group's epochs begin at 1, so its first assignment has epoch 2.  No timer follows the assignment interval: the next
heartbeat computes the target.  A group is checked against topics by ``Topics.version``, so that nothing runs over all
groups when topics change.

Counterpart in Kafka: ``updateSubscriptionMetadata`` and ``maybeUpdateTargetAssignment`` of ``GroupMetadataManager``.
"""

from __future__ import annotations

import logging

from pybroker.coordinators.group.assignors.spec import (
    Assignor,
    Partitions,
)
from pybroker.coordinators.group.consumer.consumer_group import NOTHING, ConsumerGroup
from pybroker.coordinators.group.consumer.consumer_member import ConsumerMember
from pybroker.coordinators.group.consumer.consumer_records import (
    PARTITION_METADATA,
    group_metadata_record,
    tombstone,
)
from pybroker.coordinators.group.consumer.consumer_settings import ConsumerSettings
from pybroker.coordinators.group.consumer.target_assignment_builder import TargetAssignmentBuilder
from pybroker.coordinators.group.group_topics import Topics
from pybroker.coordinators.result import Record, Result, TimerKey

logger = logging.getLogger(__name__)

ASSIGNMENT_TIMER = "consumer-assignment"


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
        logger.debug("group %s: epoch %d", group.group_id, epoch)
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
    result: Result,
) -> tuple[int, Partitions]:
    """(epoch of the target assignment, what it gives the member): a new one when it is time for it.

    One that takes long goes on behind the request; until it is there members go by the last one.
    """
    if not is_target_due(group, settings, group_epoch, now_ms):
        return group.assignment_epoch, group.target_of(after)
    coming = _begin_target(group, settings, topics, group_epoch, after)
    if coming.advance():
        result.records += coming.records(coming.shares.items(), group.target, now_ms)
        return group_epoch, coming.shares.get(after.member_id, NOTHING)
    group.target_assignment_builder = coming
    result.schedule(assignment_timer(group), 0)

    def on_failure(_failed_ms: int, _code: int) -> Result:
        # It is for a member, and an epoch, that the group does not have.
        group.target_assignment_builder = None
        return Result()

    result.on_failure = on_failure
    return group.assignment_epoch, group.target_of(after)


def assignment_timer(group: ConsumerGroup) -> TimerKey:
    return (ASSIGNMENT_TIMER, group.group_id, "")


def go_on_assigning(group: ConsumerGroup, settings: ConsumerSettings, topics: Topics, now_ms: int) -> Result:
    """Another slice of the target that is being worked out; written when it is the last, if it is of use yet.

    It begins here where the group was not there yet when it was asked for.
    """
    result = Result()
    if is_target_due(group, settings, group.group_epoch, now_ms):
        group.target_assignment_builder = _begin_target(group, settings, topics, group.group_epoch)
    coming = group.target_assignment_builder
    if coming is None:
        return result
    if not coming.advance():
        result.schedule(assignment_timer(group), 0)
        return result
    group.target_assignment_builder = None
    if group.assignment_epoch < coming.epoch <= group.group_epoch:
        result.records += coming.records(coming.shares_now(group.predecessor), group.target, now_ms)
    return result


def is_target_due(group: ConsumerGroup, settings: ConsumerSettings, group_epoch: int, now_ms: int) -> bool:
    """Whether the target assignment is behind that epoch of the group, old enough for another, and none is coming."""
    if group_epoch <= group.assignment_epoch or group.target_assignment_builder is not None:
        return False
    last_ms = group.assignment_timestamp_ms
    if last_ms == 0:
        return True
    # One of the future was worked out by a coordinator whose clock was ahead: the group must not wait for that time.
    return not 0 <= now_ms - last_ms < settings.assignment_interval_ms(group.group_id)


def _assignor(group: ConsumerGroup, settings: ConsumerSettings, after: ConsumerMember | None = None) -> Assignor:
    predecessor = None if after is None else group.predecessor(after)
    name = group.preferred_assignor(predecessor, after) or settings.default_assignor
    return settings.assignors.get(name) or settings.assignors[settings.default_assignor]


def _begin_target(
    group: ConsumerGroup,
    settings: ConsumerSettings,
    topics: Topics,
    epoch: int,
    after: ConsumerMember | None = None,
) -> TargetAssignmentBuilder:
    """A target of the members as they are; ``after`` is one that changes, as it is about to be."""
    members = dict(group.members)
    if after is not None:
        predecessor = group.predecessor(after)
        if predecessor is not None and predecessor.member_id != after.member_id:
            del members[predecessor.member_id]
        members[after.member_id] = after
    to_assign = [
        (member, group.target_of(member) if member is after else group.target.get(member_id, NOTHING))
        for member_id, member in members.items()
    ]
    assignor = _assignor(group, settings, after)
    return TargetAssignmentBuilder(group.group_id, epoch, assignor, topics, to_assign, group.subscription)
