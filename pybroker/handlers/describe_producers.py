"""DescribeProducers (key 61), version 0.

Behaviour: what the partitions that are led or followed here remember of their producers: epoch, last sequence, where an
open transaction began.  With it hanging transactions are found (KIP-664).
"""

from __future__ import annotations

from pybroker import limits
from pybroker.cluster.image.topic_names import invalid_reason
from pybroker.handlers.context import RequestContext, Steps
from pybroker.handlers.portions import portions
from pybroker.security.acl_bindings import AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


def handle(ctx: RequestContext, request: DescribeProducersRequest) -> Steps:
    """Answer every partition from the producer state of its log."""
    topics = []
    for topic in request.topics:
        error, message = _refusal(ctx, topic.name)
        partitions = []
        for index in topic.partition_indexes:
            partitions.append(
                _failed(index, error, message) if error else (yield from _describe(ctx, topic.name, index))
            )
            yield
        topics.append(TopicResponse(name=topic.name, partitions=partitions))
    return DescribeProducersResponse(throttle_time_ms=0, topics=topics)


def _refusal(ctx: RequestContext, topic: str) -> tuple[ErrorCode, str | None]:
    reason = invalid_reason(topic)
    if reason is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION, reason
    if not ctx.authorize(AclOperation.READ, Resource.TOPIC, topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED.message
    if topic not in ctx.services.metadata.image.topics_by_name:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {topic}."
    return ErrorCode.NONE, None


def _describe(ctx: RequestContext, topic: str, index: int) -> Steps:
    """All producers of one partition; there may be as many as clients have asked for ids."""
    replicas = ctx.services.replicas
    partition = replicas.partition(topic, index) or replicas.followed(topic, index)
    if partition is None:
        return _failed(index, replicas.error_of(topic, index), None)
    producers: list[ProducerState] = []
    for some in portions(list(partition.log.producers.producers.items()), limits.PARTITIONS_AT_ONCE):
        producers += [
            ProducerState(
                producer_id=producer_id,
                producer_epoch=entry.producer_epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.last_timestamp,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=entry.current_txn_first_offset,
            )
            for producer_id, entry in some
        ]
        yield
    return PartitionResponse(
        partition_index=index, error_code=ErrorCode.NONE, error_message=None, active_producers=producers
    )


def _failed(index: int, error: int, message: str | None) -> PartitionResponse:
    return PartitionResponse(partition_index=index, error_code=error, error_message=message, active_producers=[])
