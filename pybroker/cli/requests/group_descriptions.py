"""What is known of groups of both kinds, as documents.

Owns: the choice between ConsumerGroupDescribe (groups of KIP-848, epochs and target assignments included) and
DescribeGroups (classic groups), and one shape for both: what only the other kind has is ``None``.

Members of a classic group need not be consumers: those of Kafka Connect and of schema registries, for example, give
each other assignments of their own form.  Such a member has no partitions here.
"""

from __future__ import annotations

from typing import Any

from pybroker.cli.connection.admin_client import AdminClient
from pybroker.cli.connection.retries import retried
from pybroker.cli.requests import group_requests
from pybroker.cli.requests.group_offsets import committed_offsets, end_offsets
from pybroker.cli.requests.partition_leaders import Partition
from pybroker.cli.requests.wire_requests import CoordinatorType, find_coordinators, raise_passing
from pybroker.cli.terminal.error_names import refused
from pybroker.cli.terminal.failure import CommandFailed
from pybroker_protocol import codec
from pybroker_protocol.errors import ErrorCode, ProtocolError

# What the members of a classic group are, if they are consumers.
CONSUMERS = "consumer"
# Kinds of groups that neither request describes.
UNDESCRIBED_TYPES = {"share", "streams"}
# How ConsumerGroupDescribe says that it is not about this group, and that the broker serves no such groups.
NOT_OF_THIS_KIND = {ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION}
# The protocol that a member of a consumer group speaks, by its number; older brokers do not tell.
MEMBER_TYPES = {0: "classic", 1: "consumer"}


# What is said of a group: its document, or why there is none.
Description = dict[str, Any] | CommandFailed


def describe_groups(client: AdminClient, groups: list[str]) -> dict[str, Description]:
    """What there is to say of each group that exists."""
    found = retried(lambda: _describe_consumer_groups(client, groups))
    if classic := [group for group in groups if group not in found]:
        found |= retried(lambda: _describe_classic_groups(client, classic))
    return found


def describe_all(client: AdminClient, groups: list[str]) -> dict[str, Description]:
    """What there is to say of each group, also of one that does not exist, or is of a kind without descriptions."""
    found = describe_groups(client, groups)
    return {group: found[group] if group in found else _why_unknown(client, group) for group in groups}


def _why_unknown(client: AdminClient, group: str) -> CommandFailed:
    kind = type_of(client, group)
    if kind in UNDESCRIBED_TYPES:
        return CommandFailed(f"group {group}: a {kind} group, which is listed and not described")
    return refused(f"group {group}", ErrorCode.GROUP_ID_NOT_FOUND)


def type_of(client: AdminClient, group: str) -> str | None:
    """The kind of a group as ListGroups tells it, in lower case; None where there is no such group."""
    return next((each.kind for each in retried(lambda: group_requests.listed(client)) if each.group == group), None)


def _describe_consumer_groups(client: AdminClient, groups: list[str]) -> dict[str, Description]:
    from pybroker_protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest

    documents: dict[str, Description] = {}
    if not client.serves(ConsumerGroupDescribeRequest):
        return documents
    for node_id, keys in find_coordinators(client, groups, CoordinatorType.GROUP).items():
        request = ConsumerGroupDescribeRequest(group_ids=keys, include_authorized_operations=False)
        for group in client.ask(request, node_id).groups:
            raise_passing([group.error_code])
            if not group.error_code:
                documents[group.group_id] = _consumer_document(group)
            elif group.error_code not in NOT_OF_THIS_KIND:
                documents[group.group_id] = refused(f"group {group.group_id}", group.error_code, group.error_message)
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


def _describe_classic_groups(client: AdminClient, groups: list[str]) -> dict[str, Description]:
    from pybroker_protocol.messages.describe_groups import DescribeGroupsRequest

    documents: dict[str, Description] = {}
    for node_id, keys in find_coordinators(client, groups, CoordinatorType.GROUP).items():
        for group in client.ask(DescribeGroupsRequest(groups=keys), node_id).groups:
            raise_passing([group.error_code])
            # A group that does not exist is Dead up to version 5, and an error from version 6.
            if group.error_code not in {ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND}:
                documents[group.group_id] = refused(f"group {group.group_id}", group.error_code, group.error_message)
            elif not group.error_code and group.group_state != "Dead":
                documents[group.group_id] = _classic_document(group)
    return documents


def _classic_document(group: Any) -> dict[str, Any]:
    owned = {
        member.member_id: assigned_partitions(group.protocol_type, bytes(member.member_assignment))
        for member in group.members
    }
    return {
        "group": group.group_id,
        "type": "classic",
        "state": group.group_state,
        "protocol_type": group.protocol_type,
        "assignor": group.protocol_data,
        "group_epoch": None,
        "assignment_epoch": None,
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "host": member.client_host,
                "partitions": _named(owned[member.member_id]),
                "protocol": "classic",
                "rack_id": None,
                "epoch": None,
                "subscribed_topics": None,
                "subscribed_regex": None,
                "target_partitions": None,
            }
            for member in group.members
        ],
        "owners": {at: member_id for member_id, partitions in owned.items() for at in partitions},
    }


def assigned_partitions(protocol_type: str, assignment: bytes) -> list[tuple[str, int]]:
    """The partitions of a classic group's member; none where its assignment is not a consumer's.

    Each version of an assignment is a prefix of the next.
    """
    from pybroker_protocol.messages.consumer_protocol import ConsumerProtocolAssignment

    if protocol_type != CONSUMERS or len(assignment) < 2:
        return []
    try:
        read, _ = codec.decoder(ConsumerProtocolAssignment, 0)(memoryview(assignment), 2)
    except ProtocolError:
        return []
    return sorted((topic.topic, index) for topic in read.assigned_partitions for index in topic.partitions)


def with_offsets(client: AdminClient, document: dict[str, Any]) -> dict[str, Any]:
    """The document with the lag of every partition that is committed or assigned, in place of the owners."""
    owners = {Partition(*at): member_id for at, member_id in document["owners"].items()}
    committed = committed_offsets(client, document["group"])
    partitions = sorted(committed.keys() | owners.keys())
    ends = end_offsets(client, partitions)
    offsets: list[dict[str, Any]] = [
        {
            "topic": partition.topic,
            "partition": partition.number,
            "current_offset": committed.get(partition),
            "log_end_offset": ends.get(partition),
            "lag": lag_of(committed.get(partition), ends.get(partition)),
            "member_id": owners.get(partition),
        }
        for partition in partitions
    ]
    rest = {name: value for name, value in document.items() if name not in {"owners", "members"}}
    known = [offset["lag"] for offset in offsets if offset["lag"] is not None]
    return {**rest, "lag": sum(known) if known else None, "members": document["members"], "offsets": offsets}


def lag_of(committed: int | None, end: int | None) -> int | None:
    """Records between the committed offset and the end; unknown when either is."""
    return None if committed is None or end is None else max(0, end - committed)
