"""SyncGroup (key 14), versions 0 to 5.

Behaviour: the leader hands over everybody's assignment, every member gets its own as soon as the log has them all.
From 3 static members (KIP-345); from 5 protocol type and name are mandatory and have to be the group's (KIP-559).
"""

from __future__ import annotations

from pybroker.coordinators.group.classic.group_responses import sync_error
from pybroker.handlers.context import Parked, RequestContext
from pybroker.security.acl_bindings import AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_PROTOCOL_SINCE = SyncGroupRequest.since("protocol_name")


def handle(ctx: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse | Parked:
    """Park until the assignment is there."""
    lacks_protocol = request.protocol_type is None or request.protocol_name is None
    if ctx.api_version >= _PROTOCOL_SINCE and lacks_protocol:
        return sync_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if not ctx.authorize(AclOperation.READ, Resource.GROUP, request.group_id):
        return sync_error(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    parked = Parked()
    ctx.services.groups.sync_group(request, parked.complete)
    return parked
