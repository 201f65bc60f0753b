"""CreateTopics (key 19), versions 2 to 7.

Behaviour: each topic is answered for itself: the valid ones are created.  ``validate_only`` creates none.
Version notes: partitions, replication and configs of the new topic from 5 (KIP-525), its id from 7 (KIP-516).
"""

from __future__ import annotations

from collections import Counter

from pybroker.cluster.decisions.operations import NewTopic, TopicCreation
from pybroker.config.describe import new_topic_entries
from pybroker.handlers.context import Parked, RequestContext, Steps
from pybroker.handlers.mutation_quotas import Mutations
from pybroker.handlers.portions import too_many
from pybroker.security.acl_bindings import CLUSTER_NAME, AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

_CONFIGS_SINCE = CreatableTopicResult.since("configs")
_STRICT_QUOTA_SINCE = 6  # KIP-599
_NOT_GIVEN = -1
_NOT_AUTHORIZED = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED), "Authorization failed."


def handle(ctx: RequestContext, request: CreateTopicsRequest) -> Steps:
    """Create the topics; the reply waits for the commit."""
    refused = too_many(request.topics)
    may_create_any = ctx.authorize(AclOperation.CREATE, Resource.CLUSTER, CLUSTER_NAME, log_if_denied=False)
    mutations = Mutations(ctx, _STRICT_QUOTA_SINCE)
    counts = Counter(topic.name for topic in request.topics)
    wanted: list[NewTopic] = []
    results: dict[str, CreatableTopicResult] = {}
    for topic in request.topics:
        name = topic.name
        if refused is not None:
            results[name] = _result(ctx, TopicCreation(name, *refused))
        # What comes twice is refused as such, without a word of permissions.
        elif may_create_any or counts[name] > 1 or ctx.authorize(AclOperation.CREATE, Resource.TOPIC, name):
            wanted.append(_new_topic(topic))
        else:
            results[name] = _result(ctx, TopicCreation(name, *_NOT_AUTHORIZED))
        yield
    if refused is None:
        created = Parked()
        ctx.services.controller.create_topics(
            wanted,
            created.complete,
            validate_only=request.validate_only,
            allows=mutations.allows,
            timeout_ms=request.timeout_ms,
        )
        for creation in (yield created):
            results[creation.name] = _result(ctx, creation)
            yield
    return CreateTopicsResponse(throttle_time_ms=mutations.throttle_time_ms, topics=list(results.values()))


def refuse(ctx: RequestContext, request: CreateTopicsRequest, error: ErrorCode) -> CreateTopicsResponse:
    """Nothing was created, for this reason."""
    names = dict.fromkeys(topic.name for topic in request.topics)
    results = [_result(ctx, TopicCreation(name, error, error.message)) for name in names]
    return CreateTopicsResponse(throttle_time_ms=0, topics=results)


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
    if creation.error_code or ctx.api_version < _CONFIGS_SINCE:
        return result
    if not ctx.authorize(AclOperation.DESCRIBE_CONFIGS, Resource.TOPIC, creation.name, log_if_denied=False):
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        result.num_partitions = result.replication_factor = _NOT_GIVEN
    else:
        result.configs = [
            CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.is_sensitive,
            )
            for entry in new_topic_entries(ctx.services.config, creation.overrides)
        ]
    return result
