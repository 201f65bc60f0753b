"""ConsumerGroupHeartbeat (KIP-848): members join, stay and move on.

Owns: the decisions of ConsumerGroupHeartbeat v0-1 for members that are there; how they go is in ``member_removal``.

A heartbeat does three things, each of which may write records. The member says something new of itself, the group gets
a new target assignment if it is behind, the member takes its next step towards the target. A heartbeat with nothing new
writes nothing and looks at no other member.

Counterpart in Kafka: ``consumerGroupHeartbeat`` of ``GroupMetadataManager``.
"""

from __future__ import annotations

from typing import NamedTuple

from pybroker.coordinators.group.classic.rebalance import SESSION_TIMER
from pybroker.coordinators.group.consumer.assignment import update_group_epoch, update_target
from pybroker.coordinators.group.consumer.consumer_group import ConsumerGroup
from pybroker.coordinators.group.consumer.consumer_member import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    NO_TIMEOUT,
    Assigned,
    ConsumerMember,
    MemberState,
    Owned,
    topic_names,
)
from pybroker.coordinators.group.consumer.consumer_records import (
    current_assignment_record,
    member_metadata_record,
    target_member_record,
)
from pybroker.coordinators.group.consumer.member_lookup import check_not_full, dynamic_member, known_static_member
from pybroker.coordinators.group.consumer.member_removal import Context, rebalance_timer, removal
from pybroker.coordinators.group.consumer.reconciliation import Situation, reconcile
from pybroker.coordinators.group.consumer.regexes import MayDescribe, RegexChange, regexes_to_resolve, update_regex
from pybroker.coordinators.group.failures import GroupFailure
from pybroker.coordinators.result import Record, Result
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)


class Heartbeat(NamedTuple):
    """One ConsumerGroupHeartbeat with what it came with."""

    request: ConsumerGroupHeartbeatRequest
    client_id: str
    client_host: str
    may_describe: MayDescribe


# --- joining and staying ---------------------------------------------------------------------------------------------


def heartbeat(group: ConsumerGroup, beat: Heartbeat, context: Context, records: list[Record], now_ms: int) -> Result:
    """A member joins or stays; ``records`` are those that make the group, if it is new.  Raises GroupFailure."""
    request, settings = beat.request, context.settings
    result = Result(records=records)
    check_not_full(group, request.member_id, settings)
    member_id = request.member_id or context.new_member_id()
    owned = _owned(request)
    before = _find(group, member_id, request, owned, records)
    after = _updated(before, beat)
    names_changed = write_member(group, before, after, records)
    regex_change = update_regex(group, before, after, records)
    regexes: list[str] = []
    if after.subscribed_topic_regex or group.regex_counts:
        regexes = regexes_to_resolve(group, settings, context.topics, before, after, now_ms)
    bump = names_changed or regex_change is RegexChange.UPDATED_AND_RESOLVED
    bump = bump or (after is not before and _assignor_changes(group, after, settings.default_assignor))
    changed = names_changed or regex_change is not RegexChange.NONE
    after = move_on(group, after, bump, changed, owned, context, result, now_ms)
    if regexes:
        # Not before: nobody would go on with what a heartbeat began that is refused.
        context.resolve(group.group_id, regexes, beat.may_describe, result)
    result.schedule((SESSION_TIMER, group.group_id, member_id), settings.session_timeout_ms(group.group_id))
    result.response = ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=0,
        error_message=None,
        member_id=member_id,
        member_epoch=after.member_epoch,
        heartbeat_interval_ms=settings.heartbeat_interval_ms(group.group_id),
        assignment=_assignment(after.assigned) if _is_assignment_due(request, before, after) else None,
    )
    return result


def _assignor_changes(group: ConsumerGroup, after: ConsumerMember, default: str) -> bool:
    """Whether the group is assigned by another assignor once the member names what it names now."""
    preferred = group.preferred_assignor(group.predecessor(after), after)
    return (preferred or default) != (group.preferred_assignor() or default)


def _owned(request: ConsumerGroupHeartbeatRequest) -> Owned | None:
    if request.topic_partitions is None:
        return None
    return {topic.topic_id: frozenset(topic.partitions) for topic in request.topic_partitions}


def _find(
    group: ConsumerGroup,
    member_id: str,
    request: ConsumerGroupHeartbeatRequest,
    owned: Owned | None,
    records: list[Record],
) -> ConsumerMember:
    is_joining = request.member_epoch == JOIN_EPOCH
    if request.instance_id is None:
        member = dynamic_member(group, member_id, is_joining)
    elif is_joining:
        return static_member(group, member_id, request.instance_id, False, records)
    else:
        member = known_static_member(group, member_id, request.instance_id)
    _check_epoch(member, request.member_epoch, owned)
    return member


def static_member(
    group: ConsumerGroup, member_id: str, instance_id: str, is_classic: bool, records: list[Record]
) -> ConsumerMember:
    """A static member that joins: new, or in the place of the one that had its instance id.  Raises GroupFailure."""
    present = group.static_member(instance_id)
    if present is None:
        return dynamic_member(group, member_id, True)
    if not is_classic and present.classic is None and present.member_epoch != LEAVE_STATIC_EPOCH:
        message = f"Static member {member_id} with instance id {instance_id} cannot join the group because the "
        message += f"instance id is owned by {present.member_id} member."
        raise GroupFailure(ErrorCode.UNRELEASED_INSTANCE_ID, message)
    member = present._replace(member_id=member_id, member_epoch=JOIN_EPOCH, previous_member_epoch=JOIN_EPOCH)
    records += removal(group, present.member_id)
    records.append(member_metadata_record(group.group_id, member))
    records.append(target_member_record(group.group_id, member_id, group.target.get(present.member_id, {})))
    records.append(current_assignment_record(group.group_id, member))
    return member


def _check_epoch(member: ConsumerMember, epoch: int, owned: Owned | None) -> None:
    """A member may be one epoch behind, because the response with its last may have been lost."""
    if epoch in {JOIN_EPOCH, member.member_epoch}:
        return
    is_lost_response = epoch == member.previous_member_epoch and _is_subset(owned, member.assigned)
    if epoch < member.member_epoch and is_lost_response:
        return
    greater = "greater" if epoch > member.member_epoch else "smaller"
    message = f"The consumer group member has a {greater} member epoch ({epoch}) than the one known by the group "
    message += f"coordinator ({member.member_epoch}). The member must abandon all its partitions and rejoin."
    raise GroupFailure(ErrorCode.FENCED_MEMBER_EPOCH, message)


def _is_subset(owned: Owned | None, assigned: Assigned) -> bool:
    if owned is None:
        return False
    return all(
        topic_id in assigned and partitions <= assigned[topic_id].keys() for topic_id, partitions in owned.items()
    )


def _updated(member: ConsumerMember, beat: Heartbeat) -> ConsumerMember:
    """The member with what the request says of it; what it leaves out stays.  The same object if nothing is new."""
    request = beat.request
    after = ConsumerMember(
        member.member_id,
        member.member_epoch,
        member.previous_member_epoch,
        member.instance_id if request.instance_id is None else request.instance_id,
        member.rack_id if request.rack_id is None else request.rack_id,
        member.rebalance_timeout_ms if request.rebalance_timeout_ms == NO_TIMEOUT else request.rebalance_timeout_ms,
        beat.client_id,
        beat.client_host,
        member.subscribed_topic_names
        if request.subscribed_topic_names is None
        else topic_names(request.subscribed_topic_names),
        member.subscribed_topic_regex if request.subscribed_topic_regex is None else request.subscribed_topic_regex,
        member.server_assignor if request.server_assignor is None else request.server_assignor,
        member.state,
        member.assigned,
        member.pending_revocation,
        None,
    )
    return member if after == member else after


def write_member(group: ConsumerGroup, before: ConsumerMember, after: ConsumerMember, records: list[Record]) -> bool:
    """Write what a member says of itself if it is new; whether it subscribes to other topics by name than before."""
    if after is before or after == before:
        return False
    records.append(member_metadata_record(group.group_id, after))
    return after.subscribed_topic_names != before.subscribed_topic_names


def move_on(
    group: ConsumerGroup,
    member: ConsumerMember,
    bump: bool,
    subscription_changed: bool,
    owned: Owned | None,
    context: Context,
    result: Result,
    now_ms: int,
) -> ConsumerMember:
    """Bring the group's epoch and target up to date, then the member a step nearer to the target.

    Raises GroupFailure; a target that was begun is given up then.
    """
    settings, topics = context.settings, context.topics
    epoch, target_assignment_builder = group.group_epoch, group.target_assignment_builder
    if bump or group.is_metadata_due(topics.version):
        epoch = update_group_epoch(group, topics, bump, member, result.records)
    assignment_epoch, target = update_target(group, settings, topics, epoch, member, now_ms, result)
    if not subscription_changed and member.is_reconciled_to(assignment_epoch):
        return member
    subscribed = topics.ids_of(group.subscription(member))
    situation = Situation(assignment_epoch, target, subscribed, subscription_changed, owned, group.owners.of)
    try:
        return step(group, member, situation, result)
    except GroupFailure:
        group.target_assignment_builder = target_assignment_builder
        raise


def step(group: ConsumerGroup, member: ConsumerMember, situation: Situation, result: Result) -> ConsumerMember:
    """The member's next state, written if it is another."""
    after = reconcile(member, situation)
    if after == member:
        return member
    result.records.append(current_assignment_record(group.group_id, after))
    key = rebalance_timer(group, after.member_id)
    if after.state is not MemberState.UNREVOKED_PARTITIONS:
        result.cancel(key, when_written=True)
    elif after.classic is None:
        # Members of the classic protocol have other timers, except after a reload.
        result.schedule(key, after.rebalance_timeout_ms)
    return after


def _is_assignment_due(request: ConsumerGroupHeartbeatRequest, before: ConsumerMember, after: ConsumerMember) -> bool:
    """Whether the response has the assignment: it is new, or the client begins anew and said all of itself."""
    if request.member_epoch == JOIN_EPOCH or before.assigned != after.assigned:
        return True
    says_topics = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    return request.rebalance_timeout_ms != NO_TIMEOUT and says_topics and request.topic_partitions is not None


def _assignment(assigned: Assigned) -> Assignment:
    topics = [
        ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=topic_id, partitions=sorted(epochs))
        for topic_id, epochs in assigned.items()
    ]
    return Assignment(topic_partitions=topics)
