"""DeleteTopics (key 20), versions 1 to 6.

Behaviour: each topic is answered for itself; those of the cluster's own are deleted like any other, as in Kafka.
``delete.topic.enable=false`` refuses them all: INVALID_REQUEST up to 2, TOPIC_DELETION_DISABLED from 3.
Version notes: by id from 6 (KIP-516), where each topic has either a name or an id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from pybroker.cluster.decisions.operations import TopicDeletion
from pybroker.handlers.context import Parked, RequestContext, Steps
from pybroker.handlers.mutation_quotas import Mutations
from pybroker.handlers.portions import portions
from pybroker.security.acl_bindings import CLUSTER_NAME, AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from pybroker_protocol.uuids import ZERO_UUID

# Topics of a DeleteTopics that are deleted at once; what becomes of their files is sliced (``DELETION_SLICE_MS``).
TOPICS_DELETED_AT_ONCE = 500

REPEATABLE = False  # somebody may have made a topic of that name anew meanwhile
_DISABLED_SINCE = 3
_STATES_SINCE = DeleteTopicsRequest.since("topics")
_STRICT_QUOTA_SINCE = 5  # KIP-599


def handle(ctx: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse | Steps:
    """Delete the topics; the reply waits for the commits."""
    states = _states(ctx, request)
    if not ctx.services.config.get_bool("delete.topic.enable"):
        return _disabled(states, ctx.api_version)
    return _delete(ctx, states, request.timeout_ms)


def refuse(ctx: RequestContext, request: DeleteTopicsRequest, error: ErrorCode) -> DeleteTopicsResponse:
    """Nothing was deleted, for this reason."""
    return _refused(_states(ctx, request), error)


def _states(ctx: RequestContext, request: DeleteTopicsRequest) -> list[DeleteTopicState]:
    return request.topics if ctx.api_version >= _STATES_SINCE else _states_of(request.topic_names)


def _delete(ctx: RequestContext, states: Iterable[DeleteTopicState], timeout_ms: int) -> Steps:
    """Some at a time: each of a topic's partitions has files to put aside."""
    responses: list[DeletableTopicResult] = []
    counts: Counter[str | bytes] = Counter()
    for state in states:
        if (state.name is None) == (state.topic_id == ZERO_UUID):
            responses.append(_bad_state(state))
        else:
            counts[state.topic_id if state.name is None else state.name] += 1
        yield
    mutations = Mutations(ctx, _STRICT_QUOTA_SINCE)
    if not ctx.authorize(AclOperation.DELETE, Resource.CLUSTER, CLUSTER_NAME, log_if_denied=False):
        for topic in list(counts):
            # What comes twice is refused as such, without a word of permissions.
            refused = _unauthorized(ctx, topic) if counts[topic] == 1 else None
            if refused is not None:
                responses.append(refused)
                del counts[topic]
            yield
    # A name and the id of the same topic have to be seen together.
    is_mixed = len({type(topic) for topic in counts}) > 1
    for portion in portions(list(counts), len(counts) if is_mixed else TOPICS_DELETED_AT_ONCE):
        deleted = Parked()
        # What comes twice is refused however often it comes.
        named = [topic for topic in portion for _ in range(min(counts[topic], 2))]
        ctx.services.controller.delete_topics(named, deleted.complete, allows=mutations.allows, timeout_ms=timeout_ms)
        results: list[TopicDeletion] = yield deleted
        responses += [_response(result) for result in results]
        yield
    return DeleteTopicsResponse(throttle_time_ms=mutations.throttle_time_ms, responses=responses)


def _unauthorized(ctx: RequestContext, topic: str | bytes) -> DeletableTopicResult | None:
    """The refusal, if it may not be deleted; whether there is such a name is for those to know who may describe it."""
    image = ctx.services.metadata.image
    known = image.topics_by_name.get(topic) if isinstance(topic, str) else image.topics_by_id.get(topic)
    if isinstance(topic, str):
        name = topic
    elif known is not None:
        name = known.name
    else:
        return None  # an id that nobody has is nobody's
    may_describe = ctx.authorize(AclOperation.DESCRIBE, Resource.TOPIC, name)
    if may_describe and (known is None or ctx.authorize(AclOperation.DELETE, Resource.TOPIC, name)):
        return None
    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return DeletableTopicResult(
        name=name if isinstance(topic, str) or may_describe else None,
        topic_id=topic if isinstance(topic, bytes) else ZERO_UUID,
        error_code=error,
        error_message=error.message,
    )


def _states_of(names: list[str]) -> list[DeleteTopicState]:
    return [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in names]


def _response(deletion: TopicDeletion) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=deletion.name,
        topic_id=deletion.topic_id,
        error_code=deletion.error_code,
        error_message=deletion.error_message,
    )


def _bad_state(state: DeleteTopicState) -> DeletableTopicResult:
    """Neither a name nor an id, or both."""
    if state.name is None:
        message = "Neither topic name nor id were specified."
    else:
        message = "You may not specify both topic name and topic id."
    return DeletableTopicResult(
        name=state.name, topic_id=state.topic_id, error_code=ErrorCode.INVALID_REQUEST, error_message=message
    )


def _disabled(states: list[DeleteTopicState], version: int) -> DeleteTopicsResponse:
    return _refused(
        states, ErrorCode.TOPIC_DELETION_DISABLED if version >= _DISABLED_SINCE else ErrorCode.INVALID_REQUEST
    )


def _refused(states: list[DeleteTopicState], error: ErrorCode) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        throttle_time_ms=0,
        responses=[
            DeletableTopicResult(
                name=state.name, topic_id=state.topic_id, error_code=error, error_message=error.message
            )
            for state in states
        ],
    )
