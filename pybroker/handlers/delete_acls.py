"""DeleteAcls (key 31), versions 1 to 3.

Behaviour: the ACLs that the filters match are removed, one result for each filter, with what it matched.
SECURITY_DISABLED where no authorizer is configured.
Version notes: prefixed patterns from 1 (KIP-290), user resources from 3 (KIP-373).
"""

from __future__ import annotations

from collections.abc import Sequence

from pybroker.cluster.controller.access_changes import delete_acls
from pybroker.cluster.decisions.operations import AclDeletion
from pybroker.handlers.acl_filters import filter_of, refusal_of_change
from pybroker.handlers.context import Parked, RequestContext
from pybroker.security.acl_bindings import Acl
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


def handle(ctx: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse | Parked:
    """Delete the ACLs; the reply waits for the commit."""
    refusal = refusal_of_change(ctx)
    if refusal is not None:
        return _response([AclDeletion((), *refusal)] * len(request.filters))
    parked = Parked()
    filters = [filter_of(each) for each in request.filters]
    delete_acls(ctx.services.controller, filters, lambda answers: parked.complete(_response(answers)))
    return parked


def refuse(ctx: RequestContext, request: DeleteAclsRequest, error: ErrorCode) -> DeleteAclsResponse:
    """Nothing was deleted, for this reason."""
    return _response([AclDeletion((), error, error.message)] * len(request.filters))


def _response(answers: Sequence[AclDeletion]) -> DeleteAclsResponse:
    results = [
        DeleteAclsFilterResult(
            error_code=answer.error_code,
            error_message=answer.error_message,
            matching_acls=[_matching(acl) for acl in answer.deleted],
        )
        for answer in answers
    ]
    return DeleteAclsResponse(throttle_time_ms=0, filter_results=results)


def _matching(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_code=0,
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )
