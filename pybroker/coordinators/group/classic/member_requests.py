"""SyncGroup, Heartbeat and LeaveGroup of a classic group.

Owns: the decisions of SyncGroup v0-5, Heartbeat v0-4 and LeaveGroup v0-5.

Counterpart in Kafka: ``GroupMetadataManager.classicGroupSync``, ``classicGroupHeartbeat``, ``classicGroupLeave``.
"""

from __future__ import annotations

from pybroker.coordinators.group.classic.classic_group import ClassicGroup
from pybroker.coordinators.group.classic.group_responses import sync_error, sync_response
from pybroker.coordinators.group.classic.rebalance import (
    discard_assignments,
    prepare_rebalance,
    propagate_assignments,
    rebalance,
    remove_member,
    renew_session,
    session_timer,
    sync_timer,
)
from pybroker.coordinators.group.classic.states import ClassicState
from pybroker.coordinators.group.group_coordinator_settings import GroupSettings
from pybroker.coordinators.result import Result, Waiter
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from pybroker_protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from pybroker_protocol.messages.sync_group import SyncGroupRequest


def _differs(theirs: str | None, ours: str | None) -> bool:
    """Whether both name a protocol, and not the same one."""
    return theirs is not None and ours is not None and theirs != ours


# --- SyncGroup -------------------------------------------------------------------------------------------------------


def sync(
    group: ClassicGroup, request: SyncGroupRequest, waiter: Waiter, settings: GroupSettings, now_ms: int
) -> Result:
    """The outcome of a SyncGroup; a response of None means that it waits for the leader's assignment."""
    error = _check_sync(group, request)
    if error:
        return Result(sync_error(error))
    result = Result()
    member = group.members[request.member_id]
    group.pending_syncs.pop(member.member_id, None)
    if not group.pending_syncs:
        result.cancel(sync_timer(group))
    if group.state is ClassicState.STABLE:
        result.response = sync_response(group, member.assignment)
    elif group.is_leader(member.member_id):
        _assign(group, request, settings, now_ms, result)
    else:
        result.reply(member.sync_waiter, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_waiter = waiter
    return result


def _check_sync(group: ClassicGroup, request: SyncGroupRequest) -> int:
    if group.state is ClassicState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = group.check_member(request.member_id, request.group_instance_id)
    if error:
        return error
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if _differs(request.protocol_type, group.protocol_type) or _differs(request.protocol_name, group.protocol_name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is ClassicState.PREPARING_REBALANCE else 0


def _assign(
    group: ClassicGroup, request: SyncGroupRequest, settings: GroupSettings, now_ms: int, result: Result
) -> None:
    """The leader's assignment: write it; replaying that makes the group stable, and then everybody hears of it."""
    leader = group.members[request.member_id]
    assignments = {assigned.member_id: assigned.assignment for assigned in request.assignments}

    def then(_then_ms: int) -> Result:
        done = Result(sync_response(group, leader.assignment))
        renew_session(group, leader, done)
        propagate_assignments(group, done)
        return done

    def on_failure(failed_ms: int, code: int) -> Result:
        failed = Result(sync_error(code))
        renew_session(group, leader, failed)
        discard_assignments(group, code, failed)
        prepare_rebalance(group, settings, failed_ms, failed)
        return failed

    result.then, result.on_failure = then, on_failure
    members = list(group.member_metadata(assignments))
    result.records.append(group.record(group.generation_id, now_ms, members, group.leader_id))


# --- Heartbeat -------------------------------------------------------------------------------------------------------


def heartbeat(group: ClassicGroup, request: HeartbeatRequest) -> Result:
    """A member is alive; it learns whether it has to join again."""
    result = Result()
    error = _check_heartbeat(group, request)
    if not error:
        renew_session(group, group.members[request.member_id], result)
        if group.state is ClassicState.PREPARING_REBALANCE:
            error = ErrorCode.REBALANCE_IN_PROGRESS
    result.response = HeartbeatResponse(throttle_time_ms=0, error_code=error)
    return result


def _check_heartbeat(group: ClassicGroup, request: HeartbeatRequest) -> int:
    if group.state is ClassicState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = group.check_member(request.member_id, request.group_instance_id)
    if error:
        return error
    return 0 if request.generation_id == group.generation_id else ErrorCode.ILLEGAL_GENERATION


# --- LeaveGroup ------------------------------------------------------------------------------------------------------


def leave(group: ClassicGroup, request: LeaveGroupRequest, settings: GroupSettings, now_ms: int) -> Result:
    """Members leave: each answered for itself, then one rebalance for all of them."""
    result = Result()
    members: list[MemberResponse] = []
    result.response = LeaveGroupResponse(throttle_time_ms=0, error_code=0, members=members)
    if group.state is ClassicState.DEAD:
        result.response.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return result
    for identity in request.members:
        error = _leave_one(group, identity, result)
        members.append(
            MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=error)
        )
    if group.state is not ClassicState.EMPTY and any(not member.error_code for member in members):
        rebalance(group, settings, now_ms, result)
    return result


def _leave_one(group: ClassicGroup, identity: MemberIdentity, result: Result) -> int:
    member_id, instance_id = identity.member_id, identity.group_instance_id
    if not member_id:
        # An administrator removes a static member by its instance id alone.
        member_id = group.static_members.get(instance_id or "", "")
    elif member_id in group.pending_joins:
        group.remove(member_id)
        result.cancel(session_timer(group, member_id))
        return 0
    error = group.check_member(member_id, instance_id)
    if not error:
        remove_member(group, group.members[member_id], result)
    return error
