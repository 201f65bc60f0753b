"""Random lives of a consumer group (KIP-848): members of both protocols, changing topics, silence, reloads, failures.

After every step: nobody owns what another has, epochs do not go back, the counts add up, and the log alone brings the
same group back.  In the end, when everybody heartbeats, all of the topics are divided among the members.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pybroker.coordinators.group.classic.classic_group import ClassicGroup
from pybroker.coordinators.group.consumer.consumer_group import ConsumerGroup
from pybroker.coordinators.group.consumer.consumer_member import MemberState
from pybroker.coordinators.group.group import Group
from pybroker_protocol.errors import ErrorCode
from tests.coordinators.consumer_support import LEAVE, LEAVE_STATIC, ConsumerCluster, Member, replayed, topic_id
from tests.coordinators.test_group_conversion import Classic

NAMES = ["a", "b", "c", "d"]
TOPICS = ["t", "u", "v"]
SUBSCRIPTIONS = st.lists(st.sampled_from(TOPICS), max_size=3, unique=True)
# What a well-behaved client may be told, whatever happens around it.
EXPECTED = {
    ErrorCode.NONE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.UNRELEASED_INSTANCE_ID,
}


class ConsumerGroupMachine(RuleBasedStateMachine):
    """Up to four consumer members, one of them static, and a classic one."""

    @initialize()
    def begin(self) -> None:
        self.cluster = ConsumerCluster(group_consumer_migration_policy="bidirectional")
        self.counts = {"t": 4, "u": 2}
        self.cluster.set_topics(**self.counts)
        self.members: dict[str, Member] = {}
        self.classic: Classic | None = None
        self.epochs = (0, 0)
        self.incarnation: object = None
        self.member_epochs: dict[str, int] = {}

    @property
    def group(self) -> Group | None:
        return self.cluster.groups._runtime._contexts[0].state.groups.get("g")

    # --- what happens -------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES), topics=SUBSCRIPTIONS, regex=st.sampled_from(["", "", "t|v", ".*"]))
    def join(self, name: str, topics: list[str], regex: str) -> None:
        how = {"instance": "static"} if name == "d" else {}
        if regex:
            how["regex"] = regex
        member = self.members[name] = Member(self.cluster, name, *topics, **how)
        assert member.beat().error in EXPECTED

    @rule(name=st.sampled_from(NAMES), times=st.integers(1, 3))
    def beat(self, name: str, times: int) -> None:
        member = self.members.get(name)
        for _ in range(times if member is not None else 0):
            assert member is not None
            assert member.beat().error in EXPECTED

    @rule(name=st.sampled_from(NAMES))
    def lose_a_response(self, name: str) -> None:
        """The client sends its heartbeat again, knowing nothing of what the first one did."""
        member = self.members.get(name)
        if member is None or not member.epoch:
            return
        before = (member.epoch, dict(member.owned))
        if member.beat().error == 0:
            member.epoch, member.owned = before
            member.acknowledge = True
            assert member.beat().error in EXPECTED

    @rule(name=st.sampled_from(NAMES), topics=SUBSCRIPTIONS)
    def subscribe_anew(self, name: str, topics: list[str]) -> None:
        member = self.members.get(name)
        if member is not None and member.epoch:
            member.topics = topics
            member.beat(topics=topics)

    @rule(name=st.sampled_from(NAMES))
    def leave(self, name: str) -> None:
        member = self.members.pop(name, None)
        if member is not None:
            self.cluster.beat(name, LEAVE, instance="static" if name == "d" else None)

    @rule()
    def leave_for_a_while(self) -> None:
        member = self.members.pop("d", None)
        if member is not None:
            self.cluster.beat("d", LEAVE_STATIC, instance="static")

    @rule()
    def join_as_a_classic_member(self) -> None:
        group = self.group
        if self.classic is None and isinstance(group, ConsumerGroup) and group.members:
            classic = Classic(self.cluster)
            reply = classic.join()
            if not reply.parked and reply.error == 0:
                classic.joined(reply)
                self.classic = classic
                classic.sync()

    @rule()
    def go_on_as_a_classic_member(self) -> None:
        classic = self.classic
        if classic is None:
            return
        code = classic.beat()
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            reply = classic.join()
            self.cluster.world.advance()
            if not reply.parked and reply.error == 0:
                classic.joined(reply)
                assignments = {}
                if isinstance(self.group, ClassicGroup):
                    assignments = {classic.member_id: b""}
                classic.sync(assignments)
            elif not reply.parked:
                self.classic = None
        elif code:
            self.classic = None

    @rule(topic=st.sampled_from(TOPICS), grow=st.booleans())
    def change_topics(self, topic: str, grow: bool) -> None:
        if topic not in self.counts:
            self.counts[topic] = 1
        elif grow:
            self.counts[topic] += 1
        else:
            del self.counts[topic]
        self.cluster.set_topics(**self.counts)

    @rule(seconds=st.sampled_from([0, 1, 1, 5, 46]))
    def wait(self, seconds: int) -> None:
        self.cluster.world.advance(seconds * 1_000)

    @rule()
    def fail_one_heartbeat(self) -> None:
        self.cluster.world.partitions.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
        for member in list(self.members.values())[:1]:
            epoch, owned, acknowledge = member.epoch, member.owned, member.acknowledge
            if member.beat().error == ErrorCode.COORDINATOR_NOT_AVAILABLE:
                member.epoch, member.owned, member.acknowledge = epoch, owned, acknowledge
        self.cluster.world.partitions.append_error = 0

    @rule()
    def reload(self) -> None:
        image = self.cluster.metadata.image
        self.cluster.groups.close()
        self.cluster = ConsumerCluster(self.cluster.world, settled=False)
        self.cluster.metadata.image = image
        self.cluster.groups._topics.image = image
        self.cluster.world.advance()
        for member in self.members.values():
            member.cluster = self.cluster
        if self.classic is not None:
            self.classic.cluster = self.cluster

    # --- what always holds --------------------------------------------------------------------------------------

    @invariant()
    def nobody_has_what_another_has(self) -> None:
        group = self.group
        if not isinstance(group, ConsumerGroup):
            return
        owners = Counter(
            (topic, partition)
            for member in group.members.values()
            for assigned in (member.assigned, member.pending_revocation)
            for topic, epochs in assigned.items()
            for partition in epochs
        )
        assert all(count == 1 for count in owners.values()), owners
        for member in group.members.values():
            for topic, epochs in member.assigned.items():
                assert all(group.owners.of(topic, partition) == member.member_id for partition in epochs)
        assert len(group.owners) == len(owners)

    @invariant()
    def clients_do_not_read_the_same_partition(self) -> None:
        group = self.group
        if not isinstance(group, ConsumerGroup):
            return
        owned = Counter(
            (topic, partition)
            for name, client in self.members.items()
            if name in group.members and client.epoch == group.members[name].member_epoch
            for topic, partitions in client.owned.items()
            for partition in partitions
        )
        assert all(count == 1 for count in owned.values()), owned

    @invariant()
    def epochs_do_not_go_back(self) -> None:
        group = self.group
        if not isinstance(group, ConsumerGroup):
            self.epochs, self.member_epochs = (0, 0), {}
            return
        if group.group_epoch < self.epochs[0]:
            # Another group in place of one that was deleted or had been classic for a while.
            self.epochs, self.member_epochs = (0, 0), {}
        assert group.assignment_epoch <= group.group_epoch
        assert group.assignment_epoch >= self.epochs[1]
        self.epochs = (group.group_epoch, group.assignment_epoch)
        for member in group.members.values():
            assert member.member_epoch <= group.assignment_epoch
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                assert member.pending_revocation or member.member_epoch < 0
            else:
                assert not member.pending_revocation

    @invariant()
    def counts_add_up(self) -> None:
        group = self.group
        if not isinstance(group, ConsumerGroup):
            return
        members = list(group.members.values())
        assert group.topic_counts == Counter(name for member in members for name in member.subscribed_topic_names)
        assert group.regex_counts == Counter(
            member.subscribed_topic_regex for member in members if member.subscribed_topic_regex
        )
        assert group.classic_members == sum(member.classic is not None for member in members)
        assert group.resolved.keys() <= group.regex_counts.keys()
        assert group.target.keys() <= group.members.keys()
        static = {member.instance_id: member.member_id for member in members if member.instance_id is not None}
        assert group.static_members == static

    @invariant()
    def replaying_the_log_brings_the_group_back(self) -> None:
        group, again = self.group, replayed(self.cluster).groups.get("g")
        if not isinstance(group, ConsumerGroup):
            assert not isinstance(again, ConsumerGroup)
            return
        assert isinstance(again, ConsumerGroup)
        durable = ("group_epoch", "metadata_hash", "assignment_epoch", "members", "target", "resolved", "owners")
        for name in durable:
            assert getattr(again, name) == getattr(group, name), name

    def teardown(self) -> None:
        """Everybody who is left heartbeats: all settle, and the topics are divided."""
        if not hasattr(self, "cluster"):
            return
        self.cluster.world.advance(61_000)  # whoever is gone is out, classic members too
        for name, member in list(self.members.items()):
            if member.beat().error not in {ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID}:
                del self.members[name]
        for _ in range(24):
            for member in self.members.values():
                member.beat()
            self.cluster.world.advance(1_000)
        group = self.group
        if not self.members:
            return
        assert isinstance(group, ConsumerGroup)
        assert group.state_name == "Stable"
        assert set(group.members) == set(self.members)
        for served in group.members.values():
            owned = {topic_id(name): partitions for name, partitions in self.members[served.member_id].owned.items()}
            assert {topic: set(epochs) for topic, epochs in served.assigned.items()} == owned
        given = Counter(
            (topic, partition)
            for member in group.members.values()
            for topic, epochs in member.assigned.items()
            for partition in epochs
        )
        wanted = set().union(*(group.subscription(member) for member in group.members.values()))
        expected = {
            (topic_id(name), partition)
            for name, count in self.counts.items()
            if name in wanted
            for partition in range(count)
        }
        assert {key: count for key, count in given.items() if key[0] != bytes(15) + b"\x63"} == dict.fromkeys(
            expected, 1
        )


ConsumerGroupMachine.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestConsumerGroup = ConsumerGroupMachine.TestCase
