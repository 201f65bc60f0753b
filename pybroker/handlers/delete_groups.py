"""DeleteGroups (key 42), versions 0 to 3.

Behaviour: each group is deleted with all its offsets if it has no member (NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND); a name
that is given twice is deleted once.  The message of 3 is for what Kafka's plugins of streams groups may refuse: there
is none where the error says all.
"""

from __future__ import annotations

from pybroker.coordinators.group.classic.group_responses import delete_error
from pybroker.handlers.context import RequestContext, Steps
from pybroker.handlers.portions import asked_in_portions
from pybroker.security.acl_bindings import AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


def handle(ctx: RequestContext, request: DeleteGroupsRequest) -> Steps:
    """Delete what the client may delete."""
    allowed, refused = [], []
    for group_id in dict.fromkeys(request.groups_names):
        if ctx.authorize(AclOperation.DELETE, Resource.GROUP, group_id):
            allowed.append(group_id)
        else:
            refused.append(delete_error(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED))
        yield
    answers = yield from asked_in_portions(allowed, ctx.services.groups.delete_groups)
    results: list[DeletableGroupResult] = []
    for deleted in answers:
        results.extend(deleted)
    return DeleteGroupsResponse(throttle_time_ms=0, results=[*results, *refused])
