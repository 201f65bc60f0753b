"""Classic groups and consumer groups: who is a member, of which generation, and who hears of a rebalance."""

from __future__ import annotations

import struct
from typing import Any

from comparator.wire import Connection, Tree
from harness.waiting import wait_until

from conformance.wire.asking import GROUP, Wire
from pybroker_protocol.errors import ErrorCode

JOIN, SYNC, HEARTBEAT, LEAVE = 9, 5, 4, 5
# Nobody's session ends while a test runs.
LONG_MS = 60_000
STRANGER = "stranger"


def subscription(topic: str) -> bytes:
    """ConsumerProtocolSubscription version 0: one topic, no user data."""
    name = topic.encode()
    return struct.pack(">hih", 0, 1, len(name)) + name + struct.pack(">i", -1)


class Member:
    """A member of a classic group, with a connection of its own for requests that wait."""

    def __init__(self, wire: Wire, group: str, instance: str | None = None, protocol: str = "range") -> None:
        self.connection: Connection = wire.connect()
        self.group = group
        self.instance = instance
        self.protocol = protocol
        self.topic = "subscribed"
        self.member_id = ""
        self.generation = -1

    def send_join(self, **more: Any) -> None:
        fields = {
            "group_id": self.group,
            "session_timeout_ms": LONG_MS,
            "rebalance_timeout_ms": LONG_MS,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            "protocol_type": "consumer",
            "protocols": [{"name": self.protocol, "metadata": subscription(self.topic)}],
            **more,
        }
        self.connection.send("JoinGroup", JOIN, fields)

    def joined(self) -> Tree:
        """The reply to a JoinGroup, remembered."""
        reply = self.connection.receive("JoinGroup", JOIN)
        if reply["error_code"] == 0:
            self.member_id, self.generation = reply["member_id"], reply["generation_id"]
        return reply

    def join(self, **more: Any) -> Tree:
        """Join; a dynamic member without an id is given one first."""
        if not self.member_id and self.instance is None:
            self.get_id()
        self.send_join(**more)
        return self.joined()

    def get_id(self) -> None:
        self.send_join()
        reply = self.joined()
        assert reply["error_code"] == ErrorCode.MEMBER_ID_REQUIRED, reply
        self.member_id = reply["member_id"]

    def send_sync(self, assignments: dict[str, bytes] | None = None, **more: Any) -> None:
        given = [{"member_id": member, "assignment": data} for member, data in (assignments or {}).items()]
        fields = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            "protocol_type": "consumer",
            "protocol_name": self.protocol,
            "assignments": given,
            **more,
        }
        self.connection.send("SyncGroup", SYNC, fields)

    def synced(self) -> Tree:
        return self.connection.receive("SyncGroup", SYNC)

    def sync(self, assignments: dict[str, bytes] | None = None, **more: Any) -> Tree:
        self.send_sync(assignments, **more)
        return self.synced()

    def heartbeat(self, **more: Any) -> int:
        fields = {"group_id": self.group, "generation_id": self.generation, "member_id": self.member_id}
        self.connection.send("Heartbeat", HEARTBEAT, {**fields, "group_instance_id": self.instance, **more})
        error: int = self.connection.receive("Heartbeat", HEARTBEAT)["error_code"]
        return error

    def leave(self, **more: Any) -> int:
        identity = {"member_id": self.member_id, "group_instance_id": self.instance, **more}
        self.connection.send("LeaveGroup", LEAVE, {"group_id": self.group, "members": [identity]})
        reply = self.connection.receive("LeaveGroup", LEAVE)
        assert reply["error_code"] == 0, reply
        error: int = reply["members"][0]["error_code"]
        return error

    def form(self) -> None:
        """Be a stable group of one."""
        assert self.join()["error_code"] == 0
        reply = self.sync({self.member_id: b"all"})
        assert (reply["error_code"], reply["assignment"]) == (0, b"all")


def wait_for_members(wire: Wire, group: str, count: int) -> None:
    """Wait until the JoinGroup of a newcomer has arrived."""

    def arrived() -> bool:
        (found,) = wire.ask("DescribeGroups", 5, groups=[group])["groups"]
        return len(found["members"]) == count

    wait_until(arrived, f"{count} members of {group}")


def state_of(wire: Wire, group: str) -> str:
    (found,) = wire.ask("DescribeGroups", 5, groups=[group])["groups"]
    state: str = found["group_state"]
    return state


# --- the coordinator -------------------------------------------------------------------------------------------------


def test_the_coordinator_is_one_of_the_brokers(wire: Wire, group: str) -> None:
    reply = wire.ask("FindCoordinator", 4, key_type=0, coordinator_keys=[group, f"{group}-too"])
    brokers = wire.ask("Metadata", 9, topics=[])["brokers"]
    known = [(broker["node_id"], broker["host"], broker["port"]) for broker in brokers]
    assert [found["key"] for found in reply["coordinators"]] == [group, f"{group}-too"]
    assert all((found["node_id"], found["host"], found["port"]) in known for found in reply["coordinators"])
    assert wire.ask("FindCoordinator", 3, key=group, key_type=9)["error_code"] == ErrorCode.INVALID_REQUEST


def test_the_topic_of_committed_offsets_is_internal(wire: Wire, group: str) -> None:
    (found,) = wire.ask("Metadata", 9, topics=[{"name": "__consumer_offsets"}], allow_auto_topic_creation=False)[
        "topics"
    ]
    assert (found["error_code"], found["is_internal"]) == (0, True)


# --- members ---------------------------------------------------------------------------------------------------------


def test_a_new_member_has_to_come_back_with_the_id_it_was_given(wire: Wire, group: str) -> None:
    member = Member(wire, group)
    member.get_id()
    given = member.member_id
    assert state_of(wire, group) in ("Empty", "Dead")
    reply = member.join()
    assert (reply["error_code"], reply["member_id"], reply["leader"]) == (0, given, given)
    assert [each["member_id"] for each in reply["members"]] == [given]
    assert reply["generation_id"] == 1


def test_a_member_that_nobody_knows_is_told_so(wire: Wire, group: str) -> None:
    member = Member(wire, group)
    member.form()
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert member.heartbeat(member_id=STRANGER) == unknown
    assert member.sync(member_id=STRANGER)["error_code"] == unknown
    assert member.leave(member_id=STRANGER) == unknown
    assert Member(wire, group).join(member_id=STRANGER)["error_code"] == unknown
    assert member.heartbeat() == 0


def test_another_generation_is_refused(wire: Wire, group: str) -> None:
    member = Member(wire, group)
    member.form()
    illegal = ErrorCode.ILLEGAL_GENERATION
    for generation in (member.generation - 1, member.generation + 1):
        assert member.heartbeat(generation_id=generation) == illegal
        assert member.sync(generation_id=generation)["error_code"] == illegal
    assert member.heartbeat() == 0


def test_a_newcomer_makes_the_others_join_again(wire: Wire, group: str) -> None:
    first, second = Member(wire, group), Member(wire, group)
    first.form()
    second.get_id()
    assert first.heartbeat() == 0
    second.send_join()
    wait_for_members(wire, group, 2)
    assert first.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    first.send_join()
    replies = [member.joined() for member in (first, second)]
    assert [reply["generation_id"] for reply in replies] == [2, 2]
    assert {reply["leader"] for reply in replies} == {first.member_id}
    # Only the leader is told who the members are.
    assert [len(reply["members"]) for reply in replies] == [2, 0]


def two_joined(wire: Wire, group: str) -> tuple[Member, Member]:
    """The leader and a follower of a second generation, before anybody has synced."""
    first, second = Member(wire, group), Member(wire, group)
    first.form()
    second.get_id()
    second.send_join()
    wait_for_members(wire, group, 2)
    first.send_join()
    for member in (first, second):
        member.joined()
    return first, second


def test_a_follower_waits_for_the_leaders_assignment(wire: Wire, group: str) -> None:
    first, second = two_joined(wire, group)
    second.send_sync()
    assert first.sync({first.member_id: b"1st", second.member_id: b"2nd"})["assignment"] == b"1st"
    assert second.synced()["assignment"] == b"2nd"
    assert state_of(wire, group) == "Stable"


def test_a_member_that_leaves_starts_a_rebalance(wire: Wire, group: str) -> None:
    first, second = two_joined(wire, group)
    first.sync({first.member_id: b"1", second.member_id: b"2"})
    second.sync()
    assert second.leave() == 0
    assert second.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert first.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_members_have_a_protocol_in_common(wire: Wire, group: str) -> None:
    Member(wire, group).form()
    other = Member(wire, group, protocol="other")
    other.send_join()
    assert other.joined()["error_code"] == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    other.send_join(protocol_type="connect")
    assert other.joined()["error_code"] == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_session_timeout_has_bounds(wire: Wire, group: str) -> None:
    for timeout_ms in (1, 2**31 - 1):
        member = Member(wire, group)
        member.send_join(session_timeout_ms=timeout_ms)
        assert member.joined()["error_code"] == ErrorCode.INVALID_SESSION_TIMEOUT


def test_a_group_has_a_name(wire: Wire) -> None:
    member = Member(wire, "")
    member.send_join()
    assert member.joined()["error_code"] == ErrorCode.INVALID_GROUP_ID


# --- static members --------------------------------------------------------------------------------------------------


def test_a_static_member_that_comes_back_disturbs_nobody(wire: Wire, group: str) -> None:
    static = Member(wire, group, instance="one")
    static.form()
    back = Member(wire, group, instance="one")
    assert back.join()["error_code"] == 0
    assert back.generation == static.generation
    assert back.member_id != static.member_id
    assert back.sync()["assignment"] == b"all"
    assert state_of(wire, group) == "Stable"


def test_whoever_was_replaced_is_fenced(wire: Wire, group: str) -> None:
    static = Member(wire, group, instance="one")
    static.form()
    back = Member(wire, group, instance="one")
    back.join()
    assert static.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
    assert static.sync()["error_code"] == ErrorCode.FENCED_INSTANCE_ID
    assert back.heartbeat() == 0
    assert back.heartbeat(group_instance_id="two") == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_administrator_removes_a_static_member_by_its_instance(wire: Wire, group: str) -> None:
    static = Member(wire, group, instance="one")
    static.form()
    assert static.leave(member_id="", group_instance_id="two") == ErrorCode.UNKNOWN_MEMBER_ID
    assert static.leave(member_id="") == 0
    assert static.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


# --- what administrators see -----------------------------------------------------------------------------------------


def test_a_group_that_is_not_there_is_dead_or_not_found(wire: Wire, group: str) -> None:
    for version, error in ((5, ErrorCode.NONE), (6, ErrorCode.GROUP_ID_NOT_FOUND)):
        (found,) = wire.ask("DescribeGroups", version, groups=[group])["groups"]
        assert (found["error_code"], found["group_state"]) == (error, "Dead")


def test_groups_are_listed_by_their_states(wire: Wire, group: str) -> None:
    Member(wire, group).form()
    for states, is_listed in ((["Stable"], True), (["Empty"], False), ([], True)):
        groups = wire.ask("ListGroups", 5, states_filter=states, types_filter=[])["groups"]
        assert (group in [found["group_id"] for found in groups]) is is_listed


def test_a_group_with_members_is_not_deleted(wire: Wire, group: str) -> None:
    member = Member(wire, group)
    member.form()

    def delete(*groups: str) -> list[int]:
        results = wire.ask("DeleteGroups", 2, groups_names=list(groups))["results"]
        codes = {found["group_id"]: found["error_code"] for found in results}
        return [codes[name] for name in groups]

    other = wire.name_of(GROUP)
    assert delete(group, other) == [ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND]
    member.leave()
    assert delete(group) == [ErrorCode.NONE]


# --- consumer groups (KIP-848) ---------------------------------------------------------------------------------------


def beat(wire: Wire, group: str, epoch: int, member: str = "one", **more: Any) -> Tree:
    fields = {
        "group_id": group,
        "member_id": member,
        "member_epoch": epoch,
        "rebalance_timeout_ms": -1,
        "subscribed_topic_names": None,
        "topic_partitions": None,
        **more,
    }
    return wire.ask("ConsumerGroupHeartbeat", 1, **fields)


def join_consumer_group(wire: Wire, group: str, topic: str, member: str = "one") -> Tree:
    more = {"rebalance_timeout_ms": LONG_MS, "subscribed_topic_names": [topic], "topic_partitions": []}
    return beat(wire, group, 0, member, **more)


def test_the_broker_assigns_to_the_members_of_a_consumer_group(wire: Wire, group: str) -> None:
    topic = wire.topic(partitions=2)
    reply = join_consumer_group(wire, group, topic)
    assert reply["error_code"] == 0, reply
    (assigned,) = reply["assignment"]["topic_partitions"]
    assert assigned == {"topic_id": wire.topic_id(topic), "partitions": [0, 1]}
    assert beat(wire, group, reply["member_epoch"])["assignment"] is None


def test_members_of_a_consumer_group_are_fenced_by_their_epoch(wire: Wire, group: str) -> None:
    topic = wire.topic()
    epoch = join_consumer_group(wire, group, topic)["member_epoch"]
    assert beat(wire, group, epoch + 10)["error_code"] == ErrorCode.FENCED_MEMBER_EPOCH
    assert beat(wire, group, epoch, member=STRANGER)["error_code"] == ErrorCode.UNKNOWN_MEMBER_ID
    assert beat(wire, group, epoch)["error_code"] == 0
    assert beat(wire, group, -1)["member_epoch"] == -1
    assert beat(wire, group, epoch)["error_code"] == ErrorCode.UNKNOWN_MEMBER_ID


def test_members_of_a_consumer_group_commit_with_their_epoch(wire: Wire, group: str) -> None:
    topic = wire.topic()
    epoch = join_consumer_group(wire, group, topic)["member_epoch"]

    def commit(member_epoch: int) -> int:
        partition = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
        topics = [{"name": topic, "partitions": [partition]}]
        member = {"member_id": "one", "generation_id_or_member_epoch": member_epoch}
        reply = wire.ask("OffsetCommit", 9, group_id=group, topics=topics, **member)
        error: int = reply["topics"][0]["partitions"][0]["error_code"]
        return error

    assert commit(epoch) == 0
    assert commit(epoch + 1) == ErrorCode.STALE_MEMBER_EPOCH
