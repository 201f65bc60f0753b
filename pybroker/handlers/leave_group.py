"""LeaveGroup (key 13), versions 0 to 5.

Behaviour: members leave, and their group rebalances. Up to 2 one member leaves, and its error is that of the response.
From 3 several leave at once, static ones also by their instance id alone (KIP-345); from 5 with a reason (KIP-800).
"""

from __future__ import annotations

from pybroker.coordinators.group.classic.group_responses import leave_error
from pybroker.handlers.context import Parked, RequestContext
from pybroker.security.acl_bindings import AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

_MEMBERS_SINCE = LeaveGroupRequest.since("members")


def handle(ctx: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse | Parked:
    """Ask the group, in the shape of the newest version."""
    if not ctx.authorize(AclOperation.READ, Resource.GROUP, request.group_id):
        return leave_error(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    parked = Parked()
    if ctx.api_version >= _MEMBERS_SINCE:
        ctx.services.groups.leave_group(request, parked.complete)
        return parked

    def done(response: LeaveGroupResponse) -> None:
        code = response.error_code or next((member.error_code for member in response.members if member.error_code), 0)
        parked.complete(leave_error(code))

    request.members = [MemberIdentity(member_id=request.member_id, group_instance_id=None)]
    ctx.services.groups.leave_group(request, done)
    return parked
