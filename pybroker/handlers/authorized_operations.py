"""What a principal may do on a resource, as the bit field of Metadata, DescribeCluster and their sisters (KIP-430).

Bit n stands for the operation with the number n.  A resource lists the operations that make sense on its type
(``AclEntry.supportedOperations``); without an authorizer, as in Kafka, all of them are allowed.
"""

from __future__ import annotations

from pybroker.handlers.context import RequestContext
from pybroker.security.acl_bindings import CLUSTER_NAME, AclOperation, Resource

NOT_ASKED = -0x80000000

_OPERATIONS = {
    Resource.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    Resource.GROUP: (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    Resource.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
}


def authorized_operations(ctx: RequestContext, resource: Resource, name: str) -> int:
    """The operations on one resource that the request's principal may do."""
    return sum(
        1 << operation
        for operation in _OPERATIONS[resource]
        if ctx.authorize(operation, resource, name, log_if_denied=False)
    )


def cluster_operations(ctx: RequestContext) -> int:
    """Those on the cluster: none for who may not describe it."""
    if not ctx.authorize(AclOperation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
        return 0
    return authorized_operations(ctx, Resource.CLUSTER, CLUSTER_NAME)
