"""JoinGroup (key 11), versions 0 to 9.

Behaviour: a member joins, or joins again in a rebalance; the reply is parked until the join phase ends. From 1 the
rebalance timeout is apart from the session's. From 4 a member without an id gets one and has to come back with it
(KIP-394). From 5 there are static members (KIP-345), and from 8 a reason (KIP-800). From 9 the response may have the
leader skip the assignment (KIP-814).
"""

from __future__ import annotations

from pybroker.coordinators.group.classic.group_responses import join_error
from pybroker.handlers.context import Parked, RequestContext
from pybroker.security.acl_bindings import AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

_PROTOCOL_TYPE_SINCE = JoinGroupResponse.since("protocol_type")  # and its name may be null


def handle(ctx: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse | Parked:
    """Park until the join phase of the group ends."""
    if not ctx.authorize(AclOperation.READ, Resource.GROUP, request.group_id):
        return _shaped(ctx.api_version, join_error("", ErrorCode.GROUP_AUTHORIZATION_FAILED))
    parked = Parked()

    def done(response: JoinGroupResponse) -> None:
        parked.complete(_shaped(ctx.api_version, response))

    ctx.services.groups.join_group(request, ctx.api_version, ctx.client_id or "", ctx.client_host, done)
    return parked


def _shaped(api_version: int, response: JoinGroupResponse) -> JoinGroupResponse:
    """No name is null where it may be, and empty where it may not."""
    response.protocol_name = response.protocol_name or (None if api_version >= _PROTOCOL_TYPE_SINCE else "")
    return response
