"""What the requests about ACLs have in common: filters, and what is said where there is no authorizer.

Kafka counterpart: ``kafka.server.AclApis``.
"""

from __future__ import annotations

from typing import Final

from pybroker.handlers.context import RequestContext
from pybroker.security.acl_bindings import CLUSTER_NAME, AclFilter, AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.delete_acls import DeleteAclsFilter
from pybroker_protocol.messages.describe_acls import DescribeAclsRequest

NO_AUTHORIZER: Final = "No Authorizer is configured."


def refusal_of_change(ctx: RequestContext) -> tuple[ErrorCode, str | None] | None:
    """Why the client may change no ACL."""
    if not ctx.authorize(AclOperation.ALTER, Resource.CLUSTER, CLUSTER_NAME):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED.message
    if not keeps_acls(ctx):
        return ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER
    return None


def keeps_acls(ctx: RequestContext) -> bool:
    """Whether an authorizer goes by ACLs."""
    authorizer = ctx.services.authorizer
    return authorizer is not None and authorizer.keeps_acls


def filter_of(asked: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    """The filter that stands in a request."""
    return AclFilter(
        asked.resource_type_filter,
        asked.resource_name_filter,
        asked.pattern_type_filter,
        asked.principal_filter,
        asked.host_filter,
        asked.operation,
        asked.permission_type,
    )
