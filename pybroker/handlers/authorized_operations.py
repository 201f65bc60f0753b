"""What a principal may do on a resource, as the bit field of Metadata, DescribeCluster and their sisters (KIP-430).

Bit n stands for the operation with the number n.  A resource lists the operations that make sense on its type
(``AclEntry.supportedOperations``); without an authorizer, as in Kafka, all of them are allowed.
"""

from __future__ import annotations

from pybroker.apis import Operation, Resource
from pybroker.handlers.context import RequestContext

NOT_ASKED = -0x80000000

_OPERATIONS = {
    Resource.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    Resource.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    Resource.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
}


def authorized_operations(ctx: RequestContext, resource: Resource, name: str) -> int:
    """The operations on one resource that the request's principal may do."""
    return sum(1 << operation for operation in _OPERATIONS[resource] if ctx.authorize(operation, resource, name))
