"""Consumer groups of the classic protocol: membership, rebalances, and what administrators see."""

from __future__ import annotations

import struct
from typing import Any

from comparator.broker import Broker
from comparator.registry import scenario
from comparator.wire import Connection

SESSION_TIMEOUT_MS = 10_000
REBALANCE_TIMEOUT_MS = 10_000
FIRST_JOIN_VERSION_WITH_MEMBER_ID_REQUIRED = 4
MEMBER_ID_REQUIRED = 79


def protocols(*names: str, topic: str = "subscribed") -> list[dict[str, Any]]:
    """Each protocol with a subscription to one topic (ConsumerProtocolSubscription version 0, no user data).

    It has to be a sound one: from bytes that are not, Apache Kafka may read a length that it cannot allocate.
    """
    name = topic.encode()
    subscription = struct.pack(">hih", 0, 1, len(name)) + name + struct.pack(">i", -1)
    return [{"name": protocol, "metadata": subscription} for protocol in names or ("range",)]


def join_fields(group: str, **more: Any) -> dict[str, Any]:
    return {
        "group_id": group,
        "session_timeout_ms": SESSION_TIMEOUT_MS,
        "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": protocols(),
        **more,
    }


def join(broker: Broker, version: int, note: str, group: str, **more: Any) -> Any:
    """Join alone; a first reply that only names the member id is followed up with it."""
    fields = join_fields(group, **more)
    reply = broker.call("JoinGroup", version, note, **fields)
    if reply["error_code"] == MEMBER_ID_REQUIRED:
        fields["member_id"] = reply["member_id"]
        reply = broker.call("JoinGroup", version, f"{note}, with its id", **fields)
    return reply


def sync(broker: Broker, version: int, note: str, group: str, member: Any, **more: Any) -> Any:
    fields = {
        "group_id": group,
        "generation_id": member["generation_id"],
        "member_id": member["member_id"],
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": member["member_id"], "assignment": b"assignment"}],
        **more,
    }
    return broker.call("SyncGroup", version, note, **fields)


def heartbeat(broker: Broker, version: int, note: str, group: str, generation: int, member: str, **more: Any) -> Any:
    fields = {"group_id": group, "generation_id": generation, "member_id": member, **more}
    return broker.call("Heartbeat", version, note, **fields)


def leave(broker: Broker, version: int, note: str, group: str, member: str, instance: str | None = None) -> Any:
    members = [{"member_id": member, "group_instance_id": instance}]
    return broker.call("LeaveGroup", version, note, group_id=group, member_id=member, members=members)


@scenario
def find_coordinator_in_every_version(broker: Broker) -> None:
    broker.wait_for_coordinator("found")
    for version in broker.versions("FindCoordinator"):
        keys = {"key": "found", "coordinator_keys": ["found", "found-too"]}
        broker.call("FindCoordinator", version, "groups", key_type=0, **keys)
        empty = {"key": "", "coordinator_keys": [""]}
        broker.call("FindCoordinator", version, "an empty group", key_type=0, **empty)
        if version >= 1:
            broker.call("FindCoordinator", version, "no such type", key_type=9, **keys)
        if version >= 4:
            broker.call("FindCoordinator", version, "no keys", key_type=0, coordinator_keys=[])
    broker.call("FindCoordinator", 5, "share coordinator", key_type=2, coordinator_keys=["g:id:0"])
    broker.call("FindCoordinator", 6, "share coordinator, malformed", key_type=2, coordinator_keys=["nonsense"])


@scenario
def one_member_in_every_version(broker: Broker) -> None:
    for version in broker.versions("JoinGroup"):
        group = f"single-v{version}"
        broker.wait_for_coordinator(group)
        member = join(broker, version, "join", group)
        sync_version = min(version, broker.latest("SyncGroup"))
        heartbeat_version = min(version, broker.latest("Heartbeat"))
        sync(broker, sync_version, "sync", group, member)
        sync(broker, sync_version, "sync again", group, member, assignments=[])
        generation, member_id = member["generation_id"], member["member_id"]
        heartbeat(broker, heartbeat_version, "alive", group, generation, member_id)
        heartbeat(broker, heartbeat_version, "an older generation", group, generation - 1, member_id)
        heartbeat(broker, heartbeat_version, "a later generation", group, generation + 1, member_id)
        heartbeat(broker, heartbeat_version, "a stranger", group, generation, "stranger")
        leave_version = min(version, broker.latest("LeaveGroup"))
        leave(broker, leave_version, "a stranger", group, "stranger")
        leave(broker, leave_version, "leave", group, member_id)
        leave(broker, leave_version, "leave again", group, member_id)
        heartbeat(broker, heartbeat_version, "after leaving", group, generation, member_id)


@scenario
def joins_that_are_not_valid(broker: Broker) -> None:
    broker.wait_for_coordinator("invalid-join")
    broker.wait_for_coordinator("")
    for version in (0, 3, 5, 9):
        invalid: dict[str, dict[str, Any]] = {
            "empty group": {"group_id": ""},
            "session too short": {"session_timeout_ms": 1},
            "session too long": {"session_timeout_ms": 2**31 - 1},
            "negative session": {"session_timeout_ms": -1},
            "unknown member": {"member_id": "stranger"},
            "no protocols": {"protocols": []},
            "no protocol type": {"protocol_type": ""},
            "neither": {"protocols": [], "protocol_type": ""},
        }
        for note, fields in invalid.items():
            broker.call("JoinGroup", version, note, **join_fields("invalid-join", **fields))
    broker.call("JoinGroup", 9, "empty instance id", **join_fields("invalid-join", group_instance_id=""))


@scenario
def one_protocol_twice(broker: Broker) -> None:
    broker.wait_for_coordinator("protocol-twice")
    fields = join_fields("protocol-twice", protocols=protocols("range", "range"))
    broker.call_in_vain("JoinGroup", 3, "one protocol twice", **fields)


@scenario
def a_group_that_nobody_founded(broker: Broker) -> None:
    broker.wait_for_coordinator("nobody")
    for version in broker.versions("Heartbeat"):
        heartbeat(broker, version, "no such group", "nobody", 1, "m")
        heartbeat(broker, version, "empty group", "", 1, "m")
        heartbeat(broker, version, "empty member", "nobody", 1, "")
    for version in broker.versions("SyncGroup"):
        member = {"generation_id": 1, "member_id": "m"}
        sync(broker, version, "no such group", "nobody", member)
        sync(broker, version, "empty group", "", member)
    for version in broker.versions("LeaveGroup"):
        leave(broker, version, "no such group", "nobody", "m")
        leave(broker, version, "empty group", "", "m")
    broker.call("LeaveGroup", 5, "nobody leaves", group_id="nobody", members=[])


@scenario
def two_members_rebalance(broker: Broker) -> None:
    for version in (2, 5, 9):
        group = f"pair-v{version}"
        broker.wait_for_coordinator(group)
        sync_version = min(version, broker.latest("SyncGroup"))
        first = join(broker, version, "first", group, protocols=protocols("range", "roundrobin"))
        sync(broker, sync_version, "first", group, first)

        second_connection = broker.connect()
        second_fields = join_fields(group, protocols=protocols("roundrobin", "range"))
        if version >= FIRST_JOIN_VERSION_WITH_MEMBER_ID_REQUIRED:
            asked = broker.begin("JoinGroup", version, "second asks for an id", second_connection, **second_fields)
            second_fields["member_id"] = asked.reply()["member_id"]
        second = broker.begin("JoinGroup", version, "second", second_connection, **second_fields)
        _wait_for_state(broker, group, "PreparingRebalance")
        heartbeat(broker, 3, "the first hears of it", group, first["generation_id"], first["member_id"])
        sync(broker, sync_version, "too late to sync", group, first)
        again = join_fields(group, member_id=first["member_id"], protocols=protocols("range", "roundrobin"))
        broker.call("JoinGroup", version, "first again", **again)
        joined = second.reply()
        _follow_and_lead(broker, sync_version, group, first, joined, second_connection)
        broker.call("DescribeGroups", 5, "stable", groups=[group])
        leave(broker, 3, "second leaves", group, joined["member_id"])
        heartbeat(broker, 3, "a rebalance again", group, joined["generation_id"], first["member_id"])
        leave(broker, 3, "first leaves", group, first["member_id"])
        broker.call("DescribeGroups", 5, "empty", groups=[group])


def _follow_and_lead(
    broker: Broker, version: int, group: str, first: Any, joined: Any, second_connection: Connection
) -> None:
    """The follower's sync waits until the leader brings the assignments."""
    common = {"group_id": group, "generation_id": joined["generation_id"]}
    named = {"protocol_type": "consumer", "protocol_name": "range"}
    follower = broker.begin(
        "SyncGroup", version, "follower", second_connection, member_id=joined["member_id"], **common, **named
    )
    assignments = [
        {"member_id": first["member_id"], "assignment": b"for the first"},
        {"member_id": joined["member_id"], "assignment": b"for the second"},
        {"member_id": "stranger", "assignment": b"for a stranger"},
    ]
    lead = {"member_id": first["member_id"], "assignments": assignments}
    broker.call("SyncGroup", version, "leader", **lead, **common, **named)
    follower.reply()


@scenario
def members_that_do_not_fit(broker: Broker) -> None:
    group = "unfit"
    broker.wait_for_coordinator(group)
    first = join(broker, 9, "first", group)
    sync(broker, 5, "first", group, first)
    unfit: dict[str, dict[str, Any]] = {
        "no protocol in common": {"protocols": protocols("sticky")},
        "another protocol type": {"protocol_type": "connect"},
        "no protocols": {"protocols": []},
    }
    for note, fields in unfit.items():
        broker.call("JoinGroup", 3, note, **join_fields(group, **fields))
    sync(broker, 5, "another protocol name", group, first, protocol_name="sticky")
    sync(broker, 5, "another protocol type", group, first, protocol_type="connect")
    sync(broker, 5, "null protocol", group, first, protocol_name=None, protocol_type=None)
    sync(broker, 5, "a later generation", group, {**first, "generation_id": first["generation_id"] + 1})
    leave(broker, 5, "leave", group, first["member_id"])


@scenario
def static_members(broker: Broker) -> None:
    group = "static"
    broker.wait_for_coordinator(group)
    first = join(broker, 9, "static member", group, group_instance_id="one")
    sync(broker, 5, "static member", group, first, group_instance_id="one")
    heartbeat(broker, 4, "alive", group, first["generation_id"], first["member_id"], group_instance_id="one")
    again = join(broker, 9, "returns without its id", group, group_instance_id="one")
    sync(broker, 5, "returned", group, again, group_instance_id="one", assignments=[])
    generation = again["generation_id"]
    heartbeat(broker, 4, "the old id is fenced", group, generation, first["member_id"], group_instance_id="one")
    heartbeat(broker, 4, "an unknown instance", group, generation, again["member_id"], group_instance_id="two")
    heartbeat(broker, 4, "without its instance id", group, generation, again["member_id"])
    fenced = join_fields(group, member_id=first["member_id"], group_instance_id="one")
    broker.call("JoinGroup", 9, "the old id joins", **fenced)
    broker.call("DescribeGroups", 5, "with its instance", groups=[group])
    leave(broker, 5, "the wrong member", group, "stranger", "one")
    leave(broker, 5, "an unknown instance", group, "", "two")
    leave(broker, 5, "by an administrator", group, "", "one")
    broker.call("DescribeGroups", 5, "empty", groups=[group])


@scenario
def several_members_leave_at_once(broker: Broker) -> None:
    group = "leaving"
    broker.wait_for_coordinator(group)
    member = join(broker, 9, "member", group, group_instance_id="one")
    sync(broker, 5, "member", group, member, group_instance_id="one")
    members = [
        {"member_id": "stranger", "group_instance_id": None},
        {"member_id": "", "group_instance_id": "one"},
        {"member_id": "", "group_instance_id": "missing"},
    ]
    for version in (3, 5):
        broker.call("LeaveGroup", version, "one of three is there", group_id=group, members=members)


@scenario
def describe_list_and_delete(broker: Broker) -> None:
    group = "administered"
    broker.wait_for_coordinator(group)
    broker.wait_for_coordinator("administered-missing")
    member = join(broker, 9, "member", group)
    sync(broker, 5, "member", group, member)
    for version in broker.versions("DescribeGroups"):
        asked = {"groups": [group, "administered-missing", ""], "include_authorized_operations": True}
        broker.call("DescribeGroups", version, "stable, missing, empty name", **asked)
    broker.call("DescribeGroups", 5, "nothing", groups=[])
    for version in broker.versions("ListGroups"):
        listed = broker.quietly("ListGroups", version, states_filter=["Stable"], types_filter=["classic"])
        broker.note(f"listed in version {version}", [entry for entry in listed["groups"] if entry["group_id"] == group])
    broker.call("ListGroups", 5, "no group is in this state", states_filter=["Dead"])
    broker.call("ListGroups", 5, "no such state", states_filter=["Happy"])
    broker.call("ListGroups", 5, "no such type", types_filter=["happy"])
    broker.call("ListGroups", 5, "no share groups", types_filter=["share"])
    for version in broker.versions("DeleteGroups"):
        groups = [group, "administered-missing", ""]
        broker.call("DeleteGroups", version, "one with members, one missing", groups_names=groups)
    leave(broker, 5, "leave", group, member["member_id"])
    listed = broker.quietly("ListGroups", 5, states_filter=["empty"])
    broker.note("states in lower case", [entry for entry in listed["groups"] if entry["group_id"] == group])
    broker.call("DeleteGroups", 2, "empty by now", groups_names=[group])
    broker.call("DeleteGroups", 2, "deleted", groups_names=[group])
    broker.call("DeleteGroups", 2, "the same twice", groups_names=["administered-missing", "administered-missing"])
    broker.call("DeleteGroups", 2, "nothing", groups_names=[])
    broker.call("DescribeGroups", 5, "deleted", groups=[group])
    broker.call("DescribeGroups", 6, "deleted", groups=[group])


@scenario
def a_member_whose_session_ends(broker: Broker) -> None:
    group = "expiring"
    broker.wait_for_coordinator(group)
    member = join(broker, 9, "short session", group, session_timeout_ms=6000)
    sync(broker, 5, "member", group, member)
    _wait_for_state(broker, group, "Empty")
    heartbeat(broker, 4, "too late", group, member["generation_id"], member["member_id"])


def _wait_for_state(broker: Broker, group: str, state: str) -> None:
    def has_state() -> bool:
        reply = broker.quietly("DescribeGroups", 5, groups=[group])
        found: bool = reply["groups"][0]["group_state"] == state
        return found

    broker.wait_until(has_state, f"{group} to be {state}")
