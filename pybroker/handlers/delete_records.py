"""DeleteRecords (key 21), versions 0 to 2.

Behaviour: moves the log's start to the offset asked for, -1 meaning the high watermark; segments below it go away with
the next look at retention (KIP-107).  A topic that is only compacted is refused with POLICY_VIOLATION,
an internal one with INVALID_TOPIC_EXCEPTION.
Not done: waiting for followers; with one replica the log's start is the low watermark.
"""

from __future__ import annotations

from pybroker.apis import AclOperation, Resource
from pybroker.cluster.image import INTERNAL_TOPICS
from pybroker.handlers.context import RequestContext, Steps
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

_NO_OFFSET = -1


def handle(ctx: RequestContext, request: DeleteRecordsRequest) -> Steps:
    """Move the start of every partition's log; of a partition that is named twice, to the last of the offsets."""
    wanted: dict[str, dict[int, DeleteRecordsPartition]] = {}
    for topic in request.topics:
        for asked in topic.partitions:
            wanted.setdefault(topic.name, {})[asked.partition_index] = asked
            yield
    topics = []
    for name, partitions in wanted.items():
        may_delete = ctx.authorize(AclOperation.DELETE, Resource.TOPIC, name)
        results = []
        for asked in partitions.values():
            results.append(
                _delete(ctx, name, asked) if may_delete else _result(asked, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            )
            yield
        topics.append(DeleteRecordsTopicResult(name=name, partitions=results))
    return DeleteRecordsResponse(throttle_time_ms=0, topics=topics)


def _delete(ctx: RequestContext, topic: str, asked: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    replicas = ctx.services.replicas
    partition = replicas.partition(topic, asked.partition_index)
    if partition is None:
        return _result(asked, replicas.error_of(topic, asked.partition_index))
    if topic in INTERNAL_TOPICS:
        return _result(asked, ErrorCode.INVALID_TOPIC_EXCEPTION)
    error = partition.delete_records(asked.offset)
    return _result(asked, error, _NO_OFFSET if error else partition.log.log_start_offset)


def _result(asked: DeleteRecordsPartition, error: int, low_watermark: int = _NO_OFFSET) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=asked.partition_index, low_watermark=low_watermark, error_code=error
    )
