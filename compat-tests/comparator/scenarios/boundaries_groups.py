"""The ends of every field of the requests of groups, of both protocols, and of their offsets."""

from __future__ import annotations

from typing import Any

from comparator.boundaries import vary
from comparator.broker import Broker
from comparator.encoding import Tree
from comparator.registry import scenario
from comparator.scenarios.groups import MEMBER_ID_REQUIRED, join_fields

TIMEOUT_MS = 60_000
OFFSETS_PARTITIONS = 5  # of run.PROPERTIES


def wait_for_all_coordinators(broker: Broker) -> None:
    """Names that differ in the last digit alone have coordinators beside each other."""
    for digit in range(OFFSETS_PARTITIONS):
        broker.wait_for_coordinator(f"ends-{digit}")


def quiet_member(broker: Broker, group: str) -> dict[str, Any]:
    """The only member of a new group, which has joined and is about to sync."""
    fields = join_fields(group, session_timeout_ms=TIMEOUT_MS, rebalance_timeout_ms=TIMEOUT_MS)
    reply = broker.quietly("JoinGroup", 3, **fields)
    assert reply["error_code"] == 0, reply
    return {"group_id": group, "generation_id": reply["generation_id"], "member_id": reply["member_id"]}


def quiet_commit(broker: Broker, group: str, topic: str) -> None:
    """The simple consumer's; the group is there afterwards, and has no members."""
    partitions = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": "m"}]
    broker.quietly("OffsetCommit", 9, group_id=group, topics=[{"name": topic, "partitions": partitions}])


@scenario
def find_coordinator(broker: Broker) -> None:
    wait_for_all_coordinators(broker)

    def ordinary(_version: int, _name: str) -> Tree:
        return {"key": "ends-1", "key_type": 0, "coordinator_keys": ["ends-1"]}

    vary(broker, "FindCoordinator", ordinary)


@scenario
def join_group(broker: Broker) -> None:
    wait_for_all_coordinators(broker)

    def ordinary(version: int, name: str) -> Tree:
        fields = join_fields(name, session_timeout_ms=TIMEOUT_MS, rebalance_timeout_ms=TIMEOUT_MS)
        asked = broker.quietly("JoinGroup", version, **fields) if version >= 4 else {"error_code": 0}
        return {**fields, "member_id": asked["member_id"] if asked["error_code"] == MEMBER_ID_REQUIRED else ""}

    shared = "the group is that of the version before, whose member would have to join again first"
    left_out = {
        "group_id: unknown": shared,
        "group_id: longest": shared,
        "protocols: twice": "Kafka never answers; groups.one_protocol_twice asks so",
    }
    vary(broker, "JoinGroup", ordinary, leave_out=left_out)


@scenario
def sync_group(broker: Broker) -> None:
    wait_for_all_coordinators(broker)

    def ordinary(_version: int, name: str) -> Tree:
        member = quiet_member(broker, name)
        assignments = [{"member_id": member["member_id"], "assignment": b"assignment"}]
        return {**member, "protocol_type": "consumer", "protocol_name": "range", "assignments": assignments}

    vary(broker, "SyncGroup", ordinary)


@scenario
def heartbeat(broker: Broker) -> None:
    wait_for_all_coordinators(broker)
    member = quiet_member(broker, "ends-heartbeat")
    vary(broker, "Heartbeat", lambda _version, _name: member)


@scenario
def leave_group(broker: Broker) -> None:
    wait_for_all_coordinators(broker)

    def ordinary(_version: int, name: str) -> Tree:
        member_id = quiet_member(broker, name)["member_id"]
        return {"group_id": name, "member_id": member_id, "members": [{"member_id": member_id}]}

    vary(broker, "LeaveGroup", ordinary)


@scenario
def offset_commit(broker: Broker) -> None:
    topic_id = broker.prepare_topic("ends-committed")
    wait_for_all_coordinators(broker)

    def ordinary(_version: int, _name: str) -> Tree:
        partitions = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": "m"}]
        topic = {"name": "ends-committed", "topic_id": topic_id, "partitions": partitions}
        return {"group_id": "ends-commit", "topics": [topic]}

    vary(broker, "OffsetCommit", ordinary)


@scenario
def offset_fetch(broker: Broker) -> None:
    topic_id = broker.prepare_topic("ends-fetched")
    wait_for_all_coordinators(broker)
    quiet_commit(broker, "ends-fetch", "ends-fetched")

    def ordinary(version: int, _name: str) -> Tree:
        if version < 8:
            topics = [{"name": "ends-fetched", "partition_indexes": [0]}]
            return {"group_id": "ends-fetch", "topics": topics}
        topic = {"name": "ends-fetched", "topic_id": topic_id, "partition_indexes": [0]}
        return {"groups": [{"group_id": "ends-fetch", "topics": [topic]}]}

    vary(broker, "OffsetFetch", ordinary)


@scenario
def offset_delete(broker: Broker) -> None:
    broker.prepare_topic("ends-forgotten")
    wait_for_all_coordinators(broker)

    def ordinary(_version: int, name: str) -> Tree:
        quiet_commit(broker, name, "ends-forgotten")
        return {"group_id": name, "topics": [{"name": "ends-forgotten", "partitions": [{"partition_index": 0}]}]}

    vary(broker, "OffsetDelete", ordinary)


@scenario
def describe_groups(broker: Broker) -> None:
    wait_for_all_coordinators(broker)
    quiet_member(broker, "ends-described")
    vary(broker, "DescribeGroups", lambda _version, _name: {"groups": ["ends-described"]})


@scenario
def list_groups(broker: Broker) -> None:
    wait_for_all_coordinators(broker)
    quiet_member(broker, "ends-listed")

    def of_this_scenario(reply: Tree) -> Tree:
        return {**reply, "groups": [group for group in reply["groups"] if group["group_id"] == "ends-listed"]}

    def ordinary(_version: int, _name: str) -> Tree:
        return {"states_filter": ["CompletingRebalance"], "types_filter": ["classic"]}

    vary(broker, "ListGroups", ordinary, narrow=of_this_scenario)


@scenario
def delete_groups(broker: Broker) -> None:
    broker.prepare_topic("ends-group-deleted")
    wait_for_all_coordinators(broker)

    def ordinary(_version: int, name: str) -> Tree:
        quiet_commit(broker, name, "ends-group-deleted")
        return {"groups_names": [name]}

    vary(broker, "DeleteGroups", ordinary)


@scenario
def consumer_group_heartbeat(broker: Broker) -> None:
    broker.prepare_topic("ends-kip848")
    wait_for_all_coordinators(broker)

    def ordinary(_version: int, name: str) -> Tree:
        joining = {"member_epoch": 0, "rebalance_timeout_ms": TIMEOUT_MS, "topic_partitions": []}
        names = {"group_id": name, "member_id": "member", "subscribed_topic_names": ["ends-kip848"]}
        return {**names, **joining}

    vary(broker, "ConsumerGroupHeartbeat", ordinary)


@scenario
def consumer_group_describe(broker: Broker) -> None:
    broker.prepare_topic("ends-kip848-described")
    wait_for_all_coordinators(broker)
    joining = {"member_epoch": 0, "rebalance_timeout_ms": TIMEOUT_MS, "topic_partitions": []}
    names = {"group_id": "ends-consumer", "member_id": "m", "subscribed_topic_names": ["ends-kip848-described"]}
    broker.quietly("ConsumerGroupHeartbeat", 1, **names, **joining)
    vary(broker, "ConsumerGroupDescribe", lambda _version, _name: {"group_ids": ["ends-consumer"]})
