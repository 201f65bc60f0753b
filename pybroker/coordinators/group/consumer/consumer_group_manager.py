"""The consumer groups (KIP-848) of one partition of ``__consumer_offsets``.

Owns: finding or making the group that a request is about, also out of a classic one; replaying its records; the
resolutions of regular expressions that are on their way.  What a group does with a request is in the other
``consumer_*`` modules, which group is there in ``shard.groups``.

Counterpart in Kafka: the consumer half of ``GroupMetadataManager``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from pybroker.coordinators.group.classic.classic_group import ClassicGroup
from pybroker.coordinators.group.classic.group_responses import join_error, sync_error
from pybroker.coordinators.group.classic.join_requests import Join
from pybroker.coordinators.group.classic.states import ClassicState
from pybroker.coordinators.group.consumer import classic_members, consumer_heartbeat, member_removal
from pybroker.coordinators.group.consumer.assignment import ASSIGNMENT_TIMER, go_on_assigning
from pybroker.coordinators.group.consumer.consumer_group import ConsumerGroup
from pybroker.coordinators.group.consumer.consumer_heartbeat import Heartbeat
from pybroker.coordinators.group.consumer.consumer_member import JOIN_EPOCH, ConsumerMember
from pybroker.coordinators.group.consumer.consumer_records import (
    GROUP_METADATA,
    second_of_key,
)
from pybroker.coordinators.group.consumer.consumer_requests import describe_error, described, heartbeat_error
from pybroker.coordinators.group.consumer.consumer_settings import ConsumerSettings
from pybroker.coordinators.group.consumer.conversion import downgrade, finish_upgrade, may_downgrade, upgraded
from pybroker.coordinators.group.consumer.member_removal import Context, begin_timers
from pybroker.coordinators.group.consumer.regexes import MayDescribe, Resolution, take_over
from pybroker.coordinators.group.failures import GroupFailure
from pybroker.coordinators.group.group import Group
from pybroker.coordinators.group.group_coordinator_settings import GroupSettings
from pybroker.coordinators.group.group_records import read_group_id
from pybroker.coordinators.group.group_topics import Topics
from pybroker.coordinators.result import Result, TimerKey
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.consumer_group_describe import DescribedGroup
from pybroker_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from pybroker_protocol.messages.leave_group import LeaveGroupRequest
from pybroker_protocol.messages.sync_group import SyncGroupRequest

REGEX_TIMER = "regex"
LONG_TIMERS = frozenset({REGEX_TIMER, ASSIGNMENT_TIMER})


class ConsumerGroupContext:
    """What the consumer groups of all partitions have in common.

    ``new_member_id()`` makes an unused id; ``monotonic_ms()`` is the clock that long work is sliced by.
    """

    __slots__ = ("monotonic_ms", "new_member_id", "settings", "topics")

    def __init__(
        self,
        settings: ConsumerSettings,
        topics: Topics,
        new_member_id: Callable[[], str],
        monotonic_ms: Callable[[], int],
    ) -> None:
        self.settings = settings
        self.topics = topics
        self.new_member_id = new_member_id
        self.monotonic_ms = monotonic_ms


class ConsumerGroupManager:
    """The consumer groups among ``groups``, which holds the groups of all kinds by id."""

    __slots__ = ("_context", "_group_settings", "_groups", "_resolutions", "_shared")

    def __init__(self, groups: dict[str, Group], shared: ConsumerGroupContext, group_settings: GroupSettings) -> None:
        self._groups = groups
        self._shared = shared
        self._group_settings = group_settings
        self._resolutions: dict[str, Resolution] = {}
        self._context = Context(
            shared.settings, shared.topics, shared.new_member_id, self._resolve, self._downgrade_without
        )

    # --- replaying ------------------------------------------------------------------------------------------------

    def replay(self, kind: int, key: bytes, value: bytes | None) -> str | None:
        """Apply a record of a consumer group; returns the group's id when the record removed it."""
        group_id = read_group_id(key)
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            if value is None:
                return None  # a tombstone that outlived what it removed
            # A classic group in its place has nothing but offsets, or was compacted away together with its tombstone.
            group = self._groups[group_id] = ConsumerGroup(group_id)
        if kind == GROUP_METADATA and value is None:
            self._resolutions.pop(group_id, None)
            return group_id
        group.replay(kind, second_of_key(key), value)
        return None

    def topic_id(self, name: str) -> bytes | None:
        """The id of a topic by the image that groups go by."""
        return self._shared.topics.id_of(name)

    # --- life -----------------------------------------------------------------------------------------------------

    def on_loaded(self, group: ConsumerGroup, result: Result) -> None:
        """The log is replayed."""
        begin_timers(group, self._shared.settings, result)

    def on_timer(self, key: TimerKey, now_ms: int) -> Result:
        """A timer of a consumer group expired, or of a group that was one."""
        kind, group_id, member_id = key
        if kind == REGEX_TIMER:
            return self._go_on_resolving(group_id, now_ms)
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            return Result()
        if kind == ASSIGNMENT_TIMER:
            return go_on_assigning(group, self._shared.settings, self._shared.topics, now_ms)
        return member_removal.on_timer(group, kind, member_id, self._context, now_ms)

    def on_unloaded(self) -> None:
        """The partition is lost."""
        self._resolutions.clear()

    # --- ConsumerGroupHeartbeat, ConsumerGroupDescribe ------------------------------------------------------------

    def heartbeat(self, beat: Heartbeat, now_ms: int) -> Result:
        """ConsumerGroupHeartbeat."""
        request = beat.request
        try:
            if request.member_epoch < JOIN_EPOCH:
                return member_removal.leave(self._group(request.group_id), request, self._context, now_ms)
            group = self._groups.get(request.group_id)
            if isinstance(group, ConsumerGroup):
                return consumer_heartbeat.heartbeat(group, beat, self._context, [], now_ms)
            if request.member_epoch > JOIN_EPOCH:
                self._group(request.group_id)
            return self._join_other(group, beat, now_ms)
        except GroupFailure as failure:
            return Result(heartbeat_error(failure.code, failure.message))

    def _group(self, group_id: str) -> ConsumerGroup:
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        what = "not found" if group is None else "is not a consumer group"
        raise GroupFailure(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")

    def _join_other(self, group: Group | None, beat: Heartbeat, now_ms: int) -> Result:
        """A member joins where no consumer group is yet."""
        if not isinstance(group, ClassicGroup):
            new = ConsumerGroup(beat.request.group_id)
            return consumer_heartbeat.heartbeat(new, beat, self._context, [], now_ms)
        if group.state is ClassicState.EMPTY:
            new = ConsumerGroup(group.group_id)
            return consumer_heartbeat.heartbeat(new, beat, self._context, group.tombstones(), now_ms)
        new, records = upgraded(group, self._shared.settings, self._shared.topics)
        result = consumer_heartbeat.heartbeat(new, beat, self._context, records, now_ms)
        finish_upgrade(group, result)
        return result

    def describe(self, group_id: str) -> DescribedGroup:
        """ConsumerGroupDescribe, of one group."""
        try:
            group = self._group(group_id)
        except GroupFailure as failure:
            return describe_error(group_id, failure.code, failure.message)
        return described(group, self._shared.settings.default_assignor, self._shared.topics)

    # --- members of the classic protocol --------------------------------------------------------------------------

    def join(self, group: ConsumerGroup, joining: Join, now_ms: int) -> Result:
        """JoinGroup."""
        settings = self._shared.settings
        present = group.static_member(joining.request.group_instance_id)
        leaves_classic_only = present is not None and may_downgrade(
            group, [present], 1, settings, self._group_settings.max_size
        )
        try:
            if not settings.may_upgrade and not settings.may_downgrade:
                message = "the group migration is disabled"
                raise GroupFailure(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, message)
            return classic_members.join(
                group, joining, self._context, leaves_classic_only, self._downgrade_with, now_ms
            )
        except GroupFailure as failure:
            return Result(join_error("", failure.code))

    def sync(self, group: ConsumerGroup, request: SyncGroupRequest) -> Result:
        """SyncGroup."""
        try:
            return classic_members.sync(group, request, self._shared.topics)
        except GroupFailure as failure:
            return Result(sync_error(failure.code))

    def classic_heartbeat(self, group: ConsumerGroup, request: HeartbeatRequest, now_ms: int) -> Result:
        """Heartbeat."""
        try:
            return classic_members.heartbeat(group, request, self._shared.settings, now_ms)
        except GroupFailure as failure:
            return Result(HeartbeatResponse(throttle_time_ms=0, error_code=failure.code))

    def leave(self, group: ConsumerGroup, request: LeaveGroupRequest, now_ms: int) -> Result:
        """LeaveGroup."""
        return classic_members.leave(group, request, self._context, now_ms)

    # --- becoming a classic group ---------------------------------------------------------------------------------

    def _downgrade_without(
        self, group: ConsumerGroup, gone: Sequence[ConsumerMember], result: Result, now_ms: int
    ) -> bool:
        if not may_downgrade(group, gone, 0, self._shared.settings, self._group_settings.max_size):
            return False
        member_ids = [member.member_id for member in gone]
        return self._downgrade(group, member_ids, None, True, result, now_ms)

    def _downgrade_with(
        self, group: ConsumerGroup, joining: ConsumerMember, rebalance: bool, result: Result, now_ms: int
    ) -> None:
        if not self._downgrade(group, [], joining, rebalance, result, now_ms):
            raise GroupFailure(ErrorCode.INVALID_REQUEST, "A subscription of the group cannot be read.")

    def _downgrade(
        self,
        group: ConsumerGroup,
        gone: Sequence[str],
        joining: ConsumerMember | None,
        rebalance: bool,
        result: Result,
        now_ms: int,
    ) -> bool:
        live = partial(self._classic, group.group_id)
        topics, settings = self._shared.topics, self._group_settings
        return downgrade(group, gone, joining, topics, settings, live, rebalance, result, now_ms)

    def _classic(self, group_id: str) -> ClassicGroup:
        group = self._groups[group_id]
        assert isinstance(group, ClassicGroup)
        return group

    # --- regular expressions --------------------------------------------------------------------------------------

    def _resolve(self, group_id: str, regexes: list[str], may_describe: MayDescribe, result: Result) -> None:
        if regexes and group_id not in self._resolutions:
            self._resolutions[group_id] = Resolution(regexes, self._shared.topics, may_describe)
            result.schedule((REGEX_TIMER, group_id, ""), 0)

    def _go_on_resolving(self, group_id: str, now_ms: int) -> Result:
        resolution = self._resolutions.get(group_id)
        result = Result()
        if resolution is None:
            return result
        if not resolution.advance(self._shared.monotonic_ms):
            result.schedule((REGEX_TIMER, group_id, ""), 0)
            return result
        del self._resolutions[group_id]
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return take_over(group, self._shared.topics, resolution.resolved(now_ms))
        return result
