"""A consumer group (KIP-848): its members, its epochs, its target assignment, and who has which partition.

Owns: the group's data, the bookkeeping that keeps it consistent, and the checks that need nothing else.  Owns no
protocol: what a heartbeat does is in ``consumer_heartbeat``, what classic members do in ``classic_members``.

All that the log has changes in ``replay`` alone.  ``metadata_checked``, ``joins_awaited`` and
``target_assignment_builder`` are forgotten by a reload.

Invariants:
- The group epoch and the epoch of the target assignment only grow; the second never passes the first.
- A partition has one owner: the member that has it, or still has to give it back (``owners``).
- ``topic_counts``, ``regex_counts``, ``assignor_counts`` and ``protocol_counts`` count members; none is zero.
- ``static_members`` maps each instance id to the one member that has it.

Counterpart in Kafka: ``ConsumerGroup`` and ``ModernGroup``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

from pybroker.coordinators.group.assignors.spec import Partitions
from pybroker.coordinators.group.consumer.consumer_member import LEAVE_EPOCH, ConsumerMember
from pybroker.coordinators.group.consumer.consumer_records import (
    CURRENT_MEMBER_ASSIGNMENT,
    GROUP_METADATA,
    MEMBER_METADATA,
    PARTITION_METADATA,
    REGULAR_EXPRESSION,
    TARGET_ASSIGNMENT_MEMBER,
    TARGET_ASSIGNMENT_METADATA,
    ResolvedRegex,
    read_current_assignment,
    read_group_metadata,
    read_member_metadata,
    read_regular_expression,
    read_target_member,
    read_target_metadata,
    tombstone,
)
from pybroker.coordinators.group.consumer.partition_owners import PartitionOwners
from pybroker.coordinators.group.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from pybroker.coordinators.group.group import Group
from pybroker.coordinators.result import Record
from pybroker_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from pybroker.coordinators.group.consumer.target_assignment_builder import TargetAssignmentBuilder

# The epochs of a group that has none of its own yet.
FIRST_EPOCH = 1
NO_ASSIGNMENT_EPOCH = -1
NEVER_CHECKED = -1
# The version of OffsetCommit that knows member epochs.
MEMBER_EPOCH_VERSION = 9

NOTHING: Partitions = {}


class ConsumerState(StrEnum):
    """The states, by the names that ListGroups shows.

    - ``EMPTY``: there are no members.
    - ``ASSIGNING``: the target assignment is behind the group epoch.
    - ``RECONCILING``: some member does not have yet what the target gives it.
    - ``STABLE``: all members have what the target gives them.
    - ``DEAD``: the group is gone.
    """

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class ConsumerGroup(Group):
    """One group; ``members`` is in order of joining."""

    __slots__ = (
        "assignment_epoch",
        "assignment_timestamp_ms",
        "assignor_counts",
        "classic_members",
        "group_epoch",
        "group_id",
        "has_partition_metadata",
        "joins_awaited",
        "members",
        "metadata_checked",
        "metadata_hash",
        "owners",
        "protocol_counts",
        "regex_counts",
        "resolved",
        "static_members",
        "target",
        "target_assignment_builder",
        "topic_counts",
    )

    group_type = "consumer"

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.group_epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_timestamp_ms = 0
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}
        self.target: dict[str, Partitions] = {}
        self.resolved: dict[str, ResolvedRegex] = {}
        self.topic_counts: dict[str, int] = {}
        self.regex_counts: dict[str, int] = {}
        self.assignor_counts: dict[str, int] = {}
        self.protocol_counts: dict[str, int] = {}
        self.classic_members = 0
        # Kafka 4.0 wrote what is a hash now; the record is taken back when the group changes.
        self.has_partition_metadata = False
        self.owners = PartitionOwners()
        # (version of the topics, group epoch) for which the metadata hash is known to be right.
        self.metadata_checked = (NEVER_CHECKED, 0)
        # Classic members that are to join again, and have a timer for it.
        self.joins_awaited: set[str] = set()
        # The next target, while it is being worked out.
        self.target_assignment_builder: TargetAssignmentBuilder | None = None

    # --- state ----------------------------------------------------------------------------------------------------

    @property
    def state(self) -> ConsumerState:
        """Worked out when asked for, which is rare; members change often."""
        if not self.members:
            return ConsumerState.EMPTY
        if self.group_epoch > self.assignment_epoch:
            return ConsumerState.ASSIGNING
        epoch = self.assignment_epoch
        settled = all(member.is_reconciled_to(epoch) for member in self.members.values())
        return ConsumerState.STABLE if settled else ConsumerState.RECONCILING

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def protocol_type_name(self) -> str:
        return CONSUMER_PROTOCOL_TYPE

    @property
    def is_deletable(self) -> bool:
        return not self.members

    # --- asking ---------------------------------------------------------------------------------------------------

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """The member that has the instance id."""
        member_id = self.static_members.get(instance_id or "")
        return None if member_id is None else self.members.get(member_id)

    def predecessor(self, member: ConsumerMember) -> ConsumerMember | None:
        """Whose place the member takes, its own or that of the one with its instance id; None if it is new."""
        return self.members.get(member.member_id) or self.static_member(member.instance_id)

    def target_of(self, member: ConsumerMember) -> Partitions:
        """What the target gives the member; a static one takes over what its predecessor had."""
        if member.instance_id is None:
            return self.target.get(member.member_id, NOTHING)
        predecessor = self.static_members.get(member.instance_id)
        return NOTHING if predecessor is None else self.target.get(predecessor, NOTHING)

    def subscription(self, member: ConsumerMember) -> frozenset[str]:
        """The names of all topics that the member subscribes to; an unresolved regular expression matches none."""
        names = member.subscribed_topic_names
        resolved = self.resolved.get(member.subscribed_topic_regex) if member.subscribed_topic_regex else None
        if resolved is None:
            return names
        return resolved.topics if not names else names | resolved.topics

    def subscribed_topics(
        self, removed: Iterable[ConsumerMember] = (), added: Iterable[ConsumerMember] = ()
    ) -> set[str]:
        """The names of all topics that members subscribe to, as if some had gone and others come."""
        names, regexes = dict(self.topic_counts), dict(self.regex_counts)
        for members, by in ((removed, -1), (added, 1)):
            for member in members:
                _count(names, member.subscribed_topic_names, by)
                _count(regexes, _regex(member), by)
        topics = {name for name, count in names.items() if count > 0}
        for regex, count in regexes.items():
            if count > 0 and regex in self.resolved:
                topics |= self.resolved[regex].topics
        return topics

    def preferred_assignor(
        self, removed: ConsumerMember | None = None, added: ConsumerMember | None = None
    ) -> str | None:
        """The assignor that most members name, as if one had changed; None when no member names any."""
        counts = dict(self.assignor_counts)
        if removed is not None:
            _count(counts, _assignor(removed), -1)
        if added is not None:
            _count(counts, _assignor(added), 1)
        return max(counts, key=counts.__getitem__, default=None)

    def supports(self, protocol_type: str, protocols: Iterable[str]) -> bool:
        """Whether a classic member with these protocols may join: all others must know one of them."""
        names = list(protocols)
        if protocol_type != CONSUMER_PROTOCOL_TYPE:
            return False
        return any(self.protocol_counts.get(name, 0) == self.classic_members for name in names)

    def waits_for_unreleased(self, member: ConsumerMember) -> bool:
        """Whether something that the target gives the member is still with another."""
        for topic_id, partitions in self.target.get(member.member_id, NOTHING).items():
            has = member.assigned.get(topic_id, {})
            if any(index not in has and self.owners.of(topic_id, index) is not None for index in partitions):
                return True
        return False

    def is_metadata_due(self, topics_version: int) -> bool:
        """Whether the metadata hash has to be worked out again: topics changed, or the record of it was not written."""
        version, epoch = self.metadata_checked
        return topics_version != version or self.group_epoch < epoch

    # --- replaying ------------------------------------------------------------------------------------------------

    def replay(self, kind: int, second: str, value: bytes | None) -> None:
        """Apply one record of the group; ``second`` is the member id or regular expression that its key names."""
        if kind == GROUP_METADATA:
            if value is not None:
                decoded = read_group_metadata(value)
                self.group_epoch, self.metadata_hash = decoded.epoch, decoded.metadata_hash
        elif kind == MEMBER_METADATA:
            self._replay_member(second, value)
        elif kind == CURRENT_MEMBER_ASSIGNMENT:
            self._replay_current(second, value)
        elif kind == TARGET_ASSIGNMENT_MEMBER:
            if value is None:
                self.target.pop(second, None)
            else:
                self.target[second] = read_target_member(value)
        elif kind == TARGET_ASSIGNMENT_METADATA:
            self._replay_target_metadata(value)
        elif kind == REGULAR_EXPRESSION:
            if value is None:
                self.resolved.pop(second, None)
            else:
                self.resolved[second] = read_regular_expression(value)
        elif kind == PARTITION_METADATA:
            self.has_partition_metadata = value is not None

    def _replay_member(self, member_id: str, value: bytes | None) -> None:
        if value is not None:
            before = self.members.get(member_id) or ConsumerMember(member_id)
            self._put(read_member_metadata(value, before))
            return
        member = self.members.pop(member_id, None)
        if member is not None:
            self._account(member, -1)
            self.owners.release(member)
            if self.static_members.get(member.instance_id or "") == member_id:
                del self.static_members[member.instance_id or ""]
            self.joins_awaited.discard(member_id)

    def _replay_current(self, member_id: str, value: bytes | None) -> None:
        member = self.members.get(member_id)
        if value is not None:
            self._put(read_current_assignment(value, member or ConsumerMember(member_id)))
        elif member is not None:
            # The member's own tombstone follows.
            gone = {"previous_member_epoch": LEAVE_EPOCH, "assigned": {}, "pending_revocation": {}}
            self._put(member._replace(member_epoch=LEAVE_EPOCH, **gone))  # type: ignore[arg-type]

    def _replay_target_metadata(self, value: bytes | None) -> None:
        if value is None:
            self.assignment_epoch, self.assignment_timestamp_ms = NO_ASSIGNMENT_EPOCH, 0
            return
        decoded = read_target_metadata(value)
        self.assignment_epoch, self.assignment_timestamp_ms = decoded.assignment_epoch, decoded.assignment_timestamp

    # --- bookkeeping ----------------------------------------------------------------------------------------------

    def _put(self, member: ConsumerMember) -> None:
        before = self.members.get(member.member_id)
        self.members[member.member_id] = member
        if before is None:
            self._account(member, 1)
        elif _counted(before) != _counted(member):
            self._account(before, -1)
            self._account(member, 1)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if before is not None:
            self.owners.release(before)
        self.owners.take(member)

    def _account(self, member: ConsumerMember, by: int) -> None:
        _count(self.topic_counts, member.subscribed_topic_names, by)
        _count(self.regex_counts, _regex(member), by)
        _count(self.assignor_counts, _assignor(member), by)
        if member.classic is not None:
            _count(self.protocol_counts, dict(member.classic.protocols), by)  # a client may name one twice
            self.classic_members += by

    # --- records --------------------------------------------------------------------------------------------------

    def tombstones(self, renamed: Mapping[str, str] | None = None) -> list[Record]:
        """The records that remove the group; ``renamed`` has the new ids of members that were just replaced."""
        names = renamed or {}
        member_ids = [names.get(member_id, member_id) for member_id in self.members]
        group_id = self.group_id
        return [
            *(tombstone(CURRENT_MEMBER_ASSIGNMENT, group_id, member_id) for member_id in member_ids),
            *(tombstone(TARGET_ASSIGNMENT_MEMBER, group_id, member_id) for member_id in member_ids),
            tombstone(TARGET_ASSIGNMENT_METADATA, group_id),
            *(tombstone(MEMBER_METADATA, group_id, member_id) for member_id in member_ids),
            *(tombstone(REGULAR_EXPRESSION, group_id, regex) for regex in self.resolved),
            tombstone(PARTITION_METADATA, group_id),
            tombstone(GROUP_METADATA, group_id),
        ]

    # --- checks ---------------------------------------------------------------------------------------------------

    def check_offset_commit(
        self, member_id: str, group_instance_id: str | None, generation_id: int, *, is_transactional: bool = False
    ) -> int:
        if generation_id < 0 and not self.members:
            return 0  # an admin client, or a consumer that assigns its partitions itself
        if is_transactional and generation_id == -1 and not member_id and group_instance_id is None:
            return 0  # a producer that says nothing of its consumer
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return 0 if generation_id == member.member_epoch else _stale(member)

    def accepts_older_commit(self, member_id: str, generation_id: int, partitions: Iterable[tuple[bytes, int]]) -> bool:
        member = self.members.get(member_id)
        if member is None or generation_id > member.member_epoch:
            return False
        epochs = (member.assignment_epoch(topic_id, partition) for topic_id, partition in partitions)
        return all(epoch is not None and generation_id >= epoch for epoch in epochs)

    def offset_commit_version_min(self, member_id: str) -> int:
        member = self.members.get(member_id)
        return 0 if member is None or member.classic is not None else MEMBER_EPOCH_VERSION

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> int:
        if member_id is None and member_epoch < 0:
            return 0
        member = self.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return 0 if member_epoch == member.member_epoch else _stale(member)

    def check_offset_delete(self) -> int:
        return 0

    def check_delete(self) -> int:
        return ErrorCode.NON_EMPTY_GROUP if self.members else 0

    def is_subscribed_to(self, topic: str) -> bool:
        if topic in self.topic_counts:
            return True
        return any(topic in self.resolved[regex].topics for regex in self.regex_counts if regex in self.resolved)

    def offsets_expire_from(self, commit_timestamp_ms: int) -> int | None:
        return commit_timestamp_ms


def _counted(member: ConsumerMember) -> tuple[object, ...]:
    """What of a member the group's counts depend on."""
    return member.subscribed_topic_names, member.subscribed_topic_regex, member.server_assignor, member.classic


def _stale(member: ConsumerMember) -> int:
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION


def _regex(member: ConsumerMember) -> tuple[str, ...]:
    return (member.subscribed_topic_regex,) if member.subscribed_topic_regex else ()


def _assignor(member: ConsumerMember) -> tuple[str, ...]:
    return () if member.server_assignor is None else (member.server_assignor,)


def _count(counts: dict[str, int], names: Iterable[str], by: int) -> None:
    for name in names:
        count = counts.get(name, 0) + by
        if count:
            counts[name] = count
        else:
            del counts[name]
