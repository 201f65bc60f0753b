"""Members of a consumer group that go (KIP-848): they leave, fall silent, or hold up others for too long.

Owns: what ends a membership, and the timers by which it ends; ``Context``, what all rules of consumer groups go by.

Counterpart in Kafka: ``consumerGroupLeave``, ``consumerGroupFenceMembers`` and the timeouts of
``GroupMetadataManager``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from pybroker.coordinators.group.classic.rebalance import SESSION_TIMER
from pybroker.coordinators.group.consumer.consumer_group import ConsumerGroup
from pybroker.coordinators.group.consumer.consumer_member import LEAVE_STATIC_EPOCH, ConsumerMember, MemberState
from pybroker.coordinators.group.consumer.consumer_records import (
    CURRENT_MEMBER_ASSIGNMENT,
    MEMBER_METADATA,
    REGULAR_EXPRESSION,
    TARGET_ASSIGNMENT_MEMBER,
    current_assignment_record,
    group_metadata_record,
    target_metadata_record,
    tombstone,
)
from pybroker.coordinators.group.consumer.consumer_settings import ConsumerSettings
from pybroker.coordinators.group.consumer.member_lookup import dynamic_member, known_static_member
from pybroker.coordinators.group.consumer.regexes import MayDescribe
from pybroker.coordinators.group.group_topics import Topics
from pybroker.coordinators.result import Record, Result, TimerKey
from pybroker_protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

logger = logging.getLogger(__name__)

# Kinds of timers, besides SESSION_TIMER: a member has to give partitions up; a classic member has to join again; has to
# ask for its assignment.
REBALANCE_TIMER = "consumer-rebalance"
CLASSIC_JOIN_TIMER = "consumer-join"
CLASSIC_SYNC_TIMER = "consumer-sync"


class Context(NamedTuple):
    """What the rules of consumer groups go by.

    ``new_member_id()`` makes an unused id.  ``resolve(group_id, regexes, may_describe, result)`` begins to resolve
    regular expressions, unless that is under way already.  ``downgrade(group, gone, result, now_ms)`` makes a classic
    group of one whose last other members are gone; False when that is not to be.
    """

    settings: ConsumerSettings
    topics: Topics
    new_member_id: Callable[[], str]
    resolve: Callable[[str, list[str], MayDescribe, Result], None]
    downgrade: Callable[[ConsumerGroup, Sequence[ConsumerMember], Result, int], bool]


# --- leaving ---------------------------------------------------------------------------------------------------------


def leave(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, context: Context, now_ms: int) -> Result:
    """A member goes: for good, or, if it is static, to come back within its session.  Raises GroupFailure."""
    member_id, epoch = request.member_id, request.member_epoch
    if request.instance_id is None:
        member = dynamic_member(group, member_id, False)
    else:
        member = known_static_member(group, member_id, request.instance_id)
    result = Result()
    if request.instance_id is not None and epoch == LEAVE_STATIC_EPOCH:
        away = member._replace(
            member_epoch=LEAVE_STATIC_EPOCH,
            pending_revocation={},
            assigned={topic_id: dict.fromkeys(epochs, 0) for topic_id, epochs in member.assigned.items()},
        )
        result.records.append(current_assignment_record(group.group_id, away))
    else:
        remove_members(group, [member], context, result, now_ms)
    result.response = ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=0,
        error_message=None,
        member_id=member_id,
        member_epoch=epoch,
        heartbeat_interval_ms=0,
        assignment=None,
    )
    return result


def remove_members(
    group: ConsumerGroup, members: Sequence[ConsumerMember], context: Context, result: Result, now_ms: int
) -> None:
    """Members are gone; the group assigns anew, or becomes a classic one if only such members are left."""
    if not members:
        return
    for member in members:
        cancel_timers(group, member.member_id, result)
    if context.downgrade(group, members, result, now_ms):
        return
    records = result.records
    for member in members:
        records += removal(group, member.member_id)
    counts = dict.fromkeys((member.subscribed_topic_regex for member in members if member.subscribed_topic_regex), 0)
    for member in members:
        if member.subscribed_topic_regex:
            counts[member.subscribed_topic_regex] += 1
    records += [
        tombstone(REGULAR_EXPRESSION, group.group_id, regex)
        for regex, count in counts.items()
        if group.regex_counts.get(regex) == count
    ]
    metadata_hash = context.topics.metadata_hash(group.subscribed_topics(members))
    epoch = group.group_epoch + 1
    records.append(group_metadata_record(group.group_id, epoch, metadata_hash))
    if len(members) == len(group.members):
        # Nothing is left to assign: who comes next is not held up by the time of the last assignment.
        records.append(target_metadata_record(group.group_id, epoch, 0))


def removal(group: ConsumerGroup, member_id: str) -> list[Record]:
    """The records that take the member out, in the order in which they have to be replayed."""
    return [
        tombstone(CURRENT_MEMBER_ASSIGNMENT, group.group_id, member_id),
        tombstone(TARGET_ASSIGNMENT_MEMBER, group.group_id, member_id),
        tombstone(MEMBER_METADATA, group.group_id, member_id),
    ]


# --- timers ----------------------------------------------------------------------------------------------------------


def rebalance_timer(group: ConsumerGroup, member_id: str) -> TimerKey:
    return (REBALANCE_TIMER, group.group_id, member_id)


def cancel_timers(group: ConsumerGroup, member_id: str, result: Result) -> None:
    """Nothing is expected of the member in this group any more, once that is in the log: a leave that finds no space
    leaves it in the group."""
    for kind in (SESSION_TIMER, REBALANCE_TIMER, CLASSIC_JOIN_TIMER, CLASSIC_SYNC_TIMER):
        result.cancel((kind, group.group_id, member_id), when_written=True)
    group.joins_awaited.discard(member_id)


def begin_timers(group: ConsumerGroup, settings: ConsumerSettings, result: Result) -> None:
    """After loading every session begins anew, because no member could send heartbeats meanwhile."""
    session_ms = settings.session_timeout_ms(group.group_id)
    for member in group.members.values():
        result.schedule((SESSION_TIMER, group.group_id, member.member_id), session_ms)
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            result.schedule(rebalance_timer(group, member.member_id), member.rebalance_timeout_ms)


def on_timer(group: ConsumerGroup, kind: str, member_id: str, context: Context, now_ms: int) -> Result:
    """A member was silent for too long, or did not do in time what others wait for: it is out."""
    result = Result()
    member = group.members.get(member_id)
    if member is None:
        return result
    if kind == CLASSIC_JOIN_TIMER:
        group.joins_awaited.discard(member_id)
    is_away = member.member_epoch == LEAVE_STATIC_EPOCH
    if kind == REBALANCE_TIMER and (is_away or member.state is not MemberState.UNREVOKED_PARTITIONS):
        return result  # it went on meanwhile
    if kind in {CLASSIC_JOIN_TIMER, CLASSIC_SYNC_TIMER} and member.classic is None:
        return result  # it speaks another protocol now
    logger.info("group %s: member %s is out (%s timeout)", group.group_id, member_id, kind)
    remove_members(group, [member], context, result, now_ms)
    return result
