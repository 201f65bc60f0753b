"""AssignReplicasToDirs (key 73), version 0 (KIP-858).

Behaviour: a broker tells in which of its log dirs it found replicas, where the metadata has them in another one or in
none.  Only the active controller decides.
"""

from __future__ import annotations

from pybroker.cluster.decisions.operations import Assignments
from pybroker.handlers.context import Parked, RequestContext
from pybroker.security.acl_bindings import CLUSTER_NAME, AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    AssignReplicasToDirsResponseDirectoryData,
    AssignReplicasToDirsResponsePartitionData,
    AssignReplicasToDirsResponseTopicData,
)


def handle(ctx: RequestContext, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse | Parked:
    """Hand what the broker tells to the controller."""
    if not ctx.authorize(AclOperation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
        return _response(request, Assignments({}, ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    found = {
        (topic.topic_id, partition.partition_index): directory.id
        for directory in request.directories
        for topic in directory.topics
        for partition in topic.partitions
    }
    parked = Parked()
    ctx.services.controller.assign_replicas(
        request.broker_id,
        request.broker_epoch,
        found,
        lambda assignments: parked.complete(_response(request, assignments)),
    )
    return parked


def _response(request: AssignReplicasToDirsRequest, assignments: Assignments) -> AssignReplicasToDirsResponse:
    if assignments.error_code:
        return AssignReplicasToDirsResponse(throttle_time_ms=0, error_code=assignments.error_code, directories=[])
    errors = assignments.errors
    return AssignReplicasToDirsResponse(
        throttle_time_ms=0,
        error_code=0,
        directories=[
            AssignReplicasToDirsResponseDirectoryData(
                id=directory.id,
                topics=[
                    AssignReplicasToDirsResponseTopicData(
                        topic_id=topic.topic_id,
                        partitions=[
                            AssignReplicasToDirsResponsePartitionData(
                                partition_index=partition.partition_index,
                                error_code=errors.get((topic.topic_id, partition.partition_index), 0),
                            )
                            for partition in topic.partitions
                        ],
                    )
                    for topic in directory.topics
                ],
            )
            for directory in request.directories
        ],
    )
