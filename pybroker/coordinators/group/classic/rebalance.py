"""The rebalance of a classic group: everybody joins, a generation forms, the leader assigns.

Owns: what begins the join phase, what ends it, and who hears of it.  Each function changes the group and adds to a
``Result``: replies to parked requests, timers, and the record of a group that everybody left.

Counterpart in Kafka: the classic half of ``GroupMetadataManager``.
"""

from __future__ import annotations

from pybroker.coordinators.group.classic.classic_group import ClassicGroup
from pybroker.coordinators.group.classic.classic_member import ClassicMember
from pybroker.coordinators.group.classic.group_responses import join_error, join_response, sync_error, sync_response
from pybroker.coordinators.group.classic.states import ClassicState, Event
from pybroker.coordinators.group.group_coordinator_settings import GroupSettings
from pybroker.coordinators.group.group_records import read_group_metadata
from pybroker.coordinators.result import Result, TimerKey
from pybroker_protocol.errors import ErrorCode

# A wait for static members of a classic group that begins again whenever it is over, as long as their sessions last, is
# this long at least: a rebalance timeout is the client's to say, and one of 0 would keep the loop busy.
REPEATED_WAIT_MIN_MS = 1_000

# Kinds of timers.  The session of a member; the end of a join phase; the end of the wait for SyncGroups.
SESSION_TIMER = "session"
JOIN_TIMER = "join"
SYNC_TIMER = "sync"


def session_timer(group: ClassicGroup, member_id: str) -> TimerKey:
    return (SESSION_TIMER, group.group_id, member_id)


def join_timer(group: ClassicGroup) -> TimerKey:
    return (JOIN_TIMER, group.group_id, "")


def sync_timer(group: ClassicGroup) -> TimerKey:
    return (SYNC_TIMER, group.group_id, "")


def renew_session(group: ClassicGroup, member: ClassicMember, result: Result) -> None:
    """The member is alive: its session begins anew."""
    result.schedule(session_timer(group, member.member_id), member.session_timeout_ms)


def rebalance(group: ClassicGroup, settings: GroupSettings, now_ms: int, result: Result) -> None:
    """A member joined, changed or left: begin a join phase, or go on with the one that is under way."""
    if group.state is ClassicState.PREPARING_REBALANCE:
        maybe_complete_join(group, now_ms, result)
    else:
        prepare_rebalance(group, settings, now_ms, result)


def prepare_rebalance(group: ClassicGroup, settings: GroupSettings, now_ms: int, result: Result) -> None:
    """Begin a join phase.  An empty group waits a while for more members, any other for all it has."""
    if group.state is ClassicState.COMPLETING_REBALANCE:
        discard_assignments(group, ErrorCode.REBALANCE_IN_PROGRESS, result)
    group.pending_syncs.clear()
    result.cancel(sync_timer(group))
    group.is_initial_rebalance = group.state is ClassicState.EMPTY
    group.transition(Event.REBALANCE, now_ms)
    if group.is_initial_rebalance:
        group.initial_delay_ms = settings.initial_rebalance_delay_ms
        group.initial_remaining_ms = max(group.rebalance_timeout_ms - group.initial_delay_ms, 0)
        result.schedule(join_timer(group), group.initial_delay_ms)
    elif group.has_all_members_joined:
        complete_join(group, now_ms, result)
    else:
        result.schedule(join_timer(group), group.rebalance_timeout_ms)


def maybe_complete_join(group: ClassicGroup, now_ms: int, result: Result) -> None:
    """End the join phase if no member is missing.  The first phase of an empty group always waits for its timer."""
    is_waiting = group.state is ClassicState.PREPARING_REBALANCE and not group.is_initial_rebalance
    if is_waiting and group.has_all_members_joined:
        complete_join(group, now_ms, result)


def on_join_timer(group: ClassicGroup, settings: GroupSettings, now_ms: int, result: Result) -> None:
    """The wait for members is over, unless it is the first one and a new member came while it lasted."""
    if group.state is not ClassicState.PREPARING_REBALANCE:
        return
    if group.is_initial_rebalance and group.new_member_added and group.initial_remaining_ms > 0:
        group.new_member_added = False
        delay_ms = min(settings.initial_rebalance_delay_ms, group.initial_remaining_ms)
        group.initial_remaining_ms = max(group.initial_remaining_ms - group.initial_delay_ms, 0)
        group.initial_delay_ms = delay_ms
        result.schedule(join_timer(group), delay_ms)
    else:
        complete_join(group, now_ms, result)


def complete_join(group: ClassicGroup, now_ms: int, result: Result) -> None:
    """End the join phase: who did not come is out (static members excepted), the others form a generation."""
    result.cancel(join_timer(group))
    for member in group.members_not_joining():
        if not member.is_static:
            group.remove(member.member_id)
            result.cancel(session_timer(group, member.member_id))
    if not group.members:
        become_empty(group, now_ms, result)
    elif not group.elect_joined_leader():
        # Only static members are left and none of them came: wait until one does, or their sessions end.
        result.schedule(join_timer(group), max(group.rebalance_timeout_ms, REPEATED_WAIT_MIN_MS))
    else:
        _form_generation(group, now_ms, result)


def become_empty(group: ClassicGroup, now_ms: int, result: Result) -> None:
    """All members left: a record says so, and its replay makes the group empty."""
    record = group.record(group.generation_id + 1, now_ms, [], None)
    result.records.append(record)
    value = record[1]
    assert value is not None

    def on_failure(failed_ms: int, code: int) -> Result:
        # Without the record a reload brings the last generation back, whose members' sessions then end: harmless.
        # A group that waits for members it does not have would not be.
        group.replay(read_group_metadata(value), failed_ms)
        return Result()

    result.on_failure = on_failure


def _form_generation(group: ClassicGroup, now_ms: int, result: Result) -> None:
    group.begin_generation(now_ms)
    for member in group.members.values():
        waiter = group.take_join_waiter(member)
        result.reply(waiter, join_response(group, member.member_id))
        renew_session(group, member, result)
        member.is_new = False
    result.schedule(sync_timer(group), group.rebalance_timeout_ms)


def propagate_assignments(group: ClassicGroup, result: Result) -> None:
    """Answer every parked SyncGroup with its member's assignment."""
    for member in group.members.values():
        if member.sync_waiter is not None:
            result.reply(member.sync_waiter, sync_response(group, member.assignment))
            member.sync_waiter = None
            # The session may have ended unnoticed while the request held it.
            renew_session(group, member, result)


def discard_assignments(group: ClassicGroup, error_code: int, result: Result) -> None:
    """The generation came to nothing: answer every parked SyncGroup with the error."""
    for member in group.members.values():
        member.assignment = b""
        if member.sync_waiter is not None:
            result.reply(member.sync_waiter, sync_error(error_code))
            member.sync_waiter = None
            renew_session(group, member, result)


def remove_member(group: ClassicGroup, member: ClassicMember, result: Result) -> None:
    """Take a member out of the group; requests of its own that are parked make it join anew if it still lives."""
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    result.reply(group.take_join_waiter(member), join_error("", unknown))
    result.reply(member.sync_waiter, sync_error(unknown))
    member.sync_waiter = None
    group.remove(member.member_id)
    result.cancel(session_timer(group, member.member_id))


def on_session_timer(group: ClassicGroup, member_id: str, settings: GroupSettings, now_ms: int, result: Result) -> None:
    """A member was not heard of for its session timeout, or an id that was given out was not used."""
    member = group.members.get(member_id)
    if member is not None and member.is_held_by_a_request:
        return  # the reply to that request begins the session anew
    if member is not None:
        remove_member(group, member, result)
    else:
        group.remove(member_id)
    if group.state is ClassicState.PREPARING_REBALANCE:
        # The first phase, too: whoever was to be waited for does not come.
        if group.has_all_members_joined:
            complete_join(group, now_ms, result)
    elif member is not None:
        rebalance(group, settings, now_ms, result)


def on_sync_timer(group: ClassicGroup, settings: GroupSettings, now_ms: int, result: Result) -> None:
    """Members that joined but did not ask for their assignment in time are out."""
    is_syncing = group.state in {ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE}
    if not is_syncing or not group.pending_syncs:
        return
    for member_id in list(group.pending_syncs):
        group.remove(member_id)
        result.cancel(session_timer(group, member_id))
    prepare_rebalance(group, settings, now_ms, result)
