"""DescribeAcls (key 29), versions 1 to 3.

Behaviour: the ACLs that a filter matches, by resource; what nobody knows matches nothing.  SECURITY_DISABLED
where no authorizer is configured.
Version notes: prefixed patterns from 1 (KIP-290), user resources from 3 (KIP-373).
"""

from __future__ import annotations

from pybroker.handlers.acl_filters import filter_of, keeps_acls
from pybroker.handlers.context import RequestContext, Steps
from pybroker.security.acl_bindings import (
    CLUSTER_NAME,
    AclOperation,
    Resource,
)
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)


def handle(ctx: RequestContext, request: DescribeAclsRequest) -> Steps:
    """Look through the ACLs of the current image."""
    if not ctx.authorize(AclOperation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
        error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return _failed(error, error.message)
    if not keeps_acls(ctx):
        return _failed(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")
    wanted = filter_of(request)
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for acl in ctx.services.metadata.image.acls.values():
        if wanted.matches(acl):
            pattern = acl.resource_type, acl.resource_name, acl.pattern_type
            resource = resources.get(pattern)
            if resource is None:
                resource = resources[pattern] = DescribeAclsResource(
                    resource_type=acl.resource_type,
                    resource_name=acl.resource_name,
                    pattern_type=acl.pattern_type,
                    acls=[],
                )
            resource.acls.append(
                AclDescription(
                    principal=acl.principal,
                    host=acl.host,
                    operation=acl.operation,
                    permission_type=acl.permission_type,
                )
            )
        yield
    return DescribeAclsResponse(throttle_time_ms=0, error_code=0, error_message="", resources=list(resources.values()))


def _failed(error: ErrorCode, message: str | None) -> DescribeAclsResponse:
    return DescribeAclsResponse(throttle_time_ms=0, error_code=error, error_message=message, resources=[])
