"""Members of the classic protocol in a consumer group (KIP-848): they join, sync, beat and leave as they know it.

Owns: JoinGroup, SyncGroup, Heartbeat and LeaveGroup where the group is a consumer group.  Such a member is reconciled
like any other; a JoinGroup is its full heartbeat, and the error REBALANCE_IN_PROGRESS is how it learns that it has to
send one.

Counterpart in Kafka: ``classicGroupJoinToConsumerGroup`` and its sisters in ``GroupMetadataManager``.
"""

from __future__ import annotations

from collections.abc import Callable

from pybroker.coordinators.group.classic.group_responses import join_error
from pybroker.coordinators.group.classic.join_requests import KNOWN_MEMBER_ID_VERSION, Join
from pybroker.coordinators.group.classic.rebalance import SESSION_TIMER
from pybroker.coordinators.group.consumer.assignment import is_target_due, update_group_epoch
from pybroker.coordinators.group.consumer.consumer_group import ConsumerGroup
from pybroker.coordinators.group.consumer.consumer_heartbeat import move_on, static_member, step, write_member
from pybroker.coordinators.group.consumer.consumer_member import (
    ClassicFacet,
    ConsumerMember,
    MemberState,
    Owned,
    topic_names,
)
from pybroker.coordinators.group.consumer.consumer_settings import ConsumerSettings
from pybroker.coordinators.group.consumer.conversion import named_assignment
from pybroker.coordinators.group.consumer.member_lookup import check_not_full, dynamic_member, known_static_member
from pybroker.coordinators.group.consumer.member_removal import (
    CLASSIC_JOIN_TIMER,
    CLASSIC_SYNC_TIMER,
    Context,
    remove_members,
)
from pybroker.coordinators.group.consumer.reconciliation import Situation
from pybroker.coordinators.group.consumer.regexes import RegexChange, update_regex
from pybroker.coordinators.group.consumer_protocol import CONSUMER_PROTOCOL_TYPE, Subscription, read_subscription
from pybroker.coordinators.group.failures import GroupFailure
from pybroker.coordinators.group.group_topics import Topics
from pybroker.coordinators.result import Result
from pybroker_protocol.errors import ErrorCode, ProtocolError
from pybroker_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from pybroker_protocol.messages.join_group import JoinGroupResponse
from pybroker_protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from pybroker_protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

# downgrade(group, joining, rebalance, result, now_ms): a static member that joins was the last of the other protocol.
Downgrade = Callable[[ConsumerGroup, ConsumerMember, bool, Result, int], None]


# --- JoinGroup -------------------------------------------------------------------------------------------------------


def join(
    group: ConsumerGroup, joining: Join, context: Context, may_downgrade: bool, downgrade: Downgrade, now_ms: int
) -> Result:
    """JoinGroup, answered at once.  ``may_downgrade``: with this member all would be classic.  Raises GroupFailure."""
    request = joining.request
    is_new = not request.member_id
    member_id = request.member_id or context.new_member_id()
    check_not_full(group, request.member_id, context.settings)
    if not group.supports(request.protocol_type, (name for name, _ in joining.protocols)):
        message = f"Member {member_id}'s protocols are not supported."
        raise GroupFailure(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, message)
    if is_new and request.group_instance_id is None and joining.api_version >= KNOWN_MEMBER_ID_VERSION:
        return Result(join_error(member_id, ErrorCode.MEMBER_ID_REQUIRED))
    result = Result()
    before = _find(group, member_id, request.group_instance_id, is_new, result)
    subscription = _subscription(joining)
    after = _updated(before, joining, subscription)
    names_changed = write_member(group, before, after, result.records)
    changed = names_changed or update_regex(group, before, after, result.records) is not RegexChange.NONE
    owned = _owned(subscription, context.topics)
    if may_downgrade:
        after = _join_downgraded(group, after, changed, owned, context, downgrade, result, now_ms)
    else:
        after = move_on(group, after, changed, changed, owned, context, result, now_ms)
        result.then = lambda _then_ms: _joined(group, joining, member_id)
    result.response = _joined_response(after)
    return result


def _find(
    group: ConsumerGroup, member_id: str, instance_id: str | None, is_new: bool, result: Result
) -> ConsumerMember:
    if instance_id is None:
        return dynamic_member(group, member_id, True)
    if is_new:
        return static_member(group, member_id, instance_id, True, result.records)
    return known_static_member(group, member_id, instance_id)


def _subscription(joining: Join) -> Subscription:
    """All protocols have the same subscription."""
    try:
        return read_subscription(joining.protocols[0][1])
    except ProtocolError as error:
        message = f"The subscription of protocol {joining.protocols[0][0]} cannot be read: {error}."
        raise GroupFailure(ErrorCode.INVALID_REQUEST, message) from None


def _updated(member: ConsumerMember, joining: Join, subscription: Subscription) -> ConsumerMember:
    request = joining.request
    return member._replace(
        instance_id=request.group_instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=joining.rebalance_timeout_ms,
        client_id=joining.client_id,
        client_host=joining.client_host,
        subscribed_topic_names=topic_names(subscription.topics),
        subscribed_topic_regex="",
        classic=ClassicFacet(request.session_timeout_ms, joining.protocols),
    )


def _owned(subscription: Subscription, topics: Topics) -> Owned:
    by_id = {topics.id_of(name): partitions for name, partitions in subscription.owned.items()}
    return {topic_id: partitions for topic_id, partitions in by_id.items() if topic_id is not None}


def _join_downgraded(
    group: ConsumerGroup,
    member: ConsumerMember,
    changed: bool,
    owned: Owned,
    context: Context,
    downgrade: Downgrade,
    result: Result,
    now_ms: int,
) -> ConsumerMember:
    """The member's place was the last of the consumer protocol; a target that is behind makes all of them rebalance."""
    topics, epoch = context.topics, group.group_epoch
    if changed or group.is_metadata_due(topics.version):
        epoch = update_group_epoch(group, topics, changed, member, result.records)
    is_behind = group.assignment_epoch < epoch
    if not is_behind and not member.is_reconciled_to(group.assignment_epoch):
        subscribed = topics.ids_of(group.subscription(member))
        target = group.target_of(member)
        situation = Situation(group.assignment_epoch, target, subscribed, False, owned, group.owners.of)
        member = step(group, member, situation, result)
    downgrade(group, member, is_behind, result, now_ms)
    return member


def _joined(group: ConsumerGroup, joining: Join, member_id: str) -> Result:
    """The join is in the log: the member's session begins, and it has to ask for its assignment in time."""
    result = Result()
    group_id = group.group_id
    group.joins_awaited.discard(member_id)
    result.cancel((CLASSIC_JOIN_TIMER, group_id, member_id))
    result.schedule((SESSION_TIMER, group_id, member_id), joining.request.session_timeout_ms)
    result.schedule((CLASSIC_SYNC_TIMER, group_id, member_id), joining.rebalance_timeout_ms)
    return result


def _joined_response(member: ConsumerMember) -> JoinGroupResponse:
    assert member.classic is not None
    return JoinGroupResponse(
        throttle_time_ms=0,
        error_code=0,
        generation_id=member.member_epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=member.classic.protocols[0][0],
        leader="",
        member_id=member.member_id,
        members=[],
    )


# --- SyncGroup, Heartbeat --------------------------------------------------------------------------------------------


def _member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int
) -> tuple[ConsumerMember, ClassicFacet]:
    """The member that asks, which speaks the classic protocol.  Raises GroupFailure."""
    if instance_id is None:
        member = dynamic_member(group, member_id, False)
    else:
        member = known_static_member(group, member_id, instance_id)
    if member.classic is None:
        raise GroupFailure(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol.")
    if generation_id != member.member_epoch:
        message = f"The request generation id {generation_id} is not equal to the member epoch {member.member_epoch} "
        raise GroupFailure(ErrorCode.ILLEGAL_GENERATION, f"{message}of member {member_id}.")
    return member, member.classic


def _await_join(group: ConsumerGroup, member: ConsumerMember, result: Result) -> None:
    """The member has to join again, within its rebalance timeout from the first time that it hears so."""
    if member.member_id not in group.joins_awaited:
        group.joins_awaited.add(member.member_id)
        result.schedule((CLASSIC_JOIN_TIMER, group.group_id, member.member_id), member.rebalance_timeout_ms)


def sync(group: ConsumerGroup, request: SyncGroupRequest, topics: Topics) -> Result:
    """SyncGroup, answered at once: the assignment is the broker's.  Raises GroupFailure."""
    member, classic = _member(group, request.member_id, request.group_instance_id, request.generation_id)
    result = Result()
    protocol_name, metadata = classic.protocols[0]
    is_other_type = request.protocol_type is not None and request.protocol_type != CONSUMER_PROTOCOL_TYPE
    is_other_protocol = request.protocol_name is not None and request.protocol_name != protocol_name
    code, assignment = 0, b""
    if is_other_type or is_other_protocol:
        code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    elif group.assignment_epoch > member.member_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        _await_join(group, member, result)
        code = ErrorCode.REBALANCE_IN_PROGRESS
    else:
        result.cancel((CLASSIC_SYNC_TIMER, group.group_id, member.member_id))
        result.schedule((SESSION_TIMER, group.group_id, member.member_id), classic.session_timeout_ms)
        assignment = named_assignment(member.assigned, metadata, topics)
    result.response = SyncGroupResponse(
        throttle_time_ms=0,
        error_code=code,
        protocol_type=None if code else request.protocol_type,
        protocol_name=None if code else request.protocol_name,
        assignment=assignment,
    )
    return result


def heartbeat(group: ConsumerGroup, request: HeartbeatRequest, settings: ConsumerSettings, now_ms: int) -> Result:
    """Heartbeat: the member is alive, and learns whether it has to join again.  Raises GroupFailure.

    It has to, too, when it is time for a new target: in a group of such members alone, nothing else would compute it.
    """
    member, classic = _member(group, request.member_id, request.group_instance_id, request.generation_id)
    result = Result()
    result.schedule((SESSION_TIMER, group.group_id, member.member_id), classic.session_timeout_ms)
    has_to_join = (
        member.member_epoch < group.assignment_epoch
        or is_target_due(group, settings, group.group_epoch, now_ms)
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or (member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_unreleased(member))
    )
    if has_to_join:
        _await_join(group, member, result)
    code = ErrorCode.REBALANCE_IN_PROGRESS if has_to_join else ErrorCode.NONE
    result.response = HeartbeatResponse(throttle_time_ms=0, error_code=code)
    return result


# --- LeaveGroup ------------------------------------------------------------------------------------------------------


def leave(group: ConsumerGroup, request: LeaveGroupRequest, context: Context, now_ms: int) -> Result:
    """LeaveGroup: each member answered for itself, then the group assigns once without all of them."""
    gone: dict[str, ConsumerMember] = {}
    responses = []
    for identity in request.members:
        code = 0
        try:
            member = _leaving(group, identity)
            gone[member.member_id] = member
        except GroupFailure as failure:
            code = failure.code
        responses.append(
            MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=code)
        )
    result = Result(LeaveGroupResponse(throttle_time_ms=0, error_code=0, members=responses))
    remove_members(group, list(gone.values()), context, result, now_ms)
    return result


def _leaving(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
    if identity.group_instance_id is None:
        return dynamic_member(group, identity.member_id, False)
    # An administrator removes a static member by its instance id alone.
    present = group.static_member(identity.group_instance_id)
    member_id = identity.member_id or ("" if present is None else present.member_id)
    return known_static_member(group, member_id, identity.group_instance_id)
