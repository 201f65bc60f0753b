"""ListOffsets (key 2), versions 1 to 11.

Behaviour: by timestamp, and the special ones: -1 latest (the last stable offset for read_committed), -2 earliest,
-3 the offset of the largest timestamp (KIP-734), -4 earliest local (KIP-405), -5 latest tiered (KIP-1005) and -6
earliest pending upload (KIP-1023), which have no answer without tiered storage.
Not done: tiered storage; followers ask as debug consumers only.
"""

from __future__ import annotations

from collections import Counter

from pybroker.handlers.context import RequestContext
from pybroker.replication.partition import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
)
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

# The first version that knows each special timestamp.
_SINCE = {LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
_NEVER = 1 << 15
_SINCE_LEADER_EPOCH = 4
_NO_EPOCH = -1
_READ_COMMITTED = 1


def handle(ctx: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Answer every partition; a search by timestamp reads the time index and one stretch of a segment."""
    read_committed = request.isolation_level == _READ_COMMITTED
    counts = Counter((topic.name, asked.partition_index) for topic in request.topics for asked in topic.partitions)
    replies: dict[str, dict[int, ListOffsetsPartitionResponse]] = {}
    for topic in request.topics:
        for asked in topic.partitions:
            # A partition that is asked for twice is answered once, with an error.
            reply = (
                _failed(asked, ErrorCode.INVALID_REQUEST)
                if counts[topic.name, asked.partition_index] > 1
                else _answer(ctx, topic.name, asked, read_committed)
            )
            replies.setdefault(topic.name, {})[asked.partition_index] = reply
    topics = [ListOffsetsTopicResponse(name=name, partitions=list(found.values())) for name, found in replies.items()]
    return ListOffsetsResponse(throttle_time_ms=0, topics=topics)


def _answer(
    ctx: RequestContext, topic: str, asked: ListOffsetsPartition, read_committed: bool
) -> ListOffsetsPartitionResponse:
    replicas = ctx.services.replicas
    partition = replicas.partition(topic, asked.partition_index)
    if partition is None:
        return _failed(asked, replicas.error_of(topic, asked.partition_index))
    error = partition.epoch_error(asked.current_leader_epoch)
    if error:
        return _failed(asked, error)
    if asked.timestamp < 0 and _SINCE.get(asked.timestamp, _NEVER) > ctx.api_version:
        return _failed(asked, ErrorCode.UNSUPPORTED_VERSION)
    found = partition.offset_for(asked.timestamp, read_committed)
    if found.error_code:
        return _failed(asked, found.error_code)
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        error_code=ErrorCode.NONE,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=found.leader_epoch if ctx.api_version >= _SINCE_LEADER_EPOCH else _NO_EPOCH,
    )


def _failed(asked: ListOffsetsPartition, error: int) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index, error_code=error, timestamp=-1, offset=-1, leader_epoch=-1
    )
