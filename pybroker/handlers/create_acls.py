"""CreateAcls (key 30), versions 1 to 3.

Behaviour: the valid ACLs are added, one result each; what is there already is no error.  SECURITY_DISABLED where no
authorizer is configured.
Version notes: prefixed patterns from 1 (KIP-290), user resources from 3 (KIP-373).
"""

from __future__ import annotations

from collections.abc import Sequence

from pybroker.cluster.controller.access_changes import create_acls
from pybroker.cluster.decisions.operations import Outcome
from pybroker.handlers.acl_filters import refusal_of_change
from pybroker.handlers.context import Parked, RequestContext
from pybroker.security.acl_bindings import Acl
from pybroker_protocol.errors import ErrorCode, readable
from pybroker_protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse


def handle(ctx: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse | Parked:
    """Create the ACLs; the reply waits for the commit."""
    refusal = refusal_of_change(ctx)
    if refusal is not None:
        return _response([Outcome(*refusal)] * len(request.creations))
    parked = Parked()
    acls = [
        Acl(
            creation.resource_type,
            creation.resource_name,
            creation.resource_pattern_type,
            creation.principal,
            creation.host,
            creation.operation,
            creation.permission_type,
        )
        for creation in request.creations
    ]
    create_acls(ctx.services.controller, acls, lambda outcomes: parked.complete(_response(outcomes)))
    return parked


def refuse(ctx: RequestContext, request: CreateAclsRequest, error: ErrorCode) -> CreateAclsResponse:
    """Nothing was created, for this reason."""
    return _response([Outcome(error, error.message)] * len(request.creations))


def _response(outcomes: Sequence[Outcome]) -> CreateAclsResponse:
    # As Kafka, a message that says nothing where there is no error.
    results = [
        AclCreationResult(error_code=outcome.error_code, error_message=readable(outcome.error_message or ""))
        for outcome in outcomes
    ]
    return CreateAclsResponse(throttle_time_ms=0, results=results)
