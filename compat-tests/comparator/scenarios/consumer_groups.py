"""Consumer groups of the new protocol (KIP-848), step by step: who is told what, and when, and what is refused."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

from comparator.broker import Broker
from comparator.registry import scenario
from comparator.scenarios.classic_groups import Member as ClassicMember
from comparator.scenarios.groups import join, join_fields, protocols

JOIN, LEAVE, LEAVE_STATIC = 0, -1, -2
NEVER_MS = 60_000
GROUP_RESOURCE = 32


def prepare(broker: Broker, group: str, interval_ms: int = 0, **settings: int) -> None:
    """Wait for the group's coordinator, and let the group assign as often as it wants, so that nothing has to wait."""
    broker.wait_for_coordinator(group)
    values = {"consumer.assignment.interval.ms": interval_ms}
    values.update({f"consumer.{name}".replace("_", "."): value for name, value in settings.items()})
    configs = [{"name": name, "config_operation": 0, "value": str(value)} for name, value in values.items()]
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": group, "configs": configs}
    reply = broker.quietly("IncrementalAlterConfigs", 1, resources=[resource], validate_only=False)
    assert reply["responses"][0]["error_code"] == 0, reply

    def took_effect() -> bool:
        asked = {"resource_type": GROUP_RESOURCE, "resource_name": group, "configuration_keys": list(values)}
        described = broker.quietly("DescribeConfigs", 4, resources=[asked])
        found = {entry["name"]: entry["value"] for entry in described["results"][0]["configs"]}
        return all(found.get(name) == str(value) for name, value in values.items())

    broker.wait_until(took_effect, f"the settings of {group}")


@dataclass
class Member:
    """A member that remembers what it was told, and says that it owns just that."""

    broker: Broker
    group: str
    name: str
    topics: list[str] | None = None
    instance: str | None = None
    version: int = 1
    epoch: int = JOIN
    owned: list[dict[str, Any]] = field(default_factory=list)
    label: str = ""

    def beat(self, note: str, **more: Any) -> Any:
        """A heartbeat with nothing new in it, unless told otherwise."""
        fields: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.name,
            "member_epoch": self.epoch,
            "instance_id": self.instance,
            "rebalance_timeout_ms": -1,
            "topic_partitions": None,
            "subscribed_topic_names": None,
            **more,
        }
        reply = self.broker.call("ConsumerGroupHeartbeat", self.version, f"{self.label or self.name}: {note}", **fields)
        if reply["error_code"] == 0:
            self.name, self.epoch = reply["member_id"], reply["member_epoch"]
            if reply["assignment"] is not None:
                self.owned = reply["assignment"]["topic_partitions"]
        return reply

    def join(self, note: str = "joins", **more: Any) -> Any:
        self.epoch, self.owned = JOIN, []
        return self.beat(
            note,
            **{
                "rebalance_timeout_ms": NEVER_MS,
                "subscribed_topic_names": self.topics,
                "topic_partitions": [],
                **more,
            },
        )

    def acknowledge(self) -> Any:
        """Say what is owned now: what was to be given up is, and what was given is there."""
        return self.beat("owns what it was told", topic_partitions=self.owned)

    def leave(self, epoch: int = LEAVE) -> Any:
        return self.beat("leaves" if epoch == LEAVE else "leaves for a while", member_epoch=epoch)


def describe(broker: Broker, group: str, note: str, version: int = 1) -> Any:
    return broker.call("ConsumerGroupDescribe", version, note, group_ids=[group], include_authorized_operations=False)


def settle(*members: Member) -> None:
    for _ in range(2):
        for member in members:
            member.beat("is there")
            member.acknowledge()


@scenario
def one_member_in_every_version(broker: Broker) -> None:
    broker.prepare_topic("kip848-one", 3)
    for version in broker.versions("ConsumerGroupHeartbeat"):
        group = f"kip848-one-v{version}"
        prepare(broker, group)
        member = Member(broker, group, "" if version == 0 else "one", ["kip848-one"], version=version, label="one")
        member.join()
        describe(broker, group, "joined", version)
        member.beat("is there")
        member.acknowledge()
        full = {"rebalance_timeout_ms": NEVER_MS, "subscribed_topic_names": ["kip848-one"]}
        member.beat("says everything", topic_partitions=member.owned, **full)
        member.beat("other topics", subscribed_topic_names=["kip848-one", "kip848-none"])
        member.beat("another assignor", server_assignor="range")
        member.beat("another rack", rack_id="r")
        describe(broker, group, "changed", version)
        member.leave()
        member.leave()
        describe(broker, group, "empty", version)


@scenario
def members_come_and_go(broker: Broker) -> None:
    broker.prepare_topic("kip848-many", 6)
    group = "kip848-many"
    prepare(broker, group)
    first, second, third = (Member(broker, group, name, ["kip848-many"]) for name in ("first", "second", "third"))
    first.join()
    second.join()
    describe(broker, group, "second has nothing yet")
    second.beat("waits")
    first.beat("has to give up")
    describe(broker, group, "first gives up")
    second.beat("waits")
    first.acknowledge()
    second.beat("gets its share")
    second.acknowledge()
    describe(broker, group, "both have a share")
    third.join()
    second.beat("has to give up")
    first.beat("has to give up")
    second.acknowledge()
    third.beat("gets some")
    first.acknowledge()
    third.beat("gets the rest")
    settle(first, second, third)
    describe(broker, group, "three")
    # Who gets which partition goes by hashes in one broker and by names in the other, so all go to one.
    first.leave()
    third.leave()
    describe(broker, group, "two have left")
    settle(second)
    describe(broker, group, "one")
    for api, version in (("DescribeGroups", 5), ("DescribeGroups", 6)):
        broker.call(api, version, "of the other kind", groups=[group])
    for types, states in ((["consumer"], []), (["classic"], []), (["Consumer"], ["stable"]), ([], ["Assigning"])):
        listed = broker.quietly("ListGroups", 5, states_filter=states, types_filter=types)
        broker.note(f"listed by {types} {states}", [each for each in listed["groups"] if each["group_id"] == group])
    broker.call("DeleteGroups", 2, "not empty", groups_names=[group])
    second.leave()
    broker.call("DeleteGroups", 2, "empty", groups_names=[group])
    describe(broker, group, "deleted")


@scenario
def assignments_keep_their_distance(broker: Broker) -> None:
    broker.prepare_topic("kip848-interval", 2)
    group = "kip848-interval"
    prepare(broker, group, NEVER_MS // 4)
    first, second = (Member(broker, group, name, ["kip848-interval"]) for name in ("first", "second"))
    first.join()
    second.join()
    describe(broker, group, "second is not assigned yet")
    first.beat("is there")
    prepare(broker, group, 0)
    second.beat("makes the group assign")
    describe(broker, group, "assigned")


@scenario
def requests_that_are_not_valid(broker: Broker) -> None:
    topic_id = broker.prepare_topic("kip848-invalid")
    group = "kip848-invalid"
    prepare(broker, group)
    broker.wait_for_coordinator("kip848-nowhere")
    member = Member(broker, group, "member", ["kip848-invalid"])
    owned = [{"topic_id": topic_id, "partitions": [0]}]
    invalid: dict[str, dict[str, Any]] = {
        "no group": {"group_id": ""},
        "no member": {"member_id": ""},
        "blank member": {"member_id": " "},
        "no instance": {"instance_id": ""},
        "no rack": {"rack_id": ""},
        "no rebalance timeout": {"rebalance_timeout_ms": -1},
        "owns something": {"topic_partitions": owned},
        "does not say what it owns": {"topic_partitions": None},
        "subscribes to nothing": {"subscribed_topic_names": None},
        "an assignor that is not there": {"server_assignor": "sticky"},
        "an empty assignor": {"server_assignor": ""},
        "an epoch too low": {"member_epoch": -3},
        "leaves without an instance": {"member_epoch": LEAVE_STATIC},
        "not a regular expression": {"subscribed_topic_names": None, "subscribed_topic_regex": "("},
        "a regular expression of Java": {"subscribed_topic_names": None, "subscribed_topic_regex": "(?=a)b"},
    }
    for note, fields in invalid.items():
        member.join(note, **fields)
    for version in (0, 1):
        stranger = Member(broker, "kip848-nowhere", "stranger", version=version, epoch=5)
        stranger.beat("of a group that is not there")
        stranger.leave()
    member.join("with nothing to read", subscribed_topic_names=[])
    member.beat("no such topic", subscribed_topic_names=["kip848-none"])
    member.leave()
    groups = [group, "kip848-nowhere", ""]
    for version in broker.versions("ConsumerGroupDescribe"):
        for with_operations in (False, True):
            fields = {"group_ids": groups, "include_authorized_operations": with_operations}
            broker.call("ConsumerGroupDescribe", version, "some that are not there", **fields)


@scenario
def members_are_fenced(broker: Broker) -> None:
    topic_id = broker.prepare_topic("kip848-fenced", 2)
    group = "kip848-fenced"
    prepare(broker, group)
    member = Member(broker, group, "member", ["kip848-fenced"])
    member.join()
    epoch = member.epoch
    member.beat("a later epoch", member_epoch=epoch + 1)
    member.beat("an earlier epoch", member_epoch=epoch - 1)
    member.beat("a stranger", member_id="stranger")
    member.beat("moves on", subscribed_topic_names=["kip848-fenced", "kip848-other"])
    for note, owned in (
        ("says nothing", None),
        ("what it has", [{"topic_id": topic_id, "partitions": [0]}]),
        ("what it does not have", [{"topic_id": topic_id, "partitions": [7]}]),
        ("another topic", [{"topic_id": bytes(15) + b"\x77", "partitions": [0]}]),
    ):
        member.beat(f"lost the response, owns: {note}", member_epoch=epoch, topic_partitions=owned)
    member.join("joins anew")
    member.beat("is there")
    describe(broker, group, "one member")


@scenario
def static_members(broker: Broker) -> None:
    broker.prepare_topic("kip848-static", 4)
    group = "kip848-static"
    prepare(broker, group)
    first = Member(broker, group, "first", ["kip848-static"], instance="one")
    second = Member(broker, group, "second", ["kip848-static"], instance="two")
    thief = Member(broker, group, "thief", ["kip848-static"], instance="one")
    first.join()
    second.join()
    settle(first, second)
    thief.join("the instance is in use")
    thief.beat("with its epoch", member_epoch=first.epoch)
    thief.leave()
    Member(broker, group, "first", instance="three", epoch=first.epoch).beat("another instance")
    first.leave(LEAVE_STATIC)
    describe(broker, group, "first is away")
    second.beat("keeps what it has")
    back = Member(broker, group, "back", ["kip848-static"], instance="one")
    back.join("comes back")
    describe(broker, group, "first is back")
    first.beat("is fenced")
    back.leave(LEAVE_STATIC)
    changed = Member(broker, group, "changed", ["kip848-static", "kip848-none"], instance="one")
    changed.join("comes back with other topics")
    settle(changed, second)
    describe(broker, group, "settled")
    changed.leave()
    describe(broker, group, "left for good")


@scenario
def topics_change_under_a_group(broker: Broker) -> None:
    broker.prepare_topic("kip848-grows", 2)
    group = "kip848-topics"
    prepare(broker, group)
    member = Member(broker, group, "member", ["kip848-grows", "kip848-comes"])
    member.join()

    def until(partitions: int) -> None:
        """Beat until so many partitions are assigned; how many beats that takes is a matter of timing."""

        def assigned() -> bool:
            reply = broker.quietly(
                "ConsumerGroupHeartbeat",
                1,
                group_id=group,
                member_id="member",
                member_epoch=member.epoch,
                rebalance_timeout_ms=NEVER_MS,
                subscribed_topic_names=member.topics,
                topic_partitions=member.owned,
            )
            assert reply["error_code"] == 0, reply
            member.epoch = reply["member_epoch"]
            member.owned = reply["assignment"]["topic_partitions"]
            return sum(len(topic["partitions"]) for topic in member.owned) == partitions

        broker.wait_until(assigned, f"{partitions} partitions of {group}")

    broker.prepare_topic("kip848-comes", 1)
    until(3)
    describe(broker, group, "a topic has come")
    growing = {"name": "kip848-grows", "count": 4, "assignments": None}
    broker.quietly("CreatePartitions", 3, topics=[growing], timeout_ms=10_000, validate_only=False)
    until(5)
    describe(broker, group, "a topic has grown")


@scenario
def regular_expressions(broker: Broker) -> None:
    broker.prepare_topic("kip848-regex-a", 2)
    broker.prepare_topic("kip848-regex-b", 1)
    for topic in ("kip848-regex-a", "kip848-regex-b"):
        broker.call("Metadata", 12, "", topics=[{"name": topic}], allow_auto_topic_creation=False)
    group = "kip848-regex"
    prepare(broker, group)
    member = Member(broker, group, "member")
    member.join("by a regular expression", subscribed_topic_regex="kip848-regex-.*")

    def resolved() -> bool:
        described = broker.quietly("ConsumerGroupDescribe", 1, group_ids=[group], include_authorized_operations=False)
        return bool(described["groups"][0]["group_epoch"] > member.epoch)

    broker.wait_until(resolved, "the regular expression")
    member.beat("gets what it matches")
    describe(broker, group, "resolved")
    other = Member(broker, group, "other")
    other.join("the same expression", subscribed_topic_regex="kip848-regex-.*")
    other.beat("not an expression", subscribed_topic_regex="[")
    member.beat("topics by name instead", subscribed_topic_regex="", subscribed_topic_names=["kip848-regex-b"])
    settle(member, other)
    describe(broker, group, "one of each")
    other.leave()
    settle(member)
    describe(broker, group, "no expression is left")


@scenario
def offsets_of_members(broker: Broker) -> None:
    topic_id = broker.prepare_topic("kip848-offsets", 2)
    broker.prepare_topic("kip848-offsets-too", 1)
    group = "kip848-offsets"
    prepare(broker, group)
    member = Member(broker, group, "member", ["kip848-offsets"])
    member.join()
    epoch = member.epoch
    member.beat("moves on", subscribed_topic_names=["kip848-offsets", "kip848-offsets-too"])

    def commit(version: int, note: str, member_id: str, member_epoch: int, partition: int = 0) -> None:
        partitions = [{"partition_index": partition, "committed_offset": 5, "committed_metadata": ""}]
        topic = {"name": "kip848-offsets", "topic_id": topic_id, "partitions": partitions}
        fields = {"group_id": group, "generation_id_or_member_epoch": member_epoch, "member_id": member_id}
        broker.call("OffsetCommit", version, note, topics=[topic], **fields)

    for version in (8, 9, 10):
        commit(version, "its epoch", "member", member.epoch)
        commit(version, "its epoch before", "member", epoch)
        commit(version, "an epoch before it had anything", "member", 1)
        commit(version, "an epoch to come", "member", member.epoch + 1)
        commit(version, "a stranger", "stranger", member.epoch)
        commit(version, "nobody", "", -1)
    commit(9, "a partition that it does not have", "member", epoch, partition=1)
    for version in (9, 10):
        topic = {"name": "kip848-offsets", "topic_id": topic_id, "partition_indexes": [0, 1]}
        for note, member_id, member_epoch in (
            ("nobody", None, -1),
            ("its epoch", "member", member.epoch),
            ("another epoch", "member", epoch),
            ("a stranger", "stranger", member.epoch),
            ("only an epoch", None, member.epoch),
        ):
            asked = {"group_id": group, "member_id": member_id, "member_epoch": member_epoch, "topics": [topic]}
            broker.call("OffsetFetch", version, note, groups=[asked])
    deleted = [{"name": "kip848-offsets", "partitions": [{"partition_index": 0}]}]
    broker.call("OffsetDelete", 0, "subscribed", group_id=group, topics=deleted)
    member.leave()
    broker.call("OffsetDelete", 0, "empty group", group_id=group, topics=deleted)


@scenario
def sessions_and_rebalances_time_out(broker: Broker) -> None:
    broker.prepare_topic("kip848-timeouts", 2)
    group = "kip848-timeouts"
    prepare(broker, group)
    slow = Member(broker, group, "slow", ["kip848-timeouts"])
    slow.join(rebalance_timeout_ms=1_000)
    other = Member(broker, group, "other", ["kip848-timeouts"])
    other.join()
    slow.beat("has to give up")

    def timed_out() -> bool:
        fields = {"group_ids": [group], "include_authorized_operations": False}
        described = broker.quietly("ConsumerGroupDescribe", 1, **fields)
        return len(described["groups"][0]["members"]) == 1

    broker.wait_until(timed_out, f"one member left in {group}")
    slow.beat("was too slow")
    other.beat("gets everything")
    describe(broker, group, "one is left")


@scenario
def a_group_changes_its_protocol_and_back(broker: Broker) -> None:
    broker.prepare_topic("kip848-moves", 4)
    group = "kip848-migration"
    prepare(broker, group)
    classic = ClassicMember(broker, group, "classic", protocols=protocols(topic="kip848-moves"))
    classic.join()
    # A real assignment, so that it does not depend on names or hashes who keeps what.
    everything = struct.pack(">hih12s5ii", 0, 1, 12, b"kip848-moves", 4, 0, 1, 2, 3, -1)
    classic.begin_sync(classic, assignments=[{"member_id": classic.member_id, "assignment": everything}]).reply()
    broker.call("ConsumerGroupDescribe", 1, "still classic", group_ids=[group], include_authorized_operations=False)
    new = Member(broker, group, "new", ["kip848-moves"])
    new.join("makes it a consumer group")
    describe(broker, group, "a consumer group")
    _classic_heartbeat(broker, classic, "has to join again")
    _classic_join(broker, classic)
    _classic_sync(broker, classic)
    settle(new)
    _classic_heartbeat(broker, classic, "may have to join again")
    _classic_join(broker, classic)
    _classic_sync(broker, classic)
    describe(broker, group, "both have a share")
    new.leave()
    broker.call("DescribeGroups", 6, "classic again", groups=[group])
    _classic_heartbeat(broker, classic, "has to join the classic group")


def _classic_heartbeat(broker: Broker, member: ClassicMember, note: str) -> None:
    fields = {"group_id": member.group, "generation_id": member.generation, "member_id": member.member_id}
    broker.call("Heartbeat", 4, note, **fields)


def _classic_join(broker: Broker, member: ClassicMember) -> None:
    fields = join_fields(member.group, member_id=member.member_id, protocols=member.protocols)
    reply = broker.call("JoinGroup", 9, "a classic member", **fields)
    member.generation = reply["generation_id"]


def _classic_sync(broker: Broker, member: ClassicMember) -> None:
    fields = {"group_id": member.group, "generation_id": member.generation, "member_id": member.member_id}
    named = {"protocol_type": "consumer", "protocol_name": "range", "assignments": []}
    broker.call("SyncGroup", 5, "a classic member", **fields, **named)


@scenario
def classic_requests_to_a_consumer_group(broker: Broker) -> None:
    broker.prepare_topic("kip848-classic", 2)
    group = "kip848-classic"
    prepare(broker, group)
    member = Member(broker, group, "member", ["kip848-classic"])
    member.join()
    for generation in (member.epoch, member.epoch + 1):
        asked = {"group_id": group, "generation_id": generation}
        for member_id in ("member", "stranger"):
            broker.call("Heartbeat", 4, f"{member_id} at {generation - member.epoch}", member_id=member_id, **asked)
            broker.call("SyncGroup", 5, f"{member_id} at {generation - member.epoch}", member_id=member_id, **asked)
    broker.call("JoinGroup", 9, "another type", **join_fields(group, protocol_type="connect", member_id="x"))
    broker.call("JoinGroup", 9, "no protocol", **join_fields(group, protocols=[], member_id="x"))
    identities = [
        {"member_id": "stranger", "group_instance_id": None},
        {"member_id": "", "group_instance_id": "nobody"},
        {"member_id": "member", "group_instance_id": None},
    ]
    broker.call("LeaveGroup", 5, "everybody", group_id=group, members=identities)
    describe(broker, group, "empty")
    broker.call("Heartbeat", 4, "an empty group", group_id=group, generation_id=member.epoch, member_id="member")
    broker.call("SyncGroup", 5, "an empty group", group_id=group, generation_id=member.epoch, member_id="member")
    join(broker, 9, "makes it a classic group", group)
    describe(broker, group, "a classic group")
