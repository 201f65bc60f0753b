"""DeleteRecords (key 21), versions 0 to 2.

Behaviour: moves the log's start to the offset asked for, -1 meaning the high watermark; segments below it go away with
the next look at retention (KIP-107).  A topic that is only compacted is refused with POLICY_VIOLATION,
an internal one with INVALID_TOPIC_EXCEPTION.  The answer comes when all live replicas have done so, or with
REQUEST_TIMED_OUT; the low watermark is where the last of them begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker.cluster.image.coordinator_table import INTERNAL_TOPICS
from pybroker.handlers.context import Parked, RequestContext, Steps
from pybroker.security.acl_bindings import AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from pybroker.replication.partition import Partition

    # What the replicas are waited for with, their partition, and its part of the answer.
    _Wait = tuple[Parked, Partition, DeleteRecordsPartitionResult]

_NO_OFFSET = -1


def handle(ctx: RequestContext, request: DeleteRecordsRequest) -> Steps:
    """Move the start of every partition's log; of a partition that is named twice, to the last of the offsets."""
    wanted: dict[str, dict[int, DeleteRecordsPartition]] = {}
    for topic in request.topics:
        for asked in topic.partitions:
            wanted.setdefault(topic.name, {})[asked.partition_index] = asked
            yield
    topics = []
    waiting: list[_Wait] = []
    for name, partitions in wanted.items():
        may_delete = ctx.authorize(AclOperation.DELETE, Resource.TOPIC, name)
        results = []
        for asked in partitions.values():
            results.append(
                _delete(ctx, name, asked, request.timeout_ms, waiting)
                if may_delete
                else _result(asked, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            )
            yield
        topics.append(DeleteRecordsTopicResult(name=name, partitions=results))
    for parked, partition, result in waiting:
        result.error_code = yield parked
        result.low_watermark = _NO_OFFSET if partition.gone else partition.low_watermark()
    return DeleteRecordsResponse(throttle_time_ms=0, topics=topics)


def _delete(
    ctx: RequestContext, topic: str, asked: DeleteRecordsPartition, timeout_ms: int, waiting: list[_Wait]
) -> DeleteRecordsPartitionResult:
    """What is there at once of the answer; the rest comes with what is put into ``waiting``."""
    replicas = ctx.services.replicas
    partition = replicas.partition(topic, asked.partition_index)
    error = ErrorCode.NONE if partition is not None else replicas.error_of(topic, asked.partition_index)
    if topic in INTERNAL_TOPICS and error != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        error = ErrorCode.INVALID_TOPIC_EXCEPTION  # also where another broker leads it
    if partition is None or error:
        return _result(asked, error)
    refusal = partition.delete_records(asked.offset)
    if refusal:
        return _result(asked, refusal)
    start_offset = partition.log.log_start_offset
    parked = Parked()
    result = _result(asked, ErrorCode.NONE, start_offset)
    if not partition.when_deleted_everywhere(start_offset, timeout_ms, parked.complete):
        waiting.append((parked, partition, result))
    return result


def _result(asked: DeleteRecordsPartition, error: int, low_watermark: int = _NO_OFFSET) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=asked.partition_index, low_watermark=low_watermark, error_code=error
    )
