"""OffsetForLeaderEpoch (key 23), versions 2 to 4.

Behaviour: the end offset of the largest leader epoch that is not larger than the one asked for (KIP-101, KIP-320).
Not done: followers and consumers are answered alike.
"""

from __future__ import annotations

from pybroker.handlers.context import RequestContext, Steps
from pybroker.security.acl_bindings import CLUSTER_NAME, AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def handle(ctx: RequestContext, request: OffsetForLeaderEpochRequest) -> Steps:
    """Answer every partition from the log's leader-epoch cache."""
    topics = []
    # As followers may.
    sees_all = ctx.authorize(AclOperation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME, log_if_denied=False)
    for topic in request.topics:
        may_see = sees_all or ctx.authorize(AclOperation.DESCRIBE, Resource.TOPIC, topic.topic)
        partitions = []
        for asked in topic.partitions:
            partitions.append(
                _answer(ctx, topic.topic, asked) if may_see else _failed(asked, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            )
            yield
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
    return OffsetForLeaderEpochResponse(throttle_time_ms=0, topics=topics)


def _answer(ctx: RequestContext, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    replicas = ctx.services.replicas
    partition = replicas.partition(topic, asked.partition)
    if partition is None:
        return _failed(asked, replicas.error_of(topic, asked.partition, asked.current_leader_epoch))
    error = partition.epoch_error(asked.current_leader_epoch)
    if error:
        return _failed(asked, error)
    leader_epoch, end_offset = partition.log.end_offset_for_epoch(asked.leader_epoch, partition.leader_epoch)
    return EpochEndOffset(
        partition=asked.partition, error_code=ErrorCode.NONE, leader_epoch=leader_epoch, end_offset=end_offset
    )


def _failed(asked: OffsetForLeaderPartition, error: int) -> EpochEndOffset:
    return EpochEndOffset(partition=asked.partition, error_code=error, leader_epoch=-1, end_offset=-1)
