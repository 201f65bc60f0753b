"""One partition's worth of the group coordinator: its groups and their committed offsets.

Owns: finding the group that a request is about, replaying records, deletion and expiry.  What a group does with a
request is in ``classic/``, what offsets do in ``offsets/``.

Invariant: a group exists for every committed offset. One that only keeps offsets (a "simple" group) comes into being
when its first offset is replayed and has no record of its own.

A group's tombstone never removes offsets.

Counterpart in Kafka: ``GroupCoordinatorShard``.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from typing import ClassVar

from pybroker.coordinators.group.classic import join_requests, member_requests
from pybroker.coordinators.group.classic.classic_group import ClassicGroup
from pybroker.coordinators.group.classic.group_responses import join_error, sync_error
from pybroker.coordinators.group.classic.rebalance import (
    JOIN_TIMER,
    SESSION_TIMER,
    SYNC_TIMER,
    on_join_timer,
    on_session_timer,
    on_sync_timer,
    prepare_rebalance,
    renew_session,
)
from pybroker.coordinators.group.consumer.consumer_group import ConsumerGroup
from pybroker.coordinators.group.consumer.consumer_group_manager import (
    LONG_TIMERS,
    ConsumerGroupContext,
    ConsumerGroupManager,
)
from pybroker.coordinators.group.consumer.consumer_records import KINDS as CONSUMER_KINDS
from pybroker.coordinators.group.group import Group
from pybroker.coordinators.group.group_coordinator_settings import GroupSettings
from pybroker.coordinators.group.group_records import (
    GROUP_METADATA,
    LEGACY_OFFSET_COMMIT,
    OFFSET_COMMIT,
    key_kind,
    offset_key_prefix,
    read_group_id,
    read_group_metadata,
    read_offset_key_prefix,
    read_partition,
)
from pybroker.coordinators.group.offsets import lowered_offsets, offset_operations, transactional_offsets
from pybroker.coordinators.group.offsets.lowered_offsets import HeldOffset
from pybroker.coordinators.group.offsets.offset_store import PARTITION_BYTES, OffsetStore
from pybroker.coordinators.group.offsets.repeated_commit import CommittedPositions, RepeatedCommit
from pybroker.coordinators.result import Result, TimerKey, Waiter
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.java_order import in_timeline_order, string_hash
from pybroker_protocol.messages.delete_groups import DeletableGroupResult
from pybroker_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from pybroker_protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from pybroker_protocol.messages.list_groups import ListedGroup
from pybroker_protocol.messages.offset_commit import OffsetCommitRequest
from pybroker_protocol.messages.offset_delete import OffsetDeleteRequest
from pybroker_protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from pybroker_protocol.messages.sync_group import SyncGroupRequest
from pybroker_protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from pybroker_protocol.records import NO_PRODUCER_ID

# Groups whose offsets one operation looks at for expiry, and tombstones that one batch may hold: both keep the
# operation to a few milliseconds and the batch far below max.message.bytes.  The next operation goes on from there.
EXPIRY_GROUPS_PER_OPERATION = 256
TOMBSTONES_PER_BATCH = 2_000

logger = logging.getLogger(__name__)

EXPIRY_TIMER: TimerKey = ("expiry", "", "")


class GroupCoordinatorShard:
    """The groups of one partition of ``__consumer_offsets``; see ``CoordinatorShard`` for how it is driven."""

    __slots__ = ("_expiry_queue", "_settings", "consumers", "groups", "kept_groups", "offsets")

    long_timers: ClassVar[frozenset[str]] = LONG_TIMERS

    def __init__(self, settings: GroupSettings, shared: ConsumerGroupContext) -> None:
        self._settings = settings
        self.groups: dict[str, Group] = {}
        self.consumers = ConsumerGroupManager(self.groups, shared, settings)
        self.offsets = OffsetStore()
        # Groups with records of kinds that this version does not serve (share, streams): what is in the log
        # of them stays there, so neither the groups nor their offsets expire.
        self.kept_groups: set[str] = set()
        self._expiry_queue: list[str] = []

    # --- replaying ------------------------------------------------------------------------------------------------

    def replay(self, key: bytes, value: bytes | None, offset: int, producer_id: int, now_ms: int) -> None:
        """See ``CoordinatorShard.replay``."""
        topic = self.offsets.find(key[:-PARTITION_BYTES])
        if topic is not None and value is not None and producer_id == NO_PRODUCER_ID:
            # The common case, an offset of a topic that the group has committed to before.
            topic.values[read_partition(key)] = value
            if self.offsets.has_open_transactions:
                self.offsets.supersede_pending(key, offset)
            return
        kind = key_kind(key)
        if kind == GROUP_METADATA:
            self._replay_group(read_group_id(key), value, now_ms)
        elif kind in {OFFSET_COMMIT, LEGACY_OFFSET_COMMIT}:
            self._replay_offset(key, value, offset, producer_id, now_ms)
        elif kind in CONSUMER_KINDS:
            removed = self.consumers.replay(kind, key, value)
            if removed is not None:
                self._forget_group(removed, now_ms)
        elif kind >= 0 and value is not None:
            self.kept_groups.add(read_group_id(key))

    def _replay_group(self, group_id: str, value: bytes | None, now_ms: int) -> None:
        group = self.groups.get(group_id)
        if value is None:
            if isinstance(group, ClassicGroup):
                waiters = group.unload(now_ms)
                assert not waiters, "a group is deleted only when no request waits in it"
                self._forget_group(group_id, now_ms)
            return
        if not isinstance(group, ClassicGroup):
            group = self.groups[group_id] = ClassicGroup(group_id, now_ms)
        group.replay(read_group_metadata(value), now_ms)

    def _forget_group(self, group_id: str, now_ms: int) -> None:
        """The group is gone; one that only keeps offsets is left if it has any: its members changed the protocol."""
        del self.groups[group_id]
        if self.offsets.topics(group_id):
            self.groups[group_id] = ClassicGroup(group_id, now_ms)

    def _replay_offset(self, key: bytes, value: bytes | None, offset: int, producer_id: int, now_ms: int) -> None:
        prefix, partition = key[:-PARTITION_BYTES], read_partition(key)
        group_id, topic = read_offset_key_prefix(prefix)
        prefix = offset_key_prefix(group_id, topic)  # the legacy kind of key becomes the usual one
        if value is None:
            self.offsets.remove(prefix, partition)
            return
        if group_id not in self.groups:
            self.groups[group_id] = ClassicGroup(group_id, now_ms)
        key = prefix + key[-PARTITION_BYTES:]
        if producer_id != NO_PRODUCER_ID:
            self.offsets.add_pending(producer_id, key, value, offset)
            return
        topic_offsets = self.offsets.find(prefix) or self.offsets.add_topic(prefix)
        topic_offsets.values[partition] = value
        self.offsets.supersede_pending(key, offset)

    def replay_end_transaction(self, producer_id: int, committed: bool) -> None:
        """See ``CoordinatorShard.replay_end_transaction``."""
        for key, value, record_offset in self.offsets.end_transaction(producer_id, committed):
            self.replay(key, value, record_offset, NO_PRODUCER_ID, 0)

    # --- life -----------------------------------------------------------------------------------------------------

    def on_loaded(self, now_ms: int) -> Result:
        """Every member's session begins anew, because no member could send heartbeats meanwhile."""
        result = Result()
        result.schedule(EXPIRY_TIMER, self._settings.offsets_retention_check_interval_ms)
        for group in self.groups.values():
            if isinstance(group, ConsumerGroup):
                self.consumers.on_loaded(group, result)
            if isinstance(group, ClassicGroup) and group.members:
                for member in group.members.values():
                    renew_session(group, member, result)
                if group.is_rebalance_due or len(group.members) > self._settings.max_size:
                    prepare_rebalance(group, self._settings, now_ms, result)
        return result

    def on_timer(self, key: TimerKey, now_ms: int) -> Result:
        """See ``CoordinatorShard.on_timer``."""
        if key == EXPIRY_TIMER:
            return self._expire(now_ms)
        kind, group_id, member_id = key
        result = Result()
        group = self.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            # A consumer group's timer, or that of a group that was deleted meanwhile.
            return self.consumers.on_timer(key, now_ms)
        if kind == SESSION_TIMER:
            on_session_timer(group, member_id, self._settings, now_ms, result)
        elif kind == JOIN_TIMER:
            on_join_timer(group, self._settings, now_ms, result)
        elif kind == SYNC_TIMER:
            on_sync_timer(group, self._settings, now_ms, result)
        else:
            return self.consumers.on_timer(key, now_ms)  # it was a consumer group when the timer was set
        return result

    def on_unloaded(self, now_ms: int) -> list[Waiter]:
        """See ``CoordinatorShard.on_unloaded``."""
        waiters: list[Waiter] = []
        for group in self.groups.values():
            if isinstance(group, ClassicGroup):
                waiters += group.unload(now_ms)
        self.groups.clear()
        self.consumers.on_unloaded()
        self.offsets = OffsetStore()
        return waiters

    # --- membership -----------------------------------------------------------------------------------------------

    def join(self, joining: join_requests.Join, now_ms: int) -> Result:
        """JoinGroup.  A group that does not exist is written first, then joined."""
        request = joining.request
        present = self.groups.get(request.group_id)
        if isinstance(present, ClassicGroup):
            return join_requests.join(present, joining, self._settings, now_ms)
        if isinstance(present, ConsumerGroup) and present.members:
            return self.consumers.join(present, joining, now_ms)
        if request.member_id:
            return Result(join_error(request.member_id, ErrorCode.UNKNOWN_MEMBER_ID))
        group = ClassicGroup(request.group_id, now_ms)
        if not group.supports(request.protocol_type, joining.protocols):
            return Result(join_error("", ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        result = Result(records=[group.record(0, now_ms, [], None)])
        if present is not None:
            result.records = [*present.tombstones(), *result.records]
        result.then = lambda then_ms: self.join(joining, then_ms)
        return result

    def sync(self, request: SyncGroupRequest, waiter: Waiter, now_ms: int) -> Result:
        """SyncGroup."""
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup) and group.members:
            return self.consumers.sync(group, request)
        if not isinstance(group, ClassicGroup):
            return Result(sync_error(ErrorCode.UNKNOWN_MEMBER_ID))
        return member_requests.sync(group, request, waiter, self._settings, now_ms)

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> Result:
        """Heartbeat."""
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return self.consumers.classic_heartbeat(group, request, now_ms)
        if not isinstance(group, ClassicGroup):
            return Result(HeartbeatResponse(throttle_time_ms=0, error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        return member_requests.heartbeat(group, request)

    def leave(self, request: LeaveGroupRequest, now_ms: int) -> Result:
        """LeaveGroup."""
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return self.consumers.leave(group, request, now_ms)
        if isinstance(group, ClassicGroup):
            return member_requests.leave(group, request, self._settings, now_ms)
        members = [
            MemberResponse(
                member_id=identity.member_id,
                group_instance_id=identity.group_instance_id,
                error_code=ErrorCode.UNKNOWN_MEMBER_ID,
            )
            for identity in request.members
        ]
        return Result(LeaveGroupResponse(throttle_time_ms=0, error_code=0, members=members))

    # --- offsets --------------------------------------------------------------------------------------------------

    def commit_offsets(self, request: OffsetCommitRequest, api_version: int, now_ms: int) -> Result:
        """OffsetCommit."""
        group = self.groups.get(request.group_id)
        return offset_operations.commit_offsets(group, self.offsets, request, api_version, self._settings, now_ms)

    def commit_offsets_again(
        self, commit: RepeatedCommit, requests: Sequence[CommittedPositions], now_ms: int
    ) -> Result:
        """OffsetCommits that repeat an earlier one with other offsets; the response is one error code for all."""
        group = self.groups.get(commit.request.group_id)
        return offset_operations.commit_offsets_again(group, commit, requests, now_ms)

    def commit_transactional_offsets(self, request: TxnOffsetCommitRequest, api_version: int, now_ms: int) -> Result:
        """TxnOffsetCommit."""
        group = self.groups.get(request.group_id)
        return transactional_offsets.commit_transactional_offsets(
            group, self.offsets, request, api_version, self._settings, now_ms
        )

    def fetch_offsets(self, request: OffsetFetchRequestGroup, require_stable: bool) -> OffsetFetchResponseGroup:
        """OffsetFetch, of one group."""
        group = self.groups.get(request.group_id)
        return offset_operations.fetch_offsets(group, self.offsets, request, require_stable, self.consumers.topic_id)

    def delete_offsets(self, request: OffsetDeleteRequest) -> Result:
        """OffsetDelete."""
        return offset_operations.delete_offsets(self.groups.get(request.group_id), self.offsets, request)

    def forget_topics(self, topics: Iterable[str]) -> Result:
        """Topics were deleted: so are all offsets for them, committed or not, a batch of tombstones at a time.

        Each full batch has a turn of the loop: there may be hundreds of groups with a thousand partitions each.
        """
        result = Result()
        names = list(topics)
        for name in names:
            for offsets in self.offsets.of_topic(name):
                result.records += [offsets.tombstone(partition) for partition in offsets.values]
                if len(result.records) >= TOMBSTONES_PER_BATCH:
                    result.in_later_turn = True
                    result.then = lambda _now_ms: self.forget_topics(names)
                    return result
        tombstones = {key for key, _ in result.records}
        unstable = sorted(self.offsets.unstable_keys_of_topics(names) - tombstones)
        result.records += [(key, None) for key in unstable[:TOMBSTONES_PER_BATCH]]
        if len(unstable) > TOMBSTONES_PER_BATCH:
            result.in_later_turn = True
            result.then = lambda _now_ms: self.forget_topics(names)
        return result

    def offsets_in(self, topics: Collection[str]) -> list[HeldOffset]:
        """What all groups have committed of these topics."""
        return lowered_offsets.offsets_in(self.offsets, topics)

    def lower_offsets(self, lowered: Sequence[tuple[HeldOffset, int]], now_ms: int) -> Result:
        """Commit the offset beside each of these, where it is committed still."""
        return lowered_offsets.lower_offsets(self.offsets, lowered, now_ms)

    # --- groups ---------------------------------------------------------------------------------------------------

    def list_groups(self, states: set[str], types: set[str]) -> list[ListedGroup]:
        """Groups in these states and of these types (lower case), in Kafka's order; an empty set stands for all."""
        return [
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type_name,
                group_state=group.state_name,
                group_type=group.group_type,
            )
            for group in in_timeline_order(self.groups.values(), _hash_of)
            if (not states or group.state_name.lower() in states) and (not types or group.group_type in types)
        ]

    def describe(self, group_id: str) -> Group | None:
        """The group of that id, to be described by the caller."""
        return self.groups.get(group_id)

    def delete_group(self, group_id: str) -> Result:
        """DeleteGroups, of one group: the group with all its offsets, if it has no member."""
        group = self.groups.get(group_id)
        error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.check_delete()
        result = Result(DeletableGroupResult(group_id=group_id, error_code=error))
        if not error and group is not None:
            result.records = [*offset_operations.all_tombstones(self.offsets, group_id), *group.tombstones()]
        return result

    def _expire(self, now_ms: int) -> Result:
        """Remove expired offsets, and groups that have no member and no offset left, some groups at a time."""
        result = Result()
        if not self._expiry_queue:
            self._expiry_queue = list(self.groups)
        examined = 0
        while self._expiry_queue and examined < EXPIRY_GROUPS_PER_OPERATION:
            group = self.groups.get(self._expiry_queue.pop())
            examined += 1
            if group is not None and group.group_id not in self.kept_groups:
                self._expire_group(group, now_ms, result)
            if len(result.records) >= TOMBSTONES_PER_BATCH:
                break
        interval_ms = self._settings.offsets_retention_check_interval_ms
        result.schedule(EXPIRY_TIMER, 0 if self._expiry_queue else interval_ms)
        return result

    def _expire_group(self, group: Group, now_ms: int, result: Result) -> None:
        records, nothing_left = offset_operations.expired_tombstones(group, self.offsets, self._settings, now_ms)
        result.records += records
        if nothing_left and group.is_deletable:
            result.records += group.tombstones()


def _hash_of(group: Group) -> int:
    return string_hash(group.group_id)
