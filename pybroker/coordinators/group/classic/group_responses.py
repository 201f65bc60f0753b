"""The responses of the APIs of classic groups, filled in one place.

Owns: which fields of a response go with success and with failure.

Counterpart in Kafka: the response builders inside ``GroupMetadataManager``, ``ClassicGroup`` and the request classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker.coordinators.group.classic.classic_group import ClassicGroup
from pybroker.coordinators.group.classic.states import ClassicState
from pybroker_protocol.errors import ErrorCode, readable
from pybroker_protocol.messages.delete_groups import DeletableGroupResult
from pybroker_protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from pybroker_protocol.messages.heartbeat import HeartbeatResponse
from pybroker_protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from pybroker_protocol.messages.leave_group import LeaveGroupResponse
from pybroker_protocol.messages.list_groups import ListGroupsResponse
from pybroker_protocol.messages.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from pybroker.coordinators.group.group import Group

# The version of DescribeGroups that learned to say that the group does not exist (KIP-1043).
GROUP_ID_NOT_FOUND_SINCE = DescribedGroup.since("error_message")


def join_error(member_id: str, error_code: int) -> JoinGroupResponse:
    """A JoinGroup that came to nothing."""
    return JoinGroupResponse(
        throttle_time_ms=0,
        error_code=error_code,
        protocol_name=None,
        leader="",
        member_id=member_id,
        members=[],
    )


def join_response(
    group: ClassicGroup, member_id: str, leader_id: str | None = None, skip_assignment: bool = False
) -> JoinGroupResponse:
    """The current generation as one member sees it: the leader sees everybody.

    ``leader_id`` is another leader than the group's, for a client that must not think that it leads.
    """
    leader = group.leader_id if leader_id is None else leader_id
    members: list[JoinGroupResponseMember] = []
    if leader == member_id and group.protocol_name is not None:
        members = [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata(group.protocol_name),
            )
            for member in group.members.values()
        ]
    return JoinGroupResponse(
        throttle_time_ms=0,
        error_code=0,
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=leader or "",
        skip_assignment=skip_assignment,
        member_id=member_id,
        members=members,
    )


def sync_error(error_code: int) -> SyncGroupResponse:
    return SyncGroupResponse(throttle_time_ms=0, error_code=error_code, assignment=b"")


def sync_response(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(
        throttle_time_ms=0,
        error_code=0,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=assignment,
    )


def heartbeat_error(error_code: int) -> HeartbeatResponse:
    """While the group is being loaded its members hear that all is well: no session runs meanwhile."""
    is_loading = error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return HeartbeatResponse(throttle_time_ms=0, error_code=0 if is_loading else error_code)


def leave_error(error_code: int) -> LeaveGroupResponse:
    return LeaveGroupResponse(throttle_time_ms=0, error_code=error_code, members=[])


def list_error(error_code: int) -> ListGroupsResponse:
    return ListGroupsResponse(throttle_time_ms=0, error_code=error_code, groups=[])


def delete_error(group_id: str, error_code: int) -> DeletableGroupResult:
    return DeletableGroupResult(group_id=group_id, error_code=error_code)


def described_group_error(
    group_id: str, error_code: int, error_message: str | None = None, group_state: str = ""
) -> DescribedGroup:
    return DescribedGroup(
        error_code=error_code,
        error_message=None if error_message is None else readable(error_message),
        group_id=group_id,
        group_state=group_state,
        protocol_type="",
        protocol_data="",
        members=[],
    )


def described_group(group_id: str, group: Group | None, api_version: int) -> DescribedGroup:
    """A classic group as DescribeGroups shows it; the members' metadata only while it is stable."""
    if not isinstance(group, ClassicGroup):
        if api_version < GROUP_ID_NOT_FOUND_SINCE:
            return described_group_error(group_id, 0, group_state=ClassicState.DEAD.value)
        message = f"Group {group_id} {'not found' if group is None else 'is not a classic group'}."
        return described_group_error(group_id, ErrorCode.GROUP_ID_NOT_FOUND, message, ClassicState.DEAD.value)
    protocol_name = group.protocol_name if group.state is ClassicState.STABLE else None
    members = [
        DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=b"" if protocol_name is None else member.metadata(protocol_name),
            member_assignment=member.assignment,
        )
        for member in group.members.values()
    ]
    return DescribedGroup(
        error_code=0,
        group_id=group_id,
        group_state=group.state_name,
        protocol_type=group.protocol_type_name,
        protocol_data=protocol_name or "",
        members=members,
    )
