"""Groups that change their protocol while their members go on (KIP-848): classic to consumer and back."""

from __future__ import annotations

import pytest

from pybroker.coordinators.group.classic.classic_group import ClassicGroup
from pybroker.coordinators.group.consumer.consumer_member import MemberState
from pybroker.coordinators.group.consumer_protocol import read_assignment, write_assignment
from pybroker_protocol import codec
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from pybroker_protocol.messages.consumer_protocol import (
    ConsumerProtocolSubscriptionTopicPartition as OwnedPartition,
)
from tests.coordinators.consumer_support import (
    ASSIGNMENT_INTERVAL_MS,
    LEAVE,
    LEAVE_STATIC,
    ConsumerCluster,
    Member,
    assigned,
    replayed,
)
from tests.coordinators.support import Reply, subscription

REJOIN = ErrorCode.REBALANCE_IN_PROGRESS
PROTOCOLS = (("range", subscription("t")), ("cooperative-sticky", subscription("t")))


@pytest.fixture
def cluster() -> ConsumerCluster:
    made = ConsumerCluster()
    made.set_topics(t=6)
    return made


def cooperative(owned: dict[str, set[int]]) -> tuple[tuple[str, bytes], ...]:
    """The protocols of a member that says what it has."""
    topics = [
        OwnedPartition(topic=topic, partitions=sorted(partitions)) for topic, partitions in owned.items() if partitions
    ]
    said = ConsumerProtocolSubscription(topics=["t"], user_data=None, owned_partitions=topics)
    metadata = b"\x00\x01" + codec.encode(said, 1)
    return tuple((name, metadata) for name, _ in PROTOCOLS)


class Classic:
    """A client of the classic protocol: joins, syncs, beats; an eager one has nothing when it joins."""

    def __init__(self, cluster: ConsumerCluster, instance: str | None = None, eager: bool = True) -> None:
        self.cluster = cluster
        self.instance = instance
        self.eager = eager
        self.member_id = ""
        self.generation = -1
        self.owned: dict[str, set[int]] = {}

    def join(self, version: int = 9) -> Reply:
        if self.eager:
            self.owned = {}
        protocols = PROTOCOLS if self.eager else cooperative(self.owned)
        reply = self.cluster.join(self.member_id, protocols=protocols, instance=self.instance, version=version)
        if not reply.parked and reply.error == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = reply.response.member_id
            return self.join()
        return reply

    def joined(self, reply: Reply) -> None:
        assert reply.error == 0
        self.member_id, self.generation = reply.response.member_id, reply.response.generation_id

    def sync(self, assignments: dict[str, bytes] | None = None) -> Reply:
        reply = self.cluster.sync(self.member_id, self.generation, assignments, instance=self.instance)
        if not reply.parked and reply.error == 0:
            self.take(reply)
        return reply

    def take(self, reply: Reply) -> None:
        topics, _ = read_assignment(reply.response.assignment)
        self.owned = {name: set(partitions) for name, partitions in topics.items()}

    def beat(self) -> int:
        return self.cluster.heartbeat(self.member_id, self.generation, instance=self.instance).error

    def go_on(self) -> None:
        """A heartbeat, and another round of joining if that is what it says."""
        if self.beat() == REJOIN:
            self.joined(self.join())
            if self.sync().error == REJOIN:
                self.go_on()


def classic_group(cluster: ConsumerCluster, count: int, user_data: bytes = b"") -> list[Classic]:
    """A stable classic group whose leader has divided the topic."""
    members = [Classic(cluster) for _ in range(count)]
    replies = [member.join() for member in members]
    cluster.world.advance()
    for member, reply in zip(members, replies, strict=True):
        member.joined(reply)
    assignments = {
        member.member_id: write_assignment({"t": range(index, 6, count)}, 1)[:-4]
        + len(user_data).to_bytes(4, "big")
        + user_data
        for index, member in enumerate(members)
    }
    leader = replies[0].response.leader
    syncs = [member.sync(assignments if member.member_id == leader else None) for member in reversed(members)]
    for member, sync in zip(reversed(members), syncs, strict=True):
        assert sync.error == 0
        member.take(sync)
    assert cluster.state() == "Stable"
    return members


def rounds(cluster: ConsumerCluster, *members: Member | Classic, count: int = 8) -> None:
    for _ in range(count):
        for member in members:
            if isinstance(member, Classic):
                member.go_on()
            else:
                assert member.beat().error == 0
        cluster.world.advance(ASSIGNMENT_INTERVAL_MS)


def divided(*members: Member | Classic) -> bool:
    """Whether the members have the whole topic, each partition once."""
    owned = [partition for member in members for partition in member.owned.get("t", ())]
    return sorted(owned) == list(range(6))


# --- up --------------------------------------------------------------------------------------------------------------


def test_classic_group_becomes_a_consumer_group_when_such_a_member_joins(cluster: ConsumerCluster) -> None:
    old = classic_group(cluster, 2)
    generation = old[0].generation
    cluster.commit(7, old[0].member_id, generation)
    new = Member(cluster, "new", "t")
    assert new.beat().error == 0
    assert cluster.group().group_epoch == generation + 1
    assert [member.member_type for member in cluster.describe_consumer().members] == [0, 0, 1]
    assert old[0].beat() == REJOIN
    rounds(cluster, *old, new)
    assert divided(*old, new)
    assert [len(member.owned["t"]) for member in old] == [2, 2]
    assert len(new.owned["t"]) == 2
    assert cluster.describe_consumer().group_state == "Stable"
    assert cluster.committed() == {("t", 0): 7}
    assert replayed(cluster).groups["g"].group_type == "consumer"


def test_nobody_loses_a_partition_before_it_gave_it_up(cluster: ConsumerCluster) -> None:
    old = classic_group(cluster, 1)
    new = Member(cluster, "new", "t")
    cluster.world.advance(ASSIGNMENT_INTERVAL_MS)
    new.beat()
    assert new.owned == {}
    cluster.world.advance(ASSIGNMENT_INTERVAL_MS)
    assert new.beat().response.assignment is None
    rounds(cluster, *old, new)
    assert divided(*old, new)


def test_requests_parked_in_a_classic_rebalance_are_sent_back_to_join(cluster: ConsumerCluster) -> None:
    old = classic_group(cluster, 2)
    parked = old[0].join()
    assert parked.parked
    new = Member(cluster, "new", "t")
    assert new.beat().error == 0
    assert parked.error == REJOIN
    for member in old:
        member.joined(member.join())
        member.sync()
    rounds(cluster, *old, new)
    assert divided(*old, new)


@pytest.mark.parametrize("reload", [False, True], ids=["as it goes on", "after a reload"])
def test_upgrade_of_a_rebalance_that_began_twice_leaves_to_each_what_it_holds(
    cluster: ConsumerCluster, reload: bool
) -> None:
    """The generation that came to nothing took its assignments along, but members read on by those of the last."""
    (old,) = classic_group(cluster, 1)
    second = Classic(cluster)
    joins = second.join(), old.join()
    for member, join in zip((second, old), joins, strict=True):
        member.joined(join)
    assert cluster.state() == "CompletingRebalance"
    assert Classic(cluster).join().parked
    assert cluster.state() == "PreparingRebalance"
    if reload:
        cluster = old.cluster = ConsumerCluster(cluster.world)
        cluster.set_topics(t=6)
    new = Member(cluster, "new", "t")
    rounds(cluster, new, count=3)
    assert not any(new.owned.values())
    old.joined(old.join())
    old.sync()
    rounds(cluster, old, new)
    assert new.owned["t"]
    assert new.owned["t"].isdisjoint(old.owned["t"])


def test_failed_upgrade_leaves_the_classic_group_as_it_was(cluster: ConsumerCluster) -> None:
    old = classic_group(cluster, 2)
    cluster.world.partitions.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert cluster.enter("new", "t").error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    cluster.world.partitions.append_error = 0
    assert [member.beat() for member in old] == [0, 0]
    assert cluster.state() == "Stable"


def test_request_parked_in_a_classic_rebalance_is_answered_when_the_partition_is_lost_during_the_upgrade(
    cluster: ConsumerCluster,
) -> None:
    old = classic_group(cluster, 2)
    parked = old[0].join()
    cluster.world.partitions.hold_appends = True
    assert cluster.enter("new", "t").parked
    cluster.groups.on_leadership(set(), {0})
    cluster.world.partitions.finish_appends()
    assert parked.error == ErrorCode.NOT_COORDINATOR


def test_refused_member_does_not_upgrade_the_group(cluster: ConsumerCluster) -> None:
    old = classic_group(cluster, 1)
    assert cluster.enter("new", regex="(").error == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert old[0].beat() == 0
    assert cluster.state() == "Stable"


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_policy_may_forbid_the_upgrade(policy: str) -> None:
    cluster = ConsumerCluster(group_consumer_migration_policy=policy)
    cluster.set_topics(t=6)
    old = classic_group(cluster, 1)
    reply = cluster.enter("new", "t")
    assert reply.error == ErrorCode.GROUP_ID_NOT_FOUND
    assert "online upgrade is disabled" in reply.response.error_message
    assert old[0].beat() == 0


def test_group_of_another_protocol_type_is_not_upgraded(cluster: ConsumerCluster) -> None:
    cluster.new_member(protocol_type="connect", protocols=(("sessioned", b""),))
    assert cluster.enter("new", "t").error == ErrorCode.GROUP_ID_NOT_FOUND


def test_assignments_with_data_of_an_unknown_assignor_are_not_upgraded(cluster: ConsumerCluster) -> None:
    classic_group(cluster, 1, user_data=b"x")
    reply = cluster.enter("new", "t")
    assert reply.error == ErrorCode.GROUP_ID_NOT_FOUND
    assert "custom assignor" in reply.response.error_message


def test_empty_classic_group_is_replaced_and_its_offsets_stay(cluster: ConsumerCluster) -> None:
    (old,) = classic_group(cluster, 1)
    cluster.commit(7, old.member_id, old.generation)
    cluster.leave((old.member_id, None))
    assert cluster.enter("new", "t").response.member_epoch == 2
    assert cluster.committed() == {("t", 0): 7}
    assert replayed(cluster).groups["g"].group_type == "consumer"


# --- down ------------------------------------------------------------------------------------------------------------


def test_group_becomes_classic_when_its_last_consumer_member_leaves(cluster: ConsumerCluster) -> None:
    old = classic_group(cluster, 2)
    new = Member(cluster, "new", "t")
    rounds(cluster, new, *old)
    cluster.commit(7, "new", new.epoch)
    assert cluster.beat("new", LEAVE).error == 0
    group = cluster.groups._runtime._contexts[0].state.groups["g"]
    assert isinstance(group, ClassicGroup)
    assert cluster.state() == "PreparingRebalance"
    assert [member.beat() for member in old] == [REJOIN, REJOIN]
    replies = [member.join() for member in old]
    cluster.world.advance()
    for member, reply in zip(old, replies, strict=True):
        member.joined(reply)
    assert cluster.state() == "CompletingRebalance"
    assert cluster.committed() == {("t", 0): 7}
    assert replayed(cluster).groups["g"].group_type == "classic"


def test_reload_after_a_downgrade_goes_on_with_the_rebalance(cluster: ConsumerCluster) -> None:
    old = classic_group(cluster, 2)
    new = Member(cluster, "new", "t")
    rounds(cluster, new, *old)
    cluster.beat("new", LEAVE)
    again = ConsumerCluster(cluster.world)
    assert again.state() == "PreparingRebalance"
    for member in old:
        member.cluster = again
    assert [member.beat() for member in old] == [REJOIN, REJOIN]
    assert [member.sync().error for member in old] == [REJOIN, REJOIN]


def test_downgrade_and_upgrade_leave_to_each_what_it_holds(cluster: ConsumerCluster) -> None:
    """Seeds 3150 and 3621 of the simulation: the target gives away what a stalled member has not given back."""
    (stalled,) = classic_group(cluster, 1)
    new, late = Member(cluster, "new", "t"), Classic(cluster)
    new.beat()
    late.joined(late.join())
    late.sync()
    cluster.world.advance(ASSIGNMENT_INTERVAL_MS)
    rounds(cluster, new, late)
    assert cluster.beat("new", LEAVE).error == 0
    held = {stalled.member_id: set(range(6)), late.member_id: set()}
    for described in (cluster.describe(), ConsumerCluster(cluster.world).describe()):
        given = {each.member_id: read_assignment(each.member_assignment)[0] for each in described.members}
        assert {member_id: set(partitions.get("t", ())) for member_id, partitions in given.items()} == held
    Member(cluster, "newer", "t").beat()
    owned = {member.member_id: member.assigned for member in cluster.group().members.values()}
    assert [sorted(each) for each in owned[stalled.member_id].values()] == [list(range(6))]
    assert not any(owned[late.member_id].values())


def test_expired_consumer_member_leaves_a_classic_group_behind(cluster: ConsumerCluster) -> None:
    old = classic_group(cluster, 1)
    new = Member(cluster, "new", "t")
    rounds(cluster, new, *old)
    for _ in range(9):
        cluster.world.advance(5_000)
        old[0].beat()
    assert cluster.state() == "PreparingRebalance"


def test_failed_downgrade_leaves_the_consumer_group_as_it_was(cluster: ConsumerCluster) -> None:
    old = classic_group(cluster, 1)
    new = Member(cluster, "new", "t")
    rounds(cluster, new, *old)
    cluster.world.partitions.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert cluster.beat("new", LEAVE).error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    cluster.world.partitions.append_error = 0
    assert cluster.describe_consumer().group_state == "Stable"
    assert new.beat().error == 0


def test_policy_may_forbid_the_downgrade() -> None:
    cluster = ConsumerCluster(group_consumer_migration_policy="upgrade")
    cluster.set_topics(t=6)
    old = classic_group(cluster, 1)
    new = Member(cluster, "new", "t")
    rounds(cluster, new, *old)
    cluster.beat("new", LEAVE)
    assert cluster.describe_consumer().group_state == "Assigning"
    rounds(cluster, *old)
    assert divided(*old)


def test_static_member_that_comes_back_with_the_classic_protocol_downgrades_the_group(cluster: ConsumerCluster) -> None:
    member = Member(cluster, "a", "t", instance="i")
    member.beat()
    cluster.beat("a", LEAVE_STATIC, instance="i")
    back = Classic(cluster, instance="i")
    back.joined(back.join())
    assert cluster.state() == "Stable"
    assert back.sync().error == 0
    assert back.owned == {"t": set(range(6))}


# --- classic members in a consumer group -----------------------------------------------------------------------------


def test_classic_member_joins_a_consumer_group(cluster: ConsumerCluster) -> None:
    new = Member(cluster, "new", "t")
    new.beat()
    cluster.world.advance(ASSIGNMENT_INTERVAL_MS)
    old = Classic(cluster)
    reply = old.join()
    old.joined(reply)
    assert (reply.response.protocol_name, reply.response.leader, reply.response.members) == ("range", "", [])
    assert old.sync().error == 0
    assert old.owned == {}
    rounds(cluster, new, old)
    assert divided(new, old)
    assert cluster.commit_error(5, old.member_id, old.generation) == 0
    assert cluster.commit_error(5, old.member_id, old.generation + 1) == ErrorCode.ILLEGAL_GENERATION


def test_classic_member_that_does_not_sync_in_time_is_out(cluster: ConsumerCluster) -> None:
    new = Member(cluster, "new", "t")
    new.beat()
    old = Classic(cluster)
    old.joined(old.join())
    for _ in range(12):
        cluster.world.advance(5_000)
        new.beat()
        cluster.heartbeat(old.member_id, old.generation)
    assert set(cluster.group().members) == {"new"}


def test_join_that_changes_nothing_renews_the_session_and_has_to_be_followed_by_a_sync(
    cluster: ConsumerCluster,
) -> None:
    new = Member(cluster, "new", "t")
    old = Classic(cluster)
    new.beat()
    old.joined(old.join())
    rounds(cluster, new, old)
    appends = cluster.world.partitions.appends
    for _ in range(3):
        cluster.world.advance(6_000)
        old.joined(old.join())
        new.beat()
    assert cluster.world.partitions.appends == appends
    assert set(cluster.group().members) == {"new", old.member_id}
    for _ in range(12):
        cluster.world.advance(5_000)
        new.beat()
        cluster.heartbeat(old.member_id, old.generation)
    assert set(cluster.group().members) == {"new"}


def test_classic_member_that_does_not_rejoin_in_time_is_out(cluster: ConsumerCluster) -> None:
    new = Member(cluster, "new", "t")
    old = Classic(cluster)
    new.beat()
    old.joined(old.join())
    rounds(cluster, new, old)
    cluster.set_topics(t=7)
    new.beat()
    assert old.beat() == REJOIN
    for _ in range(12):
        cluster.world.advance(5_000)
        new.beat()
        old.beat()
    assert set(cluster.group().members) == {"new"}


def test_time_to_give_partitions_up_that_a_reload_began_ends_when_they_are_given_up(cluster: ConsumerCluster) -> None:
    first, second, old = Member(cluster, "a", "t"), Member(cluster, "b", "t"), Classic(cluster, eager=False)
    first.beat()
    old.joined(old.join())
    rounds(cluster, first, old)
    second.beat()
    cluster.world.advance(ASSIGNMENT_INTERVAL_MS)
    first.beat()
    assert old.beat() == REJOIN
    old.joined(old.join())
    assert cluster.group().members[old.member_id].state is MemberState.UNREVOKED_PARTITIONS
    again = ConsumerCluster(cluster.world)
    again.set_topics(t=6)
    first.cluster = second.cluster = old.cluster = again
    old.sync()
    rounds(again, first, second, old)
    assert divided(first, second, old)
    rounds(again, first, second, old, count=45)
    others = [Member(again, name, "t") for name in "cde"]
    for member in others:
        member.beat()
    again.world.advance(ASSIGNMENT_INTERVAL_MS)
    others[0].beat()
    assert old.beat() == REJOIN
    old.joined(old.join())
    for _ in range(10):
        again.world.advance(1_000)
        old.beat()
    assert again.group().members[old.member_id].state is MemberState.UNREVOKED_PARTITIONS


def test_time_to_join_again_does_not_outlast_a_downgrade(cluster: ConsumerCluster) -> None:
    (old,) = classic_group(cluster, 1)
    new = Member(cluster, "new", "t")
    new.beat()
    assert old.beat() == REJOIN
    assert cluster.beat("new", LEAVE).error == 0
    old.joined(old.join())
    old.sync({old.member_id: write_assignment({"t": range(6)}, 1)})
    for _ in range(11):
        cluster.world.advance(5_000)
        assert old.beat() == 0
    Member(cluster, "newer", "t").beat()
    cluster.world.advance(8_000)
    assert old.member_id in cluster.group().members


def test_classic_requests_are_refused_with_classic_errors(cluster: ConsumerCluster) -> None:
    new = Member(cluster, "new", "t")
    old = Classic(cluster)
    new.beat()
    old.joined(old.join())
    cluster.world.advance(ASSIGNMENT_INTERVAL_MS)
    assert cluster.sync(old.member_id, old.generation, protocol_name="other").error == (
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    )
    assert cluster.sync(old.member_id, old.generation + 1).error == ErrorCode.ILLEGAL_GENERATION
    assert cluster.sync("new", 2).error == ErrorCode.UNKNOWN_MEMBER_ID
    assert cluster.heartbeat("nobody", 2).error == ErrorCode.UNKNOWN_MEMBER_ID
    assert cluster.heartbeat("new", 2).error == ErrorCode.UNKNOWN_MEMBER_ID
    refused = cluster.join("x", protocols=(("unheard-of", subscription("t")),))
    assert refused.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert cluster.join("x", protocol_type="connect").error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert cluster.join("x", protocols=(("range", b"\x00"),)).error == ErrorCode.INVALID_REQUEST
    left = cluster.leave(("nobody", None), (old.member_id, None), ("", "no-instance"))
    assert [member.error_code for member in left.response.members] == [
        ErrorCode.UNKNOWN_MEMBER_ID,
        0,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert set(cluster.group().members) == {"new"}


def test_protocol_that_a_classic_member_names_twice_is_of_one_member(cluster: ConsumerCluster) -> None:
    assert cluster.enter("m", "t").error == 0
    in_common, other = PROTOCOLS
    assert cluster.new_member(protocols=(other, other, in_common))[1].error == 0
    assert cluster.new_member(protocols=(in_common,))[1].error == 0
    assert cluster.join(protocols=(other,)).error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert cluster.join(protocols=(in_common,)).error == ErrorCode.MEMBER_ID_REQUIRED


def test_member_may_go_on_with_the_consumer_protocol_under_its_instance_id(cluster: ConsumerCluster) -> None:
    cluster.enter("a", "t", instance="other")
    old = Classic(cluster, instance="i")
    old.joined(old.join())
    assert old.sync().error == 0
    reply = cluster.enter("b", "t", instance="i")
    assert reply.error == 0
    assert assigned(reply) is not None
    assert cluster.group().classic_members == 0
    cluster.world.advance(60_000)
    assert cluster.group().classic_members == 0


def test_empty_consumer_group_becomes_a_classic_one(cluster: ConsumerCluster) -> None:
    cluster.enter("a", "t")
    cluster.commit(7, "a", 2)
    cluster.beat("a", LEAVE)
    old = Classic(cluster)
    reply = old.join()
    cluster.world.advance()
    old.joined(reply)
    assert cluster.state() == "CompletingRebalance"
    assert cluster.committed() == {("t", 0): 7}
