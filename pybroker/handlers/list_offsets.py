"""ListOffsets (key 2), versions 1 to 11.

Behaviour: by timestamp, and the special ones: -1 latest (the last stable offset for read_committed), -2 earliest, -3
the offset of the largest timestamp (KIP-734), -4 earliest local (KIP-405). -5 latest tiered (KIP-1005) and -6 earliest
pending upload (KIP-1023) have no answer without tiered storage. A follower, which asks by the listener between brokers,
and a debug consumer (replica id -2) are answered up to the log's end; the latter by any replica. Not done: tiered
storage.
"""

from __future__ import annotations

from collections import Counter

from pybroker.handlers.context import Parked, RequestContext, Steps
from pybroker.replication.fetch_session import DEBUGGING_CONSUMER
from pybroker.replication.partition import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    offset_to_the_end,
)
from pybroker.security.acl_bindings import AclOperation, Resource
from pybroker.storage.log.timestamp_lookup import TimestampLookup
from pybroker.storage.results import TimestampOffset
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
_LEADER_EPOCH_SINCE = ListOffsetsPartitionResponse.since("leader_epoch")
_NO_EPOCH = -1
_NOT_AVAILABLE_SINCE = 5
_READ_COMMITTED = 1


def handle(ctx: RequestContext, request: ListOffsetsRequest) -> Steps:
    """Answer every partition, one after another: a request for many has one search by timestamp under way."""
    read_committed = request.isolation_level == _READ_COMMITTED
    is_debug = request.replica_id == DEBUGGING_CONSUMER
    to_the_end = is_debug or (request.replica_id >= 0 and ctx.is_brokers)
    counts: Counter[tuple[str, int]] = Counter()
    for topic in request.topics:
        for asked in topic.partitions:
            counts[topic.name, asked.partition_index] += 1
            yield
    answers: dict[str, dict[int, ListOffsetsPartitionResponse]] = {}
    for topic in request.topics:
        may_see = ctx.authorize(AclOperation.DESCRIBE, Resource.TOPIC, topic.name)
        for asked in topic.partitions:
            if not may_see:
                answer = _failed(asked, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            # A partition that is asked for twice is answered once, with an error.
            elif counts[topic.name, asked.partition_index] > 1:
                answer = _failed(asked, ErrorCode.INVALID_REQUEST)
            else:
                answer = yield from _answer(ctx, topic.name, asked, read_committed, to_the_end, is_debug)
            answers.setdefault(topic.name, {})[asked.partition_index] = answer
            yield
    topics = []
    for name, of_topic in answers.items():
        topics.append(ListOffsetsTopicResponse(name=name, partitions=list(of_topic.values())))
        yield
    return ListOffsetsResponse(throttle_time_ms=0, topics=topics)


def _answer(
    ctx: RequestContext,
    topic: str,
    asked: ListOffsetsPartition,
    read_committed: bool,
    to_the_end: bool,
    is_debug: bool,
) -> Steps:
    replicas = ctx.services.replicas
    partition = replicas.partition(topic, asked.partition_index)
    followed = replicas.followed(topic, asked.partition_index) if partition is None and is_debug else None
    replica = partition or followed
    if replica is None:
        return _failed(asked, replicas.error_of(topic, asked.partition_index, asked.current_leader_epoch))
    error = replica.epoch_error(asked.current_leader_epoch)
    if not error and asked.timestamp < 0 and _SINCE.get(asked.timestamp, _NEVER) > ctx.api_version:
        error = ErrorCode.UNSUPPORTED_VERSION
    if error:
        return _failed(asked, error)
    found: TimestampOffset | TimestampLookup
    if to_the_end or partition is None:
        found = offset_to_the_end(replica.log, replica.leader_epoch, asked.timestamp)
    else:
        found = partition.offset_for(asked.timestamp, read_committed)
    if isinstance(found, TimestampLookup):
        later = Parked()
        later.on_abandon = found.give_up
        found.start(later.complete)
        looked_up: TimestampOffset | None = yield later
        if to_the_end or partition is None:
            found = looked_up or TimestampOffset(-1, -1, -1)
        else:
            found = partition.shown(looked_up, read_committed)
    if found.error_code == ErrorCode.OFFSET_NOT_AVAILABLE and ctx.api_version < _NOT_AVAILABLE_SINCE:
        return _failed(asked, ErrorCode.LEADER_NOT_AVAILABLE)
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        error_code=found.error_code,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=found.leader_epoch if ctx.api_version >= _LEADER_EPOCH_SINCE else _NO_EPOCH,
    )


def _failed(asked: ListOffsetsPartition, error: int) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index, error_code=error, timestamp=-1, offset=-1, leader_epoch=-1
    )
