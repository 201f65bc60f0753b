"""ListOffsets (key 2), versions 1 to 11.

Behaviour: by timestamp, and the special ones: -1 latest (the last stable offset for read_committed), -2 earliest,
-3 the offset of the largest timestamp (KIP-734), -4 earliest local (KIP-405), -5 latest tiered (KIP-1005) and -6
earliest pending upload (KIP-1023), which have no answer without tiered storage.
Not done: tiered storage; followers ask as debug consumers only.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from pybroker.handlers.context import Parked, RequestContext, Steps
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

if TYPE_CHECKING:
    from pybroker.storage.results import TimestampOffset

# The first version that knows each special timestamp.
_SINCE = {LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
_NEVER = 1 << 15
_SINCE_LEADER_EPOCH = 4
_NO_EPOCH = -1
_READ_COMMITTED = 1


def handle(ctx: RequestContext, request: ListOffsetsRequest) -> Steps:
    """Answer every partition; a search by timestamp reads the time index and one stretch of a segment."""
    read_committed = request.isolation_level == _READ_COMMITTED
    counts: Counter[tuple[str, int]] = Counter()
    for topic in request.topics:
        for asked in topic.partitions:
            counts[topic.name, asked.partition_index] += 1
            yield
    answers = _Answers(ctx.api_version)
    for topic in request.topics:
        for asked in topic.partitions:
            # A partition that is asked for twice is answered once, with an error.
            if counts[topic.name, asked.partition_index] > 1:
                answers.fail(topic.name, asked, ErrorCode.INVALID_REQUEST)
            else:
                _answer(ctx, answers, topic.name, asked, read_committed)
            yield
    answers.all_asked = True
    if answers.searches:
        yield answers.parked
    return (yield from answers.response())


class _Answers:
    """The answers to one request; ``searches`` of them come later, the last one completes ``parked``."""

    __slots__ = ("_api_version", "_by_topic", "all_asked", "parked", "searches")

    def __init__(self, api_version: int) -> None:
        self._api_version = api_version
        self._by_topic: dict[str, dict[int, ListOffsetsPartitionResponse]] = {}
        self.searches = 0
        self.all_asked = False  # a search may be over before the next one is begun
        self.parked = Parked()

    def fail(self, topic: str, asked: ListOffsetsPartition, error: int) -> None:
        self._by_topic.setdefault(topic, {})[asked.partition_index] = _failed(asked, error)

    def put(self, topic: str, asked: ListOffsetsPartition, found: TimestampOffset) -> None:
        self._by_topic.setdefault(topic, {})[asked.partition_index] = ListOffsetsPartitionResponse(
            partition_index=asked.partition_index,
            error_code=found.error_code,
            timestamp=found.timestamp,
            offset=found.offset,
            leader_epoch=found.leader_epoch if self._api_version >= _SINCE_LEADER_EPOCH else _NO_EPOCH,
        )

    def put_later(self, topic: str, asked: ListOffsetsPartition, found: TimestampOffset) -> None:
        self.put(topic, asked, found)
        self.searches -= 1
        if not self.searches and self.all_asked:
            self.parked.complete(True)

    def response(self) -> Steps:
        topics = []
        for name, answers in self._by_topic.items():
            topics.append(ListOffsetsTopicResponse(name=name, partitions=list(answers.values())))
            yield
        return ListOffsetsResponse(throttle_time_ms=0, topics=topics)


def _answer(
    ctx: RequestContext, answers: _Answers, topic: str, asked: ListOffsetsPartition, read_committed: bool
) -> None:
    replicas = ctx.services.replicas
    partition = replicas.partition(topic, asked.partition_index)
    if partition is None:
        answers.fail(topic, asked, replicas.error_of(topic, asked.partition_index))
        return
    error = partition.epoch_error(asked.current_leader_epoch)
    if not error and asked.timestamp < 0 and _SINCE.get(asked.timestamp, _NEVER) > ctx.api_version:
        error = ErrorCode.UNSUPPORTED_VERSION
    if error:
        answers.fail(topic, asked, error)
        return
    found = partition.offset_for(asked.timestamp, read_committed, partial(answers.put_later, topic, asked))
    if found is None:
        answers.searches += 1
    else:
        answers.put(topic, asked, found)


def _failed(asked: ListOffsetsPartition, error: int) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index, error_code=error, timestamp=-1, offset=-1, leader_epoch=-1
    )
