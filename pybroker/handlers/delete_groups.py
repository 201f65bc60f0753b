"""DeleteGroups (key 42), versions 0 to 2.

Behaviour: each group is deleted with all its offsets if nobody is in it (NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND); a
name that is given twice is deleted once.
"""

from __future__ import annotations

from pybroker.apis import Operation, Resource
from pybroker.coordinators.gather import Gather
from pybroker.coordinators.group.responses import delete_error
from pybroker.handlers.context import Parked, RequestContext, Steps
from pybroker.handlers.portions import portions
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


def handle(ctx: RequestContext, request: DeleteGroupsRequest) -> Steps:
    """Delete what the client may delete."""
    allowed, refused = [], []
    for group_id in dict.fromkeys(request.groups_names):
        if ctx.authorize(Operation.DELETE, Resource.GROUP, group_id):
            allowed.append(group_id)
        else:
            refused.append(delete_error(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED))
        yield
    answers = Parked()
    asked = list(portions(allowed))
    gather = Gather(len(asked), answers.complete)
    for position, portion in enumerate(asked):
        ctx.services.groups.delete_groups(portion, gather.slot(position))
        yield
    results: list[DeletableGroupResult] = []
    for deleted in (yield answers):
        results.extend(deleted)
    return DeleteGroupsResponse(throttle_time_ms=0, results=[*results, *refused])
