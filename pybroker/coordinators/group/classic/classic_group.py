"""A classic group: its members, its generation and its state.

Owns: the group's data, the bookkeeping that keeps it consistent, and the checks that need nothing else.  Owns no
protocol: who may do what when is in ``join_requests``, ``rebalance`` and ``member_requests``.

What a reload brings back changes in ``replay`` alone: the assignments with the generation they belong to, and the
members that the log knows.  Joining members, the generation in the making and parked requests are not in the log.

Invariants:
- ``static_members`` maps each instance id to the one member that has it.
- ``protocol_counts[name]`` is the number of members that support the protocol.
- ``members_joining`` is the number of members with a parked JoinGroup.
- The leader, when there is one, is a member.
- A generation that members have got never comes again for another set of members.

Counterpart in Kafka: ``ClassicGroup``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pybroker.coordinators.group.classic.classic_member import ClassicMember, Protocols
from pybroker.coordinators.group.classic.states import TRANSITIONS, ClassicState, Event
from pybroker.coordinators.group.consumer_protocol import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from pybroker.coordinators.group.group import Group
from pybroker.coordinators.group.group_records import group_metadata_record, group_metadata_tombstone
from pybroker.coordinators.result import Record, Waiter
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.records_group import GroupMetadataValue, MemberMetadata

# In a record: of brokers before 2.1, and of a group whose members have to join anew before anything is given to them.
NO_TIMESTAMP = -1


class ClassicGroup(Group):
    """One group; ``members`` is in order of joining."""

    __slots__ = (
        "generation_id",
        "group_id",
        "initial_delay_ms",
        "initial_remaining_ms",
        "is_initial_rebalance",
        "leader_id",
        "members",
        "members_joining",
        "new_member_added",
        "pending_joins",
        "pending_syncs",
        "protocol_counts",
        "protocol_name",
        "protocol_type",
        "state",
        "state_timestamp_ms",
        "static_members",
        "subscribed_topics",
    )

    group_type = "classic"

    def __init__(self, group_id: str, now_ms: int) -> None:
        self.group_id = group_id
        self.state = ClassicState.EMPTY
        self.state_timestamp_ms = now_ms
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        self.protocol_counts: dict[str, int] = {}
        self.members_joining = 0
        # Ids that were given out with MEMBER_ID_REQUIRED and not used yet; a dict because an empty one is small.
        self.pending_joins: dict[str, None] = {}
        self.pending_syncs: dict[str, None] = {}
        self.subscribed_topics: frozenset[str] | None = None
        # The first rebalance of an empty group waits for more members; each newcomer extends the wait.
        self.is_initial_rebalance = False
        self.new_member_added = False
        self.initial_delay_ms = 0
        self.initial_remaining_ms = 0

    # --- state ----------------------------------------------------------------------------------------------------

    def transition(self, event: Event, now_ms: int) -> None:
        """Move to the state that the table has for the event."""
        self.state = TRANSITIONS[self.state, event]
        self.state_timestamp_ms = now_ms

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def protocol_type_name(self) -> str:
        return self.protocol_type or ""

    @property
    def is_deletable(self) -> bool:
        return self.state is ClassicState.EMPTY and not self.pending_joins

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    # --- members --------------------------------------------------------------------------------------------------

    def is_leader(self, member_id: str) -> bool:
        return self.leader_id == member_id

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest that any member wants others to wait for it."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def has_all_members_joined(self) -> bool:
        return self.members_joining == len(self.members) and not self.pending_joins

    def members_not_joining(self) -> list[ClassicMember]:
        return [member for member in self.members.values() if member.join_waiter is None]

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        """Take in a member; the first one decides the protocol type, and leads until another is elected."""
        assert member.member_id not in self.members
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.static_members
            self.static_members[member.group_instance_id] = member.member_id
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count(member.protocols, 1)
        if member.join_waiter is not None:
            self.members_joining += 1
        self.pending_joins.pop(member.member_id, None)

    def remove(self, member_id: str) -> None:
        """Forget a member, or an id that was only given out; the oldest of the others leads if the leader goes."""
        self.pending_joins.pop(member_id, None)
        self.pending_syncs.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._count(member.protocols, -1)
        if member.join_waiter is not None:
            self.members_joining -= 1
        if member.group_instance_id is not None:
            del self.static_members[member.group_instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)

    def rename(self, member: ClassicMember, new_member_id: str) -> None:
        """A static member came back: it keeps its place and its assignment under a new id."""
        assert member.group_instance_id is not None
        old_member_id = member.member_id
        renamed = {new_member_id if key == old_member_id else key: value for key, value in self.members.items()}
        self.members = renamed
        member.member_id = new_member_id
        member.is_new = False  # its client has shown that it can find the group again
        self.static_members[member.group_instance_id] = new_member_id
        if old_member_id in self.pending_syncs:
            # The new id has to ask for the assignment.  Kafka goes on waiting for the old one, then rebalances.
            self.pending_syncs = {new_member_id if key == old_member_id else key: None for key in self.pending_syncs}
        if self.leader_id == old_member_id:
            self.leader_id = new_member_id

    def set_protocols(self, member: ClassicMember, protocols: Protocols) -> None:
        """A member joined anew: the protocols that it supports now replace those that it supported."""
        self._count(member.protocols, -1)
        member.protocols = protocols
        self._count(protocols, 1)

    def park_join(self, member: ClassicMember, waiter: Waiter) -> Waiter | None:
        """Let the member wait for the end of the join phase; returns the request that waited before, if any."""
        before = member.join_waiter
        if before is None:
            self.members_joining += 1
        member.join_waiter = waiter
        return before

    def take_join_waiter(self, member: ClassicMember) -> Waiter | None:
        """The member's parked JoinGroup, which is parked no longer."""
        waiter = member.join_waiter
        if waiter is not None:
            self.members_joining -= 1
            member.join_waiter = None
        return waiter

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader is a member that has joined; False when there is none."""
        leader = self.members.get(self.leader_id or "")
        if leader is not None and leader.join_waiter is None:
            joined = next((member for member in self.members.values() if member.join_waiter is not None), None)
            if joined is None:
                return False
            self.leader_id = joined.member_id
        return leader is not None

    # --- protocols ------------------------------------------------------------------------------------------------

    def _count(self, protocols: Protocols, by: int) -> None:
        counts = self.protocol_counts
        for name in dict(protocols):  # a client may name one twice
            count = counts.get(name, 0) + by
            if count:
                counts[name] = count
            else:
                del counts[name]

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols may join."""
        if self.state is ClassicState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        counts, size = self.protocol_counts, len(self.members)
        return self.protocol_type == protocol_type and any(counts.get(name, 0) == size for name, _ in protocols)

    def select_protocol(self, replaced: ClassicMember | None = None, protocols: Protocols = ()) -> str | None:
        """The protocol with the most votes among those that all members support.

        With ``replaced`` the vote is held as if that member had the given protocols.  None when nothing is common
        to all; on a tie the protocol wins that an older member voted for.
        """
        preferences = [protocols if member is replaced else member.protocols for member in self.members.values()]
        candidates = set.intersection(*({name for name, _ in preferred} for preferred in preferences))
        if not candidates:
            return None
        votes: dict[str, int] = {}
        for preferred in preferences:
            choice = next(name for name, _ in preferred if name in candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=votes.__getitem__)

    def learn_subscribed_topics(self) -> None:
        """Read the members' subscriptions; None when they cannot be read or are not of the consumer protocol."""
        self.subscribed_topics = None
        if not self.uses_consumer_protocol:
            return
        if not self.members:
            self.subscribed_topics = frozenset()
        elif self.protocol_name is not None:
            name = self.protocol_name
            self.subscribed_topics = subscribed_topics(member.metadata(name) for member in self.members.values())

    def begin_generation(self, now_ms: int) -> None:
        """The join phase ended with members: they form the next generation."""
        self.generation_id += 1
        self.protocol_name = self.select_protocol()
        self.learn_subscribed_topics()
        self.transition(Event.JOINED, now_ms)
        self.is_initial_rebalance = False
        self.pending_syncs = dict.fromkeys(self.members)

    @property
    def is_rebalance_due(self) -> bool:
        """Whether the members have to join anew, says the record: it was written in the middle of a rebalance."""
        return bool(self.members) and self.state_timestamp_ms == NO_TIMESTAMP

    # --- records --------------------------------------------------------------------------------------------------

    def record(
        self, generation_id: int, state_timestamp_ms: int, members: list[MemberMetadata], leader_id: str | None
    ) -> Record:
        """The record of the group at a generation with these members (see ``member_metadata``)."""
        value = GroupMetadataValue(
            protocol_type=self.protocol_type_name,
            generation=generation_id,
            protocol=self.protocol_name if members else None,
            leader=leader_id,
            current_state_timestamp=state_timestamp_ms,
            members=members,
        )
        return group_metadata_record(self.group_id, value)

    def member_metadata(self, assignments: Mapping[str, bytes] | None = None) -> Iterator[MemberMetadata]:
        """The members as the record has them, with the assignments they have or with the given ones."""
        assert self.protocol_name is not None
        for member in self.members.values():
            yield MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(self.protocol_name),
                assignment=member.assignment if assignments is None else assignments.get(member.member_id, b""),
            )

    def replay(self, value: GroupMetadataValue, now_ms: int) -> None:
        """Apply the group's record: on loading, and as soon as a live group's record lies in the log."""
        self.protocol_type = value.protocol_type or None
        self.protocol_name = value.protocol
        known = {metadata.member_id for metadata in value.members}
        for metadata in value.members:
            self._replay_member(metadata, known)
        for member_id in [member_id for member_id in self.members if member_id not in known]:
            self.remove(member_id)
        self.generation_id = value.generation
        self.leader_id = value.leader
        self.transition(Event.ASSIGNED if value.members else Event.EMPTIED, now_ms)
        self.state_timestamp_ms = value.current_state_timestamp
        self.is_initial_rebalance = False
        self.learn_subscribed_topics()

    def _replay_member(self, metadata: MemberMetadata, known: set[str]) -> None:
        member = self.members.get(metadata.member_id)
        instance_id = metadata.group_instance_id
        if member is None and instance_id is not None and instance_id in self.static_members:
            renamed = self.members[self.static_members[instance_id]]
            if renamed.member_id not in known:
                self.rename(renamed, metadata.member_id)
                member = renamed
        timeout_ms = metadata.session_timeout if metadata.rebalance_timeout == -1 else metadata.rebalance_timeout
        recorded: Protocols = ((self.protocol_name or "", metadata.subscription),)
        if member is None:
            member = ClassicMember(
                metadata.member_id,
                instance_id,
                metadata.client_id,
                metadata.client_host,
                timeout_ms,
                metadata.session_timeout,
                recorded,
            )
            self.add(member, self.protocol_type_name)
        elif recorded[0] not in member.protocols:
            # Loading, where the record knows one protocol of the many that the member had.
            self.set_protocols(member, recorded)
        member.rebalance_timeout_ms = timeout_ms
        member.session_timeout_ms = metadata.session_timeout
        member.assignment = member.held = metadata.assignment

    def tombstones(self) -> list[Record]:
        return [group_metadata_tombstone(self.group_id)]

    # --- checks ---------------------------------------------------------------------------------------------------

    def check_member(self, member_id: str, group_instance_id: str | None) -> int:
        """Whether the member is one of the group, and its instance id not taken over by another."""
        if group_instance_id is not None:
            existing = self.static_members.get(group_instance_id)
            if existing is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if existing != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return 0 if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def check_offset_commit(
        self, member_id: str, group_instance_id: str | None, generation_id: int, *, is_transactional: bool = False
    ) -> int:
        state = self.state
        if state is ClassicState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation_id < 0 and state is ClassicState.EMPTY:
            return 0  # an admin client, or a consumer that assigns its partitions itself
        if generation_id < 0 and not member_id and group_instance_id is None:
            return 0 if is_transactional else ErrorCode.UNKNOWN_MEMBER_ID
        error = self.check_member(member_id, group_instance_id)
        if error:
            return error
        if generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        if state is ClassicState.COMPLETING_REBALANCE and not is_transactional:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return 0

    def check_offset_delete(self) -> int:
        if self.state is ClassicState.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if self.state is ClassicState.EMPTY or self.uses_consumer_protocol:
            return 0
        return ErrorCode.NON_EMPTY_GROUP

    def check_delete(self) -> int:
        if self.state is ClassicState.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return 0 if self.state is ClassicState.EMPTY else ErrorCode.NON_EMPTY_GROUP

    def is_subscribed_to(self, topic: str) -> bool:
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def offsets_expire_from(self, commit_timestamp_ms: int) -> int | None:
        if self.protocol_type is None:
            return commit_timestamp_ms
        if self.state is ClassicState.EMPTY:
            # Records of very old brokers have no time of the last change.
            return commit_timestamp_ms if self.state_timestamp_ms == NO_TIMESTAMP else self.state_timestamp_ms
        if self.state is ClassicState.STABLE and self.uses_consumer_protocol and self.subscribed_topics is not None:
            return commit_timestamp_ms
        return None

    # --- end ------------------------------------------------------------------------------------------------------

    def unload(self, now_ms: int) -> list[Waiter]:
        """Nothing follows; returns everybody who still waits."""
        self.transition(Event.UNLOADED, now_ms)
        waiters = [self.take_join_waiter(member) for member in self.members.values()]
        for member in self.members.values():
            waiters.append(member.sync_waiter)
            member.sync_waiter = None
        return [waiter for waiter in waiters if waiter is not None]
