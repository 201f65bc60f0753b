"""ListGroups (key 16), versions 0 to 5.

Behaviour: the groups that this broker coordinates; from 4 with their state and filtered by it (KIP-518), from 5 with
their type and filtered by it (KIP-848).  A filter that names nothing known finds nothing.
"""

from __future__ import annotations

from pybroker.handlers.context import Parked, RequestContext, Steps
from pybroker.handlers.portions import visible
from pybroker.security.acl_bindings import CLUSTER_NAME, AclOperation, Resource
from pybroker_protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse


def handle(ctx: RequestContext, request: ListGroupsRequest) -> Steps:
    """List what the client may see: everything with DESCRIBE on the cluster, else group by group."""
    sees_all = ctx.authorize(AclOperation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME, log_if_denied=False)
    listed = Parked()
    ctx.services.groups.list_groups(request, listed.complete)
    response: ListGroupsResponse = yield listed
    if not sees_all:
        response.groups = yield from visible(
            response.groups,
            lambda group: ctx.authorize(AclOperation.DESCRIBE, Resource.GROUP, group.group_id, log_if_denied=False),
        )
    return response
