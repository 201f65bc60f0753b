"""CreatePartitions (key 37), versions 0 to 3.

Behaviour: each topic is answered for itself.  ``validate_only`` grows none.
"""

from __future__ import annotations

from collections import Counter

from pybroker.cluster.decisions.operations import MorePartitions, NamedResult
from pybroker.handlers.context import Parked, RequestContext, Steps
from pybroker.handlers.mutation_quotas import Mutations
from pybroker.handlers.portions import too_many
from pybroker.security.acl_bindings import AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

_STRICT_QUOTA_SINCE = 3  # KIP-599


def handle(ctx: RequestContext, request: CreatePartitionsRequest) -> Steps:
    """Grow the topics; the reply waits for the commit."""
    refused = too_many(request.topics)
    mutations = Mutations(ctx, _STRICT_QUOTA_SINCE)
    counts = Counter(topic.name for topic in request.topics)
    wanted: list[MorePartitions] = []
    results: dict[str, CreatePartitionsTopicResult] = {}
    for topic in request.topics:
        if refused is not None:
            results[topic.name] = _result(NamedResult(topic.name, *refused))
        # What comes twice is refused as such, without a word of permissions.
        elif counts[topic.name] > 1 or ctx.authorize(AclOperation.ALTER, Resource.TOPIC, topic.name):
            wanted.append(_more_partitions(topic))
        else:
            results[topic.name] = _result(NamedResult(topic.name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, None))
        yield
    if refused is None:
        grown = Parked()
        ctx.services.controller.create_partitions(
            wanted,
            grown.complete,
            validate_only=request.validate_only,
            allows=mutations.allows,
            timeout_ms=request.timeout_ms,
        )
        for result in (yield grown):
            results[result.name] = _result(result)
            yield
    return CreatePartitionsResponse(throttle_time_ms=mutations.throttle_time_ms, results=list(results.values()))


def refuse(ctx: RequestContext, request: CreatePartitionsRequest, error: ErrorCode) -> CreatePartitionsResponse:
    """Nothing has grown, for this reason."""
    names = dict.fromkeys(topic.name for topic in request.topics)
    results = [_result(NamedResult(name, error, error.message)) for name in names]
    return CreatePartitionsResponse(throttle_time_ms=0, results=results)


def _result(result: NamedResult) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(
        name=result.name, error_code=result.error_code, error_message=result.error_message
    )


def _more_partitions(topic: CreatePartitionsTopic) -> MorePartitions:
    assignments = topic.assignments
    replicas = None if assignments is None else tuple(tuple(assignment.broker_ids) for assignment in assignments)
    return MorePartitions(topic.name, topic.count, replicas)
