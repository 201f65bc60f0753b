"""DescribeGroups (key 15), versions 0 to 6.

Behaviour: state, members, and in a stable group their metadata and assignments. From 3 the operations that the client
may do, if it asks; from 4 instance ids (KIP-345). From 6 a group that does not exist is GROUP_ID_NOT_FOUND (KIP-1043);
before it was shown as Dead.
"""

from __future__ import annotations

from pybroker.coordinators.group.classic.group_responses import described_group_error
from pybroker.handlers.authorized_operations import authorized_operations
from pybroker.handlers.context import RequestContext, Steps
from pybroker.handlers.portions import asked_in_portions
from pybroker.security.acl_bindings import AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse


def handle(ctx: RequestContext, request: DescribeGroupsRequest) -> Steps:
    """Describe what the client may see; the rest comes first, with an error each."""
    allowed, refused = [], []
    for group_id in request.groups:
        if ctx.authorize(AclOperation.DESCRIBE, Resource.GROUP, group_id):
            allowed.append(group_id)
        else:
            refused.append(described_group_error(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED))
        yield
    answers = yield from asked_in_portions(
        allowed, lambda portion, done: ctx.services.groups.describe_groups(portion, ctx.api_version, done)
    )
    groups: list[DescribedGroup] = refused
    for described in answers:
        if request.include_authorized_operations:
            for group in described:
                if not group.error_code:
                    group.authorized_operations = authorized_operations(ctx, Resource.GROUP, group.group_id)
        groups.extend(described)
        yield
    return DescribeGroupsResponse(throttle_time_ms=0, groups=groups)
