"""AlterPartitionReassignments (key 45), versions 0 and 1.

Behaviour: each partition is answered for itself: moved to other replicas, or, where they are null, left with those that
it had before.  The answer comes when the move is begun; ListPartitionReassignments tells when it is over.
Version notes: from 1 a request may forbid that a partition gets more or fewer replicas (KIP-860).
"""

from __future__ import annotations

from collections.abc import Iterable

from pybroker.cluster.decisions.operations import PartitionResult, PartitionResults, Reassignment, refused_partitions
from pybroker.handlers.context import Parked, RequestContext, Steps
from pybroker.security.acl_bindings import CLUSTER_NAME, AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


def handle(ctx: RequestContext, request: AlterPartitionReassignmentsRequest) -> Steps:
    """Begin to move the partitions; the reply waits for the commit."""
    if not ctx.authorize(AclOperation.ALTER, Resource.CLUSTER, CLUSTER_NAME):
        return refuse(ctx, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if not request.topics:
        return AlterPartitionReassignmentsResponse(throttle_time_ms=0, error_code=0, responses=[])
    wanted = []
    for topic in request.topics:
        wanted.append(
            (topic.name, [_reassignment(asked.partition_index, asked.replicas) for asked in topic.partitions])
        )
        yield
    altered = Parked()
    ctx.services.controller.alter_partition_reassignments(
        wanted,
        altered.complete,
        may_change_factor=request.allow_replication_factor_change,
        timeout_ms=request.timeout_ms,
    )
    results: PartitionResults = yield altered
    topics = []
    for name, partitions in results.topics:
        topics.append(_topic(name, partitions))
        yield
    return _response(request, results, topics)


def refuse(
    ctx: RequestContext, request: AlterPartitionReassignmentsRequest, error: ErrorCode
) -> AlterPartitionReassignmentsResponse:
    """Nothing is moved, for this reason."""
    named = [(topic.name, [asked.partition_index for asked in topic.partitions]) for topic in request.topics]
    results = refused_partitions(named, error, error.message)
    return _response(request, results, [_topic(*topic) for topic in results.topics])


def _reassignment(index: int, replicas: list[int] | None) -> Reassignment:
    return Reassignment(index, None if replicas is None else tuple(replicas))


def _topic(name: str, partitions: Iterable[PartitionResult]) -> ReassignableTopicResponse:
    return ReassignableTopicResponse(
        name=name,
        partitions=[
            ReassignablePartitionResponse(
                partition_index=result.partition, error_code=result.error_code, error_message=result.error_message
            )
            for result in partitions
        ],
    )


def _response(
    request: AlterPartitionReassignmentsRequest, results: PartitionResults, topics: list[ReassignableTopicResponse]
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        throttle_time_ms=0,
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=results.error_code,
        error_message=results.error_message,
        responses=topics,
    )
