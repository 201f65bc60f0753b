"""Heartbeat (key 12), versions 0 to 4.

Behaviour: renews a member's session and tells it whether it has to join again (REBALANCE_IN_PROGRESS).  From 3 a
static member names its instance id and is fenced when another took it over (KIP-345).
"""

from __future__ import annotations

from pybroker.handlers.context import Parked, RequestContext
from pybroker.security.acl_bindings import AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(ctx: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse | Parked:
    """Ask the group; the answer is there at once unless the group's partition is busy with an append."""
    if not ctx.authorize(AclOperation.READ, Resource.GROUP, request.group_id):
        return HeartbeatResponse(throttle_time_ms=0, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    parked = Parked()
    ctx.services.groups.heartbeat(request, parked.complete)
    return parked
