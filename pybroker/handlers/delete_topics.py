"""DeleteTopics (key 20), versions 1 to 6.

Behaviour: each topic is answered for itself; those of the cluster's own are deleted like any other, as in Kafka.
``delete.topic.enable=false`` refuses them all: INVALID_REQUEST up to 2, TOPIC_DELETION_DISABLED from 3.
Version notes: by id from 6 (KIP-516), where each topic has either a name or an id.
"""

from __future__ import annotations

from pybroker.cluster.operations import TopicDeletion
from pybroker.handlers.context import Parked, RequestContext
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from pybroker_protocol.uuids import ZERO_UUID

_DISABLED_SINCE = 3
_STATES_SINCE = 6


def handle(ctx: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse | Parked:
    """Delete the topics; the reply waits for the commit."""
    states = request.topics if ctx.api_version >= _STATES_SINCE else _states_of(request.topic_names)
    if not ctx.services.config.get_bool("delete.topic.enable"):
        return _disabled(states, ctx.api_version)
    responses = [_bad_state(state) for state in states if (state.name is None) == (state.topic_id == ZERO_UUID)]
    topics: list[str | bytes] = [
        state.topic_id if state.name is None else state.name
        for state in states
        if (state.name is None) != (state.topic_id == ZERO_UUID)
    ]
    parked = Parked()

    def done(results: list[TopicDeletion]) -> None:
        rows = [_response(result) for result in results]
        parked.complete(DeleteTopicsResponse(throttle_time_ms=0, responses=responses + rows))

    ctx.services.controller.delete_topics(topics, done, timeout_ms=request.timeout_ms)
    return parked


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
    error = ErrorCode.TOPIC_DELETION_DISABLED if version >= _DISABLED_SINCE else ErrorCode.INVALID_REQUEST
    return DeleteTopicsResponse(
        throttle_time_ms=0,
        responses=[
            DeletableTopicResult(
                name=state.name, topic_id=state.topic_id, error_code=error, error_message=error.message
            )
            for state in states
        ],
    )
