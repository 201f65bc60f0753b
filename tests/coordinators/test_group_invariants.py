"""Random lives of one group, with what must always hold checked after every step.

- In one generation every partition has one owner: nobody is told an assignment that another was told.
- The generation never goes back, and one generation never has two sets of members.
- A committed offset changes only by an accepted commit.
- What the log holds, replayed into an empty state, is the state that is served.
- The group's own bookkeeping is consistent, and every request is answered at most once.
"""

from __future__ import annotations

from typing import Any

from harness.virtual_world import START_MS
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from pybroker.coordinators.group.classic.classic_group import ClassicGroup
from pybroker.coordinators.group.classic.states import ClassicState
from pybroker.coordinators.group.group_coordinator_shard import GroupCoordinatorShard
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.record_codec import decode_records
from pybroker_protocol.records import NO_PRODUCER_ID, batches
from tests.coordinators.consumer_support import new_shard
from tests.coordinators.support import Cluster, Reply, subscription

INSTANCES = (None, None, "i1", "i2")
PROTOCOLS = (
    (("range", subscription("t")),),
    (("range", subscription("t")), ("sticky", b"s")),
    (("sticky", b"s"), ("range", subscription("t", "u"))),
)


class Member:
    """What a client knows of itself."""

    def __init__(self, instance: str | None) -> None:
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.leads: list[str] | None = None
        self.joining: Reply | None = None
        self.syncing: Reply | None = None
        self.synced_generation = -1
        self.protocol_name: str | None = None


class GroupLife(RuleBasedStateMachine):
    members = Bundle("members")

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster(group_initial_rebalance_delay_ms=500, group_max_size=4)
        self.clients: list[Member] = []
        self.highest_generation = 0
        self.members_of: dict[int, frozenset[str]] = {}
        self.owners: dict[tuple[int, bytes], str] = {}
        self.offsets: dict[tuple[str, int], int] = {}

    # --- what clients do ------------------------------------------------------------------------------------------

    @initialize(target=members, instances=st.lists(st.sampled_from(INSTANCES), min_size=1, max_size=4))
    def start_some_clients(self, instances: list[str | None]) -> Any:
        self.clients = [Member(instance) for instance in instances]
        return multiple(*self.clients)

    @rule(target=members, instance=st.sampled_from(INSTANCES))
    def start_client(self, instance: str | None) -> Any:
        if len(self.clients) >= 8:
            return multiple()
        self.clients.append(Member(instance))
        return self.clients[-1]

    @rule(member=members, protocols=st.sampled_from(PROTOCOLS), version=st.sampled_from([3, 5, 9]))
    def join(self, member: Member, protocols: Any, version: int) -> None:
        self.send_join(member, protocols, version)

    def send_join(self, member: Member, protocols: Any = PROTOCOLS[0], version: int = 9) -> None:
        for _ in range(2):  # the second time with the id that the first one got
            if member.joining is None:
                member.joining = self.cluster.join(
                    member.member_id,
                    instance=member.instance,
                    protocols=protocols,
                    version=version,
                    rebalance_ms=20_000,
                )
            self.hear()

    @rule(wait_ms=st.sampled_from([0, 600]))
    def everybody_joins(self, wait_ms: int) -> None:
        for member in self.clients:
            self.send_join(member)
        self.cluster.world.advance(wait_ms)
        self.hear()

    @rule()
    def everybody_syncs(self) -> None:
        for member in sorted(self.clients, key=lambda client: client.leads is not None):
            self.send_sync(member, True)

    @rule(member=members)
    def join_as_a_stranger(self, member: Member) -> None:
        """A client that restarted: static ones keep their instance id, all forget their member id."""
        member.member_id, member.generation, member.syncing = "", -1, None
        self.send_join(member)

    @rule(member=members, assigns=st.booleans())
    def sync(self, member: Member, assigns: bool) -> None:
        self.send_sync(member, assigns)

    def send_sync(self, member: Member, assigns: bool) -> None:
        if member.syncing is not None:
            return
        assignments = {}
        if member.leads is not None and assigns:
            assignments = {member_id: b"%d" % index for index, member_id in enumerate(member.leads)}
        member.synced_generation = member.generation
        member.syncing = self.cluster.sync(
            member.member_id,
            member.generation,
            assignments,
            instance=member.instance,
            protocol_name=member.protocol_name,
        )
        self.hear()

    @rule(member=members, stale=st.booleans())
    def heartbeat(self, member: Member, stale: bool) -> None:
        self.cluster.heartbeat(member.member_id, member.generation - stale, instance=member.instance)

    @rule(member=consumes(members))
    def leave(self, member: Member) -> None:
        self.cluster.leave((member.member_id, member.instance))
        self.clients.remove(member)
        self.hear()

    @rule(
        member=members,
        partition=st.integers(0, 2),
        offset=st.integers(0, 1_000),
        stale=st.booleans(),
        simple=st.booleans(),
    )
    def commit(self, member: Member, partition: int, offset: int, stale: bool, simple: bool) -> None:
        who = ("", -1, None) if simple else (member.member_id, member.generation - stale, member.instance)
        reply = self.cluster.commit(offset, who[0], who[1], instance=who[2], partition=partition)
        if reply.response.topics[0].partitions[0].error_code == 0:
            self.offsets["t", partition] = offset

    # --- what happens to the broker -------------------------------------------------------------------------------

    @rule(by_ms=st.sampled_from([0, 100, 500, 4_000, 9_000, 21_000]))
    def time_passes(self, by_ms: int) -> None:
        self.cluster.world.advance(by_ms)
        self.hear()

    @rule(member=members, error=st.sampled_from([ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR]))
    def disk_trouble(self, member: Member, error: int) -> None:
        """For a moment nothing can be written, and somebody wants something just then."""
        self.cluster.world.partitions.append_error = error
        self.send_join(member)
        self.send_sync(member, True)
        self.commit(member, 0, 5, False, True)
        self.cluster.world.partitions.append_error = 0

    @rule()
    def lose_and_regain_the_partition(self) -> None:
        self.cluster.groups.on_leadership(set(), {0})
        self.cluster.groups.on_leadership({0}, set())
        self.cluster.world.advance()
        # The generation in the making was not in the log: another may take its number.
        self.highest_generation = self.group.generation_id if self.group is not None else 0
        self.members_of = {k: v for k, v in self.members_of.items() if k <= self.highest_generation}
        self.owners = {k: v for k, v in self.owners.items() if k[0] <= self.highest_generation}
        self.hear()

    # --- what clients hear ----------------------------------------------------------------------------------------

    def hear(self) -> None:
        for member in self.clients:
            if member.joining is not None and not member.joining.parked:
                self.hear_join(member, member.joining.response)
                member.joining = None
        for member in self.clients:
            if member.syncing is not None and not member.syncing.parked:
                self.hear_sync(member, member.syncing.response)
                member.syncing = None

    def hear_join(self, member: Member, response: Any) -> None:
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            member.member_id = response.member_id
        elif response.error_code:
            if response.error_code in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}:
                member.member_id, member.generation = "", -1
        else:
            member.member_id, member.generation = response.member_id, response.generation_id
            member.protocol_name = response.protocol_name
            self.highest_generation = max(self.highest_generation, member.generation)
            member.leads = None
            if response.leader == response.member_id:
                member.leads = [other.member_id for other in response.members]
                if member.instance is None:
                    told = frozenset(member.leads)
                    assert self.members_of.setdefault(member.generation, told) == told or response.skip_assignment

    def hear_sync(self, member: Member, response: Any) -> None:
        if response.error_code == 0 and response.assignment:
            owner = member.instance or member.member_id
            held = self.owners.setdefault((member.synced_generation, response.assignment), owner)
            assert held == owner, "two members own the same partition in one generation"

    # --- what must hold -------------------------------------------------------------------------------------------

    @property
    def shard(self) -> GroupCoordinatorShard:
        shard = self.cluster.groups._runtime._contexts[0]
        return shard.state

    @property
    def group(self) -> ClassicGroup | None:
        found = self.shard.describe("g")
        assert found is None or isinstance(found, ClassicGroup)
        return found

    @invariant()
    def generation_never_goes_back(self) -> None:
        if self.group is not None:
            assert self.group.generation_id >= self.highest_generation

    @invariant()
    def offsets_are_those_that_were_accepted(self) -> None:
        assert self.cluster.committed() == self.offsets

    @invariant()
    def bookkeeping_is_consistent(self) -> None:
        group = self.group
        if group is None:
            return
        members = list(group.members.values())
        counts: dict[str, int] = {}
        for member in members:
            for name, _ in member.protocols:
                counts[name] = counts.get(name, 0) + 1
        assert group.protocol_counts == counts
        assert group.members_joining == sum(member.join_waiter is not None for member in members)
        static = {member.group_instance_id: member.member_id for member in members if member.is_static}
        assert group.static_members == static
        assert [member.member_id for member in members] == list(group.members)
        assert not group.pending_joins.keys() & group.members.keys()
        assert (group.leader_id in group.members) == bool(members)
        assert bool(members) or group.state in {ClassicState.EMPTY, ClassicState.PREPARING_REBALANCE}
        if group.state is not ClassicState.PREPARING_REBALANCE:
            assert group.members_joining == 0
        if group.state is not ClassicState.COMPLETING_REBALANCE:
            assert all(member.sync_waiter is None for member in members)
        assert group.members_joining <= 4

    @invariant()
    def replaying_the_log_rebuilds_what_is_served(self) -> None:
        replayed = new_shard()
        log = memoryview(self.cluster.world.partitions.logs.get(0, bytearray()))
        for position, _ in batches(log):
            for record in decode_records(log[position:]):
                replayed.replay(record.key or b"", record.value, record.offset, NO_PRODUCER_ID, START_MS)
        served, again = self.group, replayed.describe("g")
        assert (served is None) == (again is None)
        stored = {
            (t.topic, partition): value for t in replayed.offsets.topics("g") for partition, value in t.values.items()
        }
        assert stored.keys() == self.offsets.keys()
        if served is None or again is None:
            return
        assert isinstance(again, ClassicGroup)
        assert again.generation_id <= served.generation_id
        if served.state is ClassicState.STABLE:
            assert durable(again) == durable(served)


def durable(group: ClassicGroup) -> Any:
    """What the record of a stable group holds of it."""
    members = {
        member.member_id: (
            member.group_instance_id,
            member.client_id,
            member.session_timeout_ms,
            member.rebalance_timeout_ms,
            member.metadata(group.protocol_name or ""),
            member.assignment,
        )
        for member in group.members.values()
    }
    return (
        group.state,
        group.generation_id,
        group.protocol_type,
        group.protocol_name,
        group.leader_id,
        group.subscribed_topics,
        members,
    )


TestGroupLife = GroupLife.TestCase
TestGroupLife.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
