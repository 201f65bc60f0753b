"""JoinGroup to a classic group: who gets in, and what that does to the group.

Owns: the decisions of JoinGroup v0-9, static members (KIP-345) and known member ids (KIP-394) included.

Counterpart in Kafka: ``GroupMetadataManager.classicGroupJoin``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pybroker.coordinators.group.classic.classic_group import ClassicGroup
from pybroker.coordinators.group.classic.classic_member import ClassicMember, Protocols
from pybroker.coordinators.group.classic.group_responses import join_error, join_response, sync_error
from pybroker.coordinators.group.classic.rebalance import (
    maybe_complete_join,
    prepare_rebalance,
    rebalance,
    renew_session,
    session_timer,
)
from pybroker.coordinators.group.classic.states import ClassicState
from pybroker.coordinators.group.group_coordinator_settings import GroupSettings
from pybroker.coordinators.result import Result, Waiter
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

# Member ids that a group may have given out and that no client used yet: a client that asks for ids without end would
# otherwise fill the memory.  Kafka has no such bound; far above any real group.
PENDING_JOINS_MAX = 10_000

# A new member that cannot send heartbeats yet is given up after this, as in Kafka (its join may wait that long).
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60_000

# JoinGroup versions that make a client join twice, the second time with the id it was given.
KNOWN_MEMBER_ID_VERSION = 4
REBALANCE_TIMEOUT_SINCE = JoinGroupRequest.since("rebalance_timeout_ms")
# JoinGroup versions whose response can have the leader skip the assignment (KIP-814).
SKIP_ASSIGNMENT_SINCE = JoinGroupResponse.since("skip_assignment")


class Join(NamedTuple):
    """One JoinGroup request with what it came with; ``new_member_id`` makes an unused id."""

    request: JoinGroupRequest
    api_version: int
    client_id: str
    client_host: str
    waiter: Waiter
    new_member_id: Callable[[str], str]

    @property
    def protocols(self) -> Protocols:
        return tuple((protocol.name, protocol.metadata) for protocol in self.request.protocols)

    @property
    def rebalance_timeout_ms(self) -> int:
        """Before there is one it is the session's."""
        has_rebalance_timeout = self.api_version >= REBALANCE_TIMEOUT_SINCE
        return self.request.rebalance_timeout_ms if has_rebalance_timeout else self.request.session_timeout_ms


def join(group: ClassicGroup, joining: Join, settings: GroupSettings, now_ms: int) -> Result:
    """The outcome of a JoinGroup; a response of None means that it is parked until the join phase ends."""
    request = joining.request
    result = Result()
    member_id = request.member_id
    if not _accepts_joining_member(group, member_id, settings):
        group.remove(member_id)
        result.cancel(session_timer(group, member_id))
        result.response = join_error("", ErrorCode.GROUP_MAX_SIZE_REACHED)
    elif group.state is ClassicState.DEAD:
        result.response = join_error(member_id, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    elif not group.supports(request.protocol_type, joining.protocols):
        result.response = join_error(member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    elif member_id:
        _join_known(group, joining, settings, now_ms, result)
    elif request.group_instance_id is not None:
        _join_static(group, joining, settings, now_ms, result)
    else:
        _join_dynamic(group, joining, settings, now_ms, result)
    return result


def _accepts_joining_member(group: ClassicGroup, member_id: str, settings: GroupSettings) -> bool:
    member = group.members.get(member_id)
    if group.state is ClassicState.PREPARING_REBALANCE:
        # Counted by those who have joined, so that a group whose bound was lowered sheds the last to join again.
        has_joined = member is not None and member.join_waiter is not None
        return has_joined or group.members_joining < settings.max_size
    if group.state in {ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE}:
        return member is not None or len(group.members) < settings.max_size
    return True


def _join_dynamic(group: ClassicGroup, joining: Join, settings: GroupSettings, now_ms: int, result: Result) -> None:
    """A dynamic member without an id: it gets one, and from version 4 on has to come back with it."""
    member_id = joining.new_member_id(joining.client_id)
    if joining.api_version < KNOWN_MEMBER_ID_VERSION:
        _add_member(group, joining, member_id, settings, now_ms, result)
    elif len(group.pending_joins) >= PENDING_JOINS_MAX:
        result.response = join_error("", ErrorCode.GROUP_MAX_SIZE_REACHED)
    else:
        group.pending_joins[member_id] = None
        result.schedule(session_timer(group, member_id), joining.request.session_timeout_ms)
        result.response = join_error(member_id, ErrorCode.MEMBER_ID_REQUIRED)


def _join_static(group: ClassicGroup, joining: Join, settings: GroupSettings, now_ms: int, result: Result) -> None:
    """A static member without a member id: it is new, or it came back and takes its old place."""
    instance_id = joining.request.group_instance_id
    assert instance_id is not None
    new_member_id = joining.new_member_id(instance_id)
    old_member_id = group.static_members.get(instance_id)
    if old_member_id is None:
        _add_member(group, joining, new_member_id, settings, now_ms, result)
    else:
        _replace_static(group, joining, group.members[old_member_id], new_member_id, settings, now_ms, result)


def _join_known(group: ClassicGroup, joining: Join, settings: GroupSettings, now_ms: int, result: Result) -> None:
    """A member with an id: one that was just given out, or a member that joins again."""
    member_id, instance_id = joining.request.member_id, joining.request.group_instance_id
    if member_id in group.pending_joins and instance_id is None:
        _add_member(group, joining, member_id, settings, now_ms, result)
        return
    error = group.check_member(member_id, instance_id)
    if error:
        result.response = join_error(member_id, error)
        return
    member = group.members[member_id]
    is_settled = group.state is not ClassicState.PREPARING_REBALANCE
    # A leader of a stable group joins again to have a rebalance: it saw a change that no member's metadata shows.
    wants_rebalance = group.state is ClassicState.STABLE and group.is_leader(member_id)
    if is_settled and not wants_rebalance and member.protocols == joining.protocols:
        # It lost the response, or wants to know: the generation stays.
        result.response = join_response(group, member_id)
        return
    _update_member(group, joining, member, result)
    rebalance(group, settings, now_ms, result)


def _add_member(
    group: ClassicGroup, joining: Join, member_id: str, settings: GroupSettings, now_ms: int, result: Result
) -> None:
    request = joining.request
    member = ClassicMember(
        member_id,
        request.group_instance_id,
        joining.client_id,
        joining.client_host,
        joining.rebalance_timeout_ms,
        request.session_timeout_ms,
        joining.protocols,
    )
    member.is_new = True
    member.join_waiter = joining.waiter
    if group.is_initial_rebalance:
        group.new_member_added = True
    group.add(member, request.protocol_type)
    result.schedule(session_timer(group, member_id), NEW_MEMBER_JOIN_TIMEOUT_MS)
    rebalance(group, settings, now_ms, result)


def _update_member(group: ClassicGroup, joining: Join, member: ClassicMember, result: Result) -> None:
    """What the member says now replaces what it said, and its request waits for the end of the join phase."""
    group.set_protocols(member, joining.protocols)
    member.rebalance_timeout_ms = joining.rebalance_timeout_ms
    member.session_timeout_ms = joining.request.session_timeout_ms
    before = group.park_join(member, joining.waiter)
    # A client that gave up on its first request and sent another: the first still has to be answered.
    result.reply(before, join_error(member.member_id, ErrorCode.REBALANCE_IN_PROGRESS))


def _replace_static(
    group: ClassicGroup,
    joining: Join,
    member: ClassicMember,
    new_member_id: str,
    settings: GroupSettings,
    now_ms: int,
    result: Result,
) -> None:
    """A static member came back under a new id.  In a stable group whose protocol stays no other member is
    disturbed."""
    selected = group.select_protocol(member, joining.protocols)
    if group.state is ClassicState.STABLE and selected is not None and selected == group.protocol_name:
        _replace_in_stable_group(group, joining, member, new_member_id, result)
        return
    _fence(group, member, result)
    group.rename(member, new_member_id)
    _update_member(group, joining, member, result)
    renew_session(group, member, result)
    if group.state is ClassicState.PREPARING_REBALANCE:
        maybe_complete_join(group, now_ms, result)
    else:
        prepare_rebalance(group, settings, now_ms, result)


def _fence(group: ClassicGroup, member: ClassicMember, result: Result) -> None:
    """Another user of this instance id hears so, and its member id is worth nothing any more."""
    fenced = ErrorCode.FENCED_INSTANCE_ID
    result.reply(group.take_join_waiter(member), join_error(member.member_id, fenced))
    result.reply(member.sync_waiter, sync_error(fenced))
    member.sync_waiter = None
    result.cancel(session_timer(group, member.member_id))


def _replace_in_stable_group(
    group: ClassicGroup, joining: Join, member: ClassicMember, new_member_id: str, result: Result
) -> None:
    """Write the member's new id; replaying that renames it, and only then its client gets the answer."""
    old_member_id, old_leader_id = member.member_id, group.leader_id
    protocols, protocol_name = joining.protocols, group.protocol_name
    members = list(group.member_metadata())
    replaced = next(metadata for metadata in members if metadata.member_id == old_member_id)
    replaced.member_id = new_member_id
    replaced.rebalance_timeout = joining.rebalance_timeout_ms
    replaced.session_timeout = joining.request.session_timeout_ms
    replaced.subscription = next(metadata for name, metadata in protocols if name == protocol_name)
    leader_id = new_member_id if group.is_leader(old_member_id) else old_leader_id
    result.records.append(group.record(group.generation_id, group.state_timestamp_ms, members, leader_id))

    def then(_now_ms: int) -> Result:
        group.set_protocols(member, protocols)
        group.learn_subscribed_topics()
        done = Result()
        done.cancel(session_timer(group, old_member_id))
        renew_session(group, member, done)
        if joining.api_version >= SKIP_ASSIGNMENT_SINCE:
            is_leader = group.is_leader(new_member_id)
            done.response = join_response(group, new_member_id, skip_assignment=is_leader)
        else:
            # The old leader's id keeps a client that cannot skip the assignment from making one.
            done.response = join_response(group, new_member_id, leader_id=old_leader_id)
        return done

    result.then = then
