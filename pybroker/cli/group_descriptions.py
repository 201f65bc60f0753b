"""What is known of groups of both kinds, as documents.

Owns: the choice between ConsumerGroupDescribe (groups of KIP-848, epochs and target assignments included) and
DescribeGroups (classic groups), and one shape for both: what only the other kind has is ``None``.
"""

from __future__ import annotations

from typing import Any

from pybroker.cli.connection import retried
from pybroker.cli.failure import CommandFailed, describe_error_code
from pybroker.cli.group_offsets import committed_offsets, end_offsets
from pybroker.cli.wire_requests import CoordinatorType, ask, find_coordinators, is_served, raise_passing
from pybroker_protocol.errors import ErrorCode

# How DescribeGroups answers for a group that does not exist: Dead (up to version 5), or an error (version 6).
MISSING = "GroupIdNotFoundError"
# How ConsumerGroupDescribe says that it is not about this group, and that the broker serves no such groups.
NOT_OF_THIS_KIND = {ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION}
# The protocol that a member of a consumer group speaks, by its number; older brokers do not tell.
MEMBER_TYPES = {0: "classic", 1: "consumer"}


def describe_groups(client: Any, groups: list[str]) -> dict[str, dict[str, Any]]:
    """The documents of the groups that exist; raises ``CommandFailed`` for one that cannot be described."""
    found = retried(lambda: _describe_consumer_groups(client, groups))
    if classic := [group for group in groups if group not in found]:
        found |= _describe_classic_groups(client, classic)
    return found


def describe_existing(client: Any, groups: list[str]) -> list[dict[str, Any]]:
    """The groups' documents; raises ``CommandFailed`` for a group that does not exist."""
    found = describe_groups(client, groups)
    for group in groups:
        if group not in found:
            raise CommandFailed(f"group {group}: GROUP_ID_NOT_FOUND")
    return [found[group] for group in groups]


def _describe_consumer_groups(client: Any, groups: list[str]) -> dict[str, dict[str, Any]]:
    from pybroker_protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest

    documents: dict[str, dict[str, Any]] = {}
    if not is_served(client, ConsumerGroupDescribeRequest):
        return documents
    for node_id, keys in find_coordinators(client, groups, CoordinatorType.GROUP).items():
        request = ConsumerGroupDescribeRequest(group_ids=keys, include_authorized_operations=False)
        for group in ask(client, request, node_id).groups:
            raise_passing([group.error_code])
            if not group.error_code:
                documents[group.group_id] = _consumer_document(group)
            elif group.error_code not in NOT_OF_THIS_KIND:
                raise CommandFailed(f"group {group.group_id}: {describe_error_code(group.error_code)}")
    return documents


def _consumer_document(group: Any) -> dict[str, Any]:
    return {
        "group": group.group_id,
        "type": "consumer",
        "state": group.group_state,
        "protocol_type": "consumer",
        "assignor": group.assignor_name,
        "group_epoch": group.group_epoch,
        "assignment_epoch": group.assignment_epoch,
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "host": member.client_host,
                "partitions": _named(_partitions(member.assignment)),
                "protocol": MEMBER_TYPES.get(member.member_type),
                "rack_id": member.rack_id,
                "epoch": member.member_epoch,
                "subscribed_topics": sorted(member.subscribed_topic_names),
                "subscribed_regex": member.subscribed_topic_regex or None,
                "target_partitions": _named(_partitions(member.target_assignment)),
            }
            for member in sorted(group.members, key=lambda member: str(member.member_id))
        ],
        "owners": {at: member.member_id for member in group.members for at in _partitions(member.assignment)},
    }


def _partitions(assignment: Any) -> list[tuple[str, int]]:
    return sorted((topic.topic_name, index) for topic in assignment.topic_partitions for index in topic.partitions)


def _named(partitions: list[tuple[str, int]]) -> list[str]:
    return [f"{topic}-{partition}" for topic, partition in partitions]


def _describe_classic_groups(client: Any, groups: list[str]) -> dict[str, dict[str, Any]]:
    documents: dict[str, dict[str, Any]] = {}
    for group, description in retried(lambda: client.describe_groups(groups)).items():
        error = description["error"]
        if error and MISSING not in error:
            raise CommandFailed(f"group {group}: {error}")
        if not error and description["group_state"] != "Dead":
            documents[group] = _classic_document(group, description)
    return documents


def _classic_document(group: str, description: dict[str, Any]) -> dict[str, Any]:
    return {
        "group": group,
        "type": "classic",
        "state": description["group_state"],
        "protocol_type": description["protocol_type"],
        "assignor": description["protocol_data"],
        "group_epoch": None,
        "assignment_epoch": None,
        "members": [
            {
                "member_id": member["member_id"],
                "instance_id": member.get("group_instance_id"),
                "client_id": member["client_id"],
                "host": member["client_host"],
                "partitions": _named(assigned_partitions(member)),
                "protocol": "classic",
                "rack_id": None,
                "epoch": None,
                "subscribed_topics": None,
                "subscribed_regex": None,
                "target_partitions": None,
            }
            for member in description["members"]
        ],
        "owners": {at: member["member_id"] for member in description["members"] for at in assigned_partitions(member)},
    }


def assigned_partitions(member: dict[str, Any]) -> list[tuple[str, int]]:
    """The partitions of one member, from its decoded assignment; nothing for a protocol other than the consumer's."""
    assignment = member.get("member_assignment")
    if not isinstance(assignment, dict):
        return []
    return sorted(
        (topic["topic"], partition)
        for topic in assignment.get("assigned_partitions", [])
        for partition in topic["partitions"]
    )


def with_offsets(client: Any, document: dict[str, Any]) -> dict[str, Any]:
    """The document with the lag of every partition that is committed or assigned, in place of the owners."""
    from kafka import TopicPartition

    owners = {TopicPartition(*at): member_id for at, member_id in document["owners"].items()}
    committed = committed_offsets(client, document["group"])
    partitions = sorted(committed.keys() | owners.keys())
    ends = end_offsets(client, partitions)
    offsets: list[dict[str, Any]] = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "current_offset": committed.get(partition),
            "log_end_offset": ends.get(partition),
            "lag": lag_of(committed.get(partition), ends.get(partition)),
            "member_id": owners.get(partition),
        }
        for partition in partitions
    ]
    rest = {name: value for name, value in document.items() if name not in {"owners", "members"}}
    lag = sum(offset["lag"] or 0 for offset in offsets)
    return {**rest, "lag": lag, "members": document["members"], "offsets": offsets}


def lag_of(committed: int | None, end: int | None) -> int | None:
    """Records between the committed offset and the end; unknown when either is."""
    return None if committed is None or end is None else max(0, end - committed)
