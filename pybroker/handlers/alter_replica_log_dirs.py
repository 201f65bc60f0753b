"""AlterReplicaLogDirs (key 34), versions 1 and 2 (KIP-113).

Behaviour: each replica of this broker is moved to the log dir that is named for it, while it is served. The answer says
that the move has begun, and DescribeLogDirs how far it is. The dir in which the replica lies cancels a move. Paths are
absolute. A replica that is not here gets REPLICA_NOT_AVAILABLE, and begins in that dir once it comes. Of a partition
that is named twice the last dir counts.
"""

from __future__ import annotations

from pybroker.handlers.context import RequestContext, Steps
from pybroker.security.acl_bindings import CLUSTER_NAME, AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


def handle(ctx: RequestContext, request: AlterReplicaLogDirsRequest) -> Steps:
    """Begin the moves, one partition per step."""
    wanted: dict[str, dict[int, str]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                wanted.setdefault(topic.name, {})[index] = directory.path
            yield
    permitted = ctx.authorize(AclOperation.ALTER, Resource.CLUSTER, CLUSTER_NAME)
    results = []
    for name, paths in wanted.items():
        partitions = []
        for index, path in paths.items():
            error_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            if permitted:
                error_code = ctx.services.replicas.move_replica(name, index, path)
            partitions.append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error_code))
            yield
        results.append(AlterReplicaLogDirTopicResult(topic_name=name, partitions=partitions))
    return AlterReplicaLogDirsResponse(throttle_time_ms=0, results=results)
