"""ListPartitionReassignments (key 46), version 0 (KIP-455).

Behaviour: the partitions that are on their way to other replicas, of those asked for or (null) of all.  What does not
exist, or is not moved, is left out.  The active controller's broker answers: its image is the newest.
"""

from __future__ import annotations

from collections.abc import Iterable

from pybroker.cluster.decisions.operations import OngoingReassignment
from pybroker.handlers.context import RequestContext, Steps
from pybroker.security.acl_bindings import CLUSTER_NAME, AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def handle(ctx: RequestContext, request: ListPartitionReassignmentsRequest) -> Steps:
    """List what is under way."""
    if not ctx.authorize(AclOperation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
        return refuse(ctx, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    asked = None if request.topics is None else [(topic.name, topic.partition_indexes) for topic in request.topics]
    topics = []
    for name, ongoing in ctx.services.controller.ongoing_reassignments(asked):
        if ongoing:
            topics.append(_topic(name, ongoing))
        yield
    return ListPartitionReassignmentsResponse(throttle_time_ms=0, error_code=0, error_message=None, topics=topics)


def refuse(
    ctx: RequestContext, request: ListPartitionReassignmentsRequest, error: ErrorCode
) -> ListPartitionReassignmentsResponse:
    """Nothing is listed, for this reason."""
    topics = [
        OngoingTopicReassignment(
            name=topic.name,
            partitions=[
                OngoingPartitionReassignment(
                    partition_index=index, replicas=[], adding_replicas=[], removing_replicas=[]
                )
                for index in topic.partition_indexes
            ],
        )
        for topic in request.topics or ()
    ]
    return ListPartitionReassignmentsResponse(
        throttle_time_ms=0, error_code=error, error_message=error.message, topics=topics
    )


def _topic(name: str, ongoing: Iterable[OngoingReassignment]) -> OngoingTopicReassignment:
    return OngoingTopicReassignment(
        name=name,
        partitions=[
            OngoingPartitionReassignment(
                partition_index=index,
                replicas=list(state.replicas),
                adding_replicas=list(state.adding_replicas),
                removing_replicas=list(state.removing_replicas),
            )
            for index, state in ongoing
        ],
    )
