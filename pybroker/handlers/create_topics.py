"""CreateTopics (key 19), versions 2 to 7.

Behaviour: each topic is answered for itself: the valid ones are created.  ``validate_only`` creates none.
Version notes: partitions, replication and configs of the new topic from 5 (KIP-525), its id from 7 (KIP-516).
"""

from __future__ import annotations

from pybroker.cluster.operations import NewTopic, TopicCreation
from pybroker.config.describe import topic_entries
from pybroker.handlers.context import Parked, RequestContext, Steps
from pybroker.handlers.portions import too_many
from pybroker_protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

_CONFIGS_SINCE = 5


def handle(ctx: RequestContext, request: CreateTopicsRequest) -> Steps:
    """Create the topics; the reply waits for the commit."""
    refused = too_many(request.topics)
    wanted: list[NewTopic] = []
    results: dict[str, CreatableTopicResult] = {}
    for topic in request.topics:
        if refused is None:
            wanted.append(_new_topic(topic))
        else:
            results[topic.name] = _result(ctx, TopicCreation(topic.name, *refused))
        yield
    if refused is None:
        created = Parked()
        ctx.services.controller.create_topics(
            wanted, created.complete, validate_only=request.validate_only, timeout_ms=request.timeout_ms
        )
        for creation in (yield created):
            results[creation.name] = _result(ctx, creation)
            yield
    return CreateTopicsResponse(throttle_time_ms=0, topics=list(results.values()))


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        tuple((assignment.partition_index, tuple(assignment.broker_ids)) for assignment in topic.assignments),
        tuple((config.name, config.value) for config in topic.configs),
    )


def _result(ctx: RequestContext, creation: TopicCreation) -> CreatableTopicResult:
    result = CreatableTopicResult(
        name=creation.name,
        topic_id=creation.topic_id,
        error_code=creation.error_code,
        error_message=creation.error_message,
        num_partitions=creation.num_partitions,
        replication_factor=creation.replication_factor,
        configs=[],
    )
    if creation.error_code == 0 and ctx.api_version >= _CONFIGS_SINCE:
        result.configs = [
            CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.is_sensitive,
            )
            for entry in sorted(topic_entries(ctx.services.config, creation.overrides, None))
        ]
    return result
