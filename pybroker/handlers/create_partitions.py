"""CreatePartitions (key 37), versions 0 to 3.

Behaviour: each topic is answered for itself.  ``validate_only`` grows none.
"""

from __future__ import annotations

from pybroker.cluster.operations import MorePartitions, NamedResult
from pybroker.handlers.context import Parked, RequestContext
from pybroker_protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


def handle(ctx: RequestContext, request: CreatePartitionsRequest) -> Parked:
    """Grow the topics; the reply waits for the commit."""
    parked = Parked()

    def done(results: list[NamedResult]) -> None:
        parked.complete(
            CreatePartitionsResponse(
                throttle_time_ms=0,
                results=[
                    CreatePartitionsTopicResult(
                        name=result.name, error_code=result.error_code, error_message=result.error_message
                    )
                    for result in results
                ],
            )
        )

    ctx.services.controller.create_partitions(
        [_more_partitions(topic) for topic in request.topics],
        done,
        validate_only=request.validate_only,
        timeout_ms=request.timeout_ms,
    )
    return parked


def _more_partitions(topic: CreatePartitionsTopic) -> MorePartitions:
    assignments = topic.assignments
    replicas = None if assignments is None else tuple(tuple(assignment.broker_ids) for assignment in assignments)
    return MorePartitions(topic.name, topic.count, replicas)
