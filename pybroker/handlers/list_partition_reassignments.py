"""ListPartitionReassignments (key 46), version 0 (KIP-455).

Behaviour: the partitions that are on their way to other replicas, of those asked for or (null) of all.  What does not
exist, or is not moved, is left out.  The active controller's broker answers: its image is the newest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pybroker.cluster.decisions.reassignments import Ongoing, ongoing_reassignments
from pybroker.cluster.image import ClusterImage
from pybroker.handlers.context import RequestContext, Steps
from pybroker.security.acls import CLUSTER_NAME, AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def handle(ctx: RequestContext, request: ListPartitionReassignmentsRequest) -> Steps:
    """List what is under way."""
    if not ctx.authorize(AclOperation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
        return refuse(ctx, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    topics = []
    for name, ongoing in _listed(ctx.services.metadata.image, request.topics):
        if ongoing:
            topics.append(_topic(name, ongoing))
        yield
    return ListPartitionReassignmentsResponse(throttle_time_ms=0, error_code=0, error_message=None, topics=topics)


def refuse(
    ctx: RequestContext, request: ListPartitionReassignmentsRequest, error: ErrorCode
) -> ListPartitionReassignmentsResponse:
    """Nothing is told, for this reason."""
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


def _listed(
    image: ClusterImage, asked: Sequence[ListPartitionReassignmentsTopics] | None
) -> Iterator[tuple[str, list[Ongoing]]]:
    if asked is None:
        for topic in image.topics_by_name.values():
            yield topic.name, ongoing_reassignments(topic)
        return
    for named in asked:
        known = image.topics_by_name.get(named.name)
        if known is not None:
            yield known.name, ongoing_reassignments(known, named.partition_indexes)


def _topic(name: str, ongoing: Iterable[Ongoing]) -> OngoingTopicReassignment:
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
