"""Classic groups of several members: whole rebalances over several connections, step by step."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from comparator.broker import Broker, Pending
from comparator.registry import scenario
from comparator.scenarios.groups import MEMBER_ID_REQUIRED, protocols
from comparator.wire import Connection

JOIN, SYNC, HEARTBEAT, LEAVE, COMMIT = 9, 5, 4, 5, 9
# Nobody's session ends unless a scenario wants it to.
LONG_MS = 60_000
SHORT_MS = 6_000


@dataclass
class Member:
    """A member with a connection of its own, so that its requests may wait while others are answered."""

    broker: Broker
    group: str
    name: str
    instance: str | None = None
    join_version: int = JOIN
    protocols: list[dict[str, Any]] = field(default_factory=protocols)
    session_timeout_ms: int = LONG_MS
    rebalance_timeout_ms: int = LONG_MS
    member_id: str = ""
    generation: int = -1
    _connection: Connection | None = None

    @property
    def connection(self) -> Connection:
        if self._connection is None:
            self._connection = self.broker.connect()
        return self._connection

    def go_to(self, broker: Broker) -> None:
        """Another broker coordinates the group by now."""
        self.broker, self._connection = broker, None

    def begin_join(self, **more: Any) -> Pending:
        """JoinGroup; a member without an id gets one first, where it has to."""
        fields = {
            "group_id": self.group,
            "session_timeout_ms": self.session_timeout_ms,
            "rebalance_timeout_ms": self.rebalance_timeout_ms,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            "protocol_type": "consumer",
            "protocols": self.protocols,
            **more,
        }
        needs_id = not fields["member_id"] and self.instance is None and self.join_version >= 4
        if needs_id:
            asked = self._begin("JoinGroup", self.join_version, "asks for an id", fields).reply()
            if asked["error_code"] == MEMBER_ID_REQUIRED:
                self.member_id = fields["member_id"] = asked["member_id"]
        return self._begin("JoinGroup", self.join_version, "joins", fields)

    def joined(self, pending: Pending) -> Any:
        """The reply to a JoinGroup, remembered."""
        reply = pending.reply()
        if reply["error_code"] == 0:
            self.member_id, self.generation = reply["member_id"], reply["generation_id"]
        return reply

    def join(self, **more: Any) -> Any:
        return self.joined(self.begin_join(**more))

    def begin_sync(self, *others: Member, **more: Any) -> Pending:
        """SyncGroup; with others it is the leader's, who assigns to itself and to them."""
        assigned = [self, *others] if others else []
        fields = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            "protocol_type": "consumer",
            "protocol_name": self.protocols[0]["name"],
            "assignments": [{"member_id": each.member_id, "assignment": each.name.encode()} for each in assigned],
            **more,
        }
        return self._begin("SyncGroup", SYNC, "syncs", fields)

    def heartbeat(self, note: str = "", **more: Any) -> Any:
        fields = {"group_id": self.group, "generation_id": self.generation, "member_id": self.member_id}
        return self._begin(
            "Heartbeat", HEARTBEAT, note or "lives", {**fields, "group_instance_id": self.instance, **more}
        ).reply()

    def leave(self, note: str = "leaves", **more: Any) -> Any:
        identity = {"member_id": self.member_id, "group_instance_id": self.instance, **more}
        return self._begin("LeaveGroup", LEAVE, note, {"group_id": self.group, "members": [identity]}).reply()

    def commit(self, topic: str, offset: int, note: str = "commits", **more: Any) -> Any:
        partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": self.name}
        fields = {
            "group_id": self.group,
            "generation_id_or_member_epoch": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            "topics": [{"name": topic, "partitions": [partition]}],
            **more,
        }
        return self._begin("OffsetCommit", COMMIT, note, fields).reply()

    def _begin(self, api: str, version: int, note: str, fields: dict[str, Any]) -> Pending:
        return self.broker.begin(api, version, f"{self.name} {note}", self.connection, **fields)


def form(*members: Member) -> None:
    """The first member, alone in its group so far, and newcomers: they join, sync and are stable."""
    leader, *followers = members
    waiting = []
    for number, follower in enumerate(followers, start=2):
        waiting.append(follower.begin_join())
        wait_for_members(leader, number)
    describe(leader, "while they join")
    leader.join()
    for follower, pending in zip(followers, waiting, strict=True):
        follower.joined(pending)
    share(leader, *followers)


def share(leader: Member, *followers: Member) -> None:
    """The followers ask for their assignments, then the leader brings them."""
    syncs = [follower.begin_sync() for follower in followers]
    leader.begin_sync(*followers).reply()
    for pending in syncs:
        pending.reply()
    describe(leader, "when they share")


def describe(member: Member, note: str) -> None:
    """The group without its members, whose order and metadata say nothing while they come and go."""
    group = member.broker.quietly("DescribeGroups", 5, groups=[member.group])["groups"][0]
    seen = {name: group[name] for name in ("error_code", "group_state", "protocol_type", "protocol_data")}
    member.broker.note(note, {**seen, "members": len(group["members"])})


def wait_for_state(member: Member, *states: str) -> None:
    """Wait for one of the states, by asking."""

    def reached() -> bool:
        group = member.broker.quietly("DescribeGroups", 5, groups=[member.group])["groups"][0]
        return group["group_state"] in states

    member.broker.wait_until(reached, f"{member.group} to be {states}")


def wait_for_members(member: Member, members: int) -> None:
    """Wait until the group has so many members: the JoinGroup of a newcomer has arrived."""

    def arrived() -> bool:
        group = member.broker.quietly("DescribeGroups", 5, groups=[member.group])["groups"][0]
        return len(group["members"]) == members

    member.broker.wait_until(arrived, f"{members} members in {member.group}")


def let_arrive() -> None:
    """Time for a request that waits where nothing shows that it does."""
    time.sleep(0.3)


def people(broker: Broker, group: str, *names: str, **how: Any) -> list[Member]:
    broker.wait_for_coordinator(group)
    return [Member(broker, group, name, **how) for name in names]


@scenario
def three_members_come_and_go(broker: Broker) -> None:
    for version in (3, 5, 9):
        first, second, third = people(broker, f"three-v{version}", "first", "second", "third", join_version=version)
        first.join()
        share(first)
        for joiner, count in ((second, 2), (third, 3)):
            pending = joiner.begin_join()
            wait_for_members(first, count)
            first.heartbeat("hears of it")
            first.begin_sync().reply()
            rejoining = first.begin_join()
            others = [member for member in (second, third) if member.generation > 0]
            for member in others:
                member.heartbeat("hears of it, too")
                member.join() if member is others[-1] else member.begin_join()
            first.joined(rejoining)
            joiner.joined(pending)
            share(first, *[member for member in (second, third) if member.generation > 0])
        second.leave()
        describe(first, "two are left")
        for member in (first, third):
            member.heartbeat("hears that one left")
        rejoining = first.begin_join()
        third.join()
        first.joined(rejoining)
        third.heartbeat("while the leader assigns")
        share(first, third)
        first.leave("the leader leaves")
        third.join()
        share(third)
        third.leave()
        describe(third, "nobody is left")


@scenario
def commits_in_the_middle_of_a_rebalance(broker: Broker) -> None:
    first, second = people(broker, "committing", "first", "second")
    broker.prepare_topic("committing")
    first.join()
    first.commit("committing", 1, "commits before it has its assignment")
    share(first)
    first.commit("committing", 2)
    joining = second.begin_join()
    wait_for_members(first, 2)
    first.commit("committing", 3, "commits while the other waits")
    first.commit("committing", 3, "commits for an old generation", generation_id_or_member_epoch=0)
    first.commit("committing", 3, "commits as a stranger", member_id="stranger")
    first.commit("committing", 3, "commits as an instance", group_instance_id="stranger")
    first.commit("committing", 3, "commits as nobody", member_id="", generation_id_or_member_epoch=-1)
    first.join()
    second.joined(joining)
    first.commit("committing", 4, "commits while it should assign")
    second.commit("committing", 5, "commits while it should wait")
    share(first, second)
    second.commit("committing", 6)
    broker.call("OffsetFetch", 8, "what is committed", groups=[{"group_id": "committing", "topics": None}])
    first.leave()
    second.commit("committing", 7, "commits though it should join again")
    second.leave()
    second.commit("committing", 8, "commits after it left")
    second.commit("committing", 9, "commits as nobody", member_id="", generation_id_or_member_epoch=-1)
    broker.call("OffsetFetch", 8, "what is committed", groups=[{"group_id": "committing", "topics": None}])


@scenario
def members_change_protocol_one_by_one(broker: Broker) -> None:
    """The way from range to cooperative-sticky: every member first knows both, then only the new one."""
    first, second = people(broker, "upgrading", "first", "second")
    first.join()
    share(first)
    form(first, second)
    both = protocols("cooperative-sticky", "range")
    for member, other in ((first, second), (second, first)):
        member.protocols = both
        rejoining = member.begin_join()
        wait_for_state(first, "PreparingRebalance")
        other.join()
        member.joined(rejoining)
        name = "cooperative-sticky" if other.protocols == both else "range"
        syncing = second.begin_sync(protocol_name=name)
        first.begin_sync(second, protocol_name=name).reply()
        syncing.reply()
        describe(first, f"{member.name} knows both")
    for member, other in ((second, first), (first, second)):
        member.protocols = protocols("cooperative-sticky")
        rejoining = member.begin_join()
        wait_for_state(first, "PreparingRebalance")
        other.join()
        member.joined(rejoining)
        syncing = second.begin_sync()
        first.begin_sync(second).reply()
        syncing.reply()
        describe(first, f"{member.name} knows only the new one")
    late = Member(broker, "upgrading", "late", join_version=3)
    late.join()
    second.join(protocols=protocols("range"))


@scenario
def static_members_come_back(broker: Broker) -> None:
    broker.prepare_topic("static-pair")
    for version in (5, 8, 9):
        group = f"static-pair-v{version}"
        (first,) = people(broker, group, "first", instance="one", join_version=version)
        second = Member(broker, group, "second", instance="two", join_version=version)
        first.join()
        share(first)
        form(first, second)
        for member in (second, first):
            returned = Member(broker, group, f"{member.name} again", member.instance, version)
            returned.join()
            returned.begin_sync().reply()
            member.heartbeat("is fenced")
            member.commit("static-pair", 1, "commits though fenced")
            member.begin_sync().reply()
            member.join()
            member.leave("leaves though fenced")
            returned.heartbeat()
            returned.commit("static-pair", 2)
            describe(first, "nobody was disturbed")
        returned.leave("is removed by its instance", member_id="")
        describe(first, "one is left")


@scenario
def static_members_come_back_in_a_rebalance(broker: Broker) -> None:
    group = "static-rebalance"
    (first,) = people(broker, group, "first", instance="one")
    second = Member(broker, group, "second", instance="two")
    first.join()
    share(first)
    joining = second.begin_join()
    wait_for_members(first, 2)
    # The second one comes back while its first request still waits.
    returned = Member(broker, group, "second again", instance="two")
    rejoining = returned.begin_join()
    joining.reply()
    first.join()
    returned.joined(rejoining)
    # Again while its sync waits for the leader.
    syncing = returned.begin_sync()
    let_arrive()
    third = Member(broker, group, "second a third time", instance="two")
    rejoining = third.begin_join()
    syncing.reply()
    first.heartbeat("has to join again")
    first.join()
    third.joined(rejoining)
    share(first, third)
    # With another protocol a stable group rebalances.
    changed = Member(broker, group, "second changed", instance="two", protocols=protocols("range", topic="another"))
    changed.join()
    describe(first, "other topics, the same protocol")
    for member in (first, changed):
        member.heartbeat()


@scenario
def a_pending_member_holds_the_join_phase(broker: Broker) -> None:
    first, second = people(broker, "pending", "first", "second")
    first.join()
    share(first)
    asked = second.begin_join(protocols=protocols())  # takes its id and joins
    wait_for_members(first, 2)
    stranger = Member(broker, "pending", "pending")
    fields = {
        "group_id": "pending",
        "session_timeout_ms": LONG_MS,
        "rebalance_timeout_ms": LONG_MS,
        "protocol_type": "consumer",
        "protocols": protocols(),
    }
    reply = broker.call("JoinGroup", 9, "a third asks for an id and never uses it", member_id="", **fields)
    stranger.member_id = reply["member_id"]
    rejoining = first.begin_join()
    describe(first, "all but the pending one have come")
    stranger.heartbeat("the pending one lives", generation_id=1)
    stranger.begin_sync(generation_id=1).reply()
    stranger.leave("the pending one leaves")
    first.joined(rejoining)
    second.joined(asked)
    share(first, second)
    stranger.join(member_id=stranger.member_id)
    first.leave("twice", member_id="stranger")


@scenario
def members_that_fall_silent(broker: Broker) -> None:
    group = "silent"
    (first,) = people(broker, group, "first", rebalance_timeout_ms=SHORT_MS)
    second = Member(broker, group, "second", session_timeout_ms=SHORT_MS, rebalance_timeout_ms=SHORT_MS)
    first.join()
    share(first)
    form(first, second)
    wait_for_state(first, "PreparingRebalance")
    second.heartbeat("comes too late")
    second.begin_sync().reply()
    first.heartbeat("hears that the other is gone")
    first.join()
    share(first)
    # One joins, does not ask for its assignment in time, and is out.
    joining = second.begin_join(member_id="")
    wait_for_members(first, 2)
    first.join()
    second.joined(joining)
    first.begin_sync(second).reply()
    second.heartbeat("lives, but does not sync")
    wait_for_state(first, "PreparingRebalance")
    second.heartbeat("is out")
    first.join()
    # One does not come to the next generation, and is out.
    share(first)
    late = Member(broker, group, "late", rebalance_timeout_ms=SHORT_MS)
    joining = late.begin_join()
    late.joined(joining)
    describe(late, "without the one who did not come")
    first.heartbeat("did not come")
    late.leave()


@scenario
def groups_that_were_refused_their_first_member(broker: Broker) -> None:
    for name, fields in (
        ("no-protocols", {"protocols": []}),
        ("no-protocol-type", {"protocol_type": ""}),
    ):
        (member,) = people(broker, f"refused-{name}", "member", join_version=3)
        member.join(**fields)
        describe(member, "after the refusal")
        member.join()
        share(member)
