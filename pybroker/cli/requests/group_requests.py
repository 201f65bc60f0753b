"""Requests about groups that their coordinators answer one by one: deletion, members that leave, and what is committed.

Owns: the requests, and which coordinator is asked.  What is known of groups besides is ``group_descriptions``'.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pybroker.cli.connection.admin_client import AdminClient
from pybroker.cli.connection.changes import settled
from pybroker.cli.connection.retries import PASSING_ERRORS, retried
from pybroker.cli.requests.partition_leaders import Partition
from pybroker.cli.requests.wire_requests import CoordinatorType, brokers, find_coordinators, raise_passing
from pybroker.cli.terminal.error_names import refused

UNKNOWN_MEMBER: Final = ""  # in place of the id of a member that has an instance id


class Listed(NamedTuple):
    """A group as ListGroups tells it, its kind in lower case; older brokers tell neither state nor kind."""

    group: str
    kind: str
    state: str | None
    protocol_type: str


class Leaving(NamedTuple):
    """A member that is to leave: by its id, or by its instance id."""

    member_id: str
    instance_id: str | None


def listed(client: AdminClient) -> list[Listed]:
    """All groups of the cluster, by name."""
    from pybroker_protocol.messages.list_groups import ListGroupsRequest

    found: set[Listed] = set()
    for node_id in brokers(client):
        response = client.ask(ListGroupsRequest(states_filter=[], types_filter=[]), node_id)
        raise_passing([response.error_code])
        found |= {
            Listed(each.group_id, (each.group_type or "classic").lower(), each.group_state or None, each.protocol_type)
            for each in response.groups
        }
    return sorted(found)


def delete(client: AdminClient, groups: Sequence[str]) -> dict[str, int]:
    """DeleteGroups: the error code of each group, 0 where it is deleted."""
    from pybroker_protocol.messages.delete_groups import DeleteGroupsRequest

    codes: dict[str, int] = {}

    def delete_rest() -> None:
        rest = [group for group in groups if group not in codes or codes[group] in PASSING_ERRORS]
        for node_id, names in find_coordinators(client, rest, CoordinatorType.GROUP).items():
            for name in names:
                # One by one: of each group it is known whether a request to delete it got no answer.
                request = DeleteGroupsRequest(groups_names=[name])
                [result] = client.ask(request, node_id).results
                codes[name] = settled(client, request, int(result.error_code), f"group {name}")
        raise_passing(codes.values())

    retried(delete_rest)
    return codes


def remove_members(
    client: AdminClient, group: str, members: Sequence[Leaving], reason: str
) -> tuple[int, dict[Leaving, int]]:
    """LeaveGroup in place of members: the error code of the whole, and that of each member."""
    from pybroker_protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity

    identities = [
        MemberIdentity(member_id=each.member_id, group_instance_id=each.instance_id, reason=reason) for each in members
    ]
    [node_id] = find_coordinators(client, [group], CoordinatorType.GROUP)
    request = LeaveGroupRequest(group_id=group, members=identities)
    response = client.ask(request, node_id, min_version=LeaveGroupRequest.since("members"))
    raise_passing([response.error_code])
    codes = {Leaving(each.member_id, each.group_instance_id or None): int(each.error_code) for each in response.members}
    subjects = {each: f"member {each.instance_id or each.member_id}" for each in codes}
    return int(response.error_code), {each: settled(client, request, codes[each], subjects[each]) for each in codes}


def committed(client: AdminClient, groups: Iterable[str]) -> dict[str, dict[Partition, int] | int]:
    """OffsetFetch: what each group has committed, by partition, or the error code in its place."""
    from pybroker_protocol.messages.offset_fetch import (
        OffsetFetchRequest,
        OffsetFetchRequestGroup,
        OffsetFetchRequestTopics,
    )

    found: dict[str, dict[Partition, int] | int] = {}
    for node_id, names in find_coordinators(client, groups, CoordinatorType.GROUP).items():
        wanted = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in names]
        request = OffsetFetchRequest(groups=wanted, require_stable=False)
        # Later versions name topics by ids alone, which says nothing of one that was deleted.
        by_name = OffsetFetchRequestTopics.since("topic_id") - 1
        response = client.ask(request, node_id, min_version=OffsetFetchRequest.since("groups"), max_version=by_name)
        raise_passing(each.error_code for each in response.groups)
        for each in response.groups:
            found[each.group_id] = int(each.error_code) or {
                Partition(topic.name, at.partition_index): int(at.committed_offset)
                for topic in each.topics
                for at in topic.partitions
                if not at.error_code and at.committed_offset >= 0
            }
    return found


def commit(client: AdminClient, group: str, offsets: Mapping[Partition, int]) -> dict[Partition, int]:
    """OffsetCommit without a member, for a group that has none: the error code of each partition."""
    from pybroker_protocol.messages.offset_commit import (
        OffsetCommitRequest,
        OffsetCommitRequestPartition,
        OffsetCommitRequestTopic,
    )

    topics = [
        OffsetCommitRequestTopic(
            name=topic,
            partitions=[
                OffsetCommitRequestPartition(partition_index=number, committed_offset=offsets[Partition(topic, number)])
                for number in numbers
            ],
        )
        for topic, numbers in _by_topic(offsets).items()
    ]
    [node_id] = find_coordinators(client, [group], CoordinatorType.GROUP)
    request = OffsetCommitRequest(group_id=group, member_id=UNKNOWN_MEMBER, topics=topics)
    by_name = OffsetCommitRequestTopic.since("topic_id") - 1
    return _codes(client.ask(request, node_id, max_version=by_name).topics)


def delete_offsets(client: AdminClient, group: str, partitions: Iterable[Partition]) -> dict[Partition, int]:
    """OffsetDelete: the error code of each partition; ``CommandFailed`` where the group has none."""
    from pybroker_protocol.messages.offset_delete import (
        OffsetDeleteRequest,
        OffsetDeleteRequestPartition,
        OffsetDeleteRequestTopic,
    )

    topics = [
        OffsetDeleteRequestTopic(
            name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=number) for number in numbers]
        )
        for topic, numbers in _by_topic(partitions).items()
    ]
    [node_id] = find_coordinators(client, [group], CoordinatorType.GROUP)
    response = client.ask(OffsetDeleteRequest(group_id=group, topics=topics), node_id)
    raise_passing([response.error_code])
    if response.error_code:
        raise refused(f"group {group}", response.error_code)
    return _codes(response.topics)


def _by_topic(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    grouped: dict[str, list[int]] = {}
    for partition in sorted(partitions):
        grouped.setdefault(partition.topic, []).append(partition.number)
    return grouped


def _codes(topics: Iterable[Any]) -> dict[Partition, int]:
    found = {
        Partition(topic.name, at.partition_index): int(at.error_code) for topic in topics for at in topic.partitions
    }
    raise_passing(found.values())
    return found
