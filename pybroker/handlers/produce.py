"""Produce (key 0), versions 3 to 13 (advertised from 0, KAFKA-18659).

Behaviour: one record batch per partition, validated from its header alone and never decoded unless a rule needs it;
acks 0 (no reply, an error closes the connection), 1 and -1; topic ids from 13; errors per partition, and per record
from 8 (KIP-467).
Not done: transactions.  A transactional id is refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which is fatal to
the client, so that it does not spin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pybroker.cluster.image import INTERNAL_TOPICS
from pybroker.handlers.context import CloseConnection, HeldRequest, Parked, RequestContext
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from pybroker_protocol.records import ATTRIBUTES_AT, TRANSACTIONAL_FLAG

if TYPE_CHECKING:
    from pybroker.replication.partition import Partition
    from pybroker.storage.results import AppendResult

_NONE = 0
_BY_ID = 13
_ADMIN_CLIENT = "__admin_client"  # the one client id that Kafka lets write into internal topics
_ATTRIBUTES_LOW_BYTE = ATTRIBUTES_AT + 1
_NO_RECORDS = memoryview(b"")


class _Produce:
    """One request under way: the reply as far as it is known, and how many appends are still at the disk."""

    __slots__ = ("held", "parked", "pending", "response")

    def __init__(self) -> None:
        self.response = ProduceResponse(responses=[], throttle_time_ms=0)
        self.pending = 0
        self.parked: Parked | None = None
        self.held: HeldRequest | None = None

    def append(self, partition: Partition, records: memoryview, version: int, reply: PartitionProduceResponse) -> None:
        def written(result: AppendResult) -> None:
            fill(reply, result)
            self.pending -= 1
            if self.pending == 0:
                self._complete()

        result = partition.append_as_leader(records, version, written)
        if result is None:
            self.pending += 1
        else:
            fill(reply, result)

    def _complete(self) -> None:
        if self.held is not None:
            self.held.release()
        if self.parked is not None:
            self.parked.complete(self.response)


def handle(ctx: RequestContext, request: ProduceRequest) -> ProduceResponse | Parked | None:
    """Append every partition's batch; the reply waits for those that go to the writer thread."""
    produce = _Produce()
    refusal = _refusal(request)
    by_id = ctx.api_version >= _BY_ID
    replicas = ctx.services.replicas
    for topic in request.topic_data:
        replies: list[PartitionProduceResponse] = []
        for data in topic.partition_data:
            reply = PartitionProduceResponse(index=data.index, error_code=_NONE, base_offset=-1)
            replies.append(reply)
            if refusal:
                reply.error_code = refusal
                continue
            if by_id:
                partition = replicas.partition_by_id(topic.topic_id, data.index)
            else:
                partition = replicas.partition(topic.name, data.index)
            if partition is not None:
                records = cast(memoryview, data.records) if data.records is not None else _NO_RECORDS
                if len(records) > _ATTRIBUTES_LOW_BYTE and records[_ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_FLAG:
                    # Nothing would ever end the transaction that this batch begins.
                    reply.error_code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
                    continue
                if partition.topic in INTERNAL_TOPICS and ctx.client_id != _ADMIN_CLIENT:
                    # What a client wrote there, a coordinator would replay as its own state.
                    reply.error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
                    continue
                produce.append(partition, records, ctx.api_version, reply)
                continue
            reply.error_code = (
                replicas.error_of_id(topic.topic_id, data.index) if by_id else replicas.error_of(topic.name, data.index)
            )
            if reply.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                _name_leader(ctx, reply, topic.name, data.index)
        produce.response.responses.append(
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=replies)
        )
    if request.acks == 0:
        _check_without_reply(ctx, produce)
        return None
    if not produce.pending:
        return produce.response
    produce.held = ctx.connection.hold_request()
    produce.parked = Parked()
    return produce.parked


def _refusal(request: ProduceRequest) -> int:
    """The error of the whole request, or 0."""
    if request.transactional_id is not None:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if request.acks not in (-1, 0, 1):
        return ErrorCode.INVALID_REQUIRED_ACKS
    return 0


def _check_without_reply(ctx: RequestContext, produce: _Produce) -> None:
    """acks=0: the client learns of an error by the end of its connection, as in Kafka."""
    for topic in produce.response.responses:
        for reply in topic.partition_responses:
            if reply.error_code:
                raise CloseConnection(f"produce with acks=0 to {topic.name}-{reply.index}: error {reply.error_code}")
    if produce.pending:
        produce.held = ctx.connection.hold_request()


def response_of(
    name: str, topic_id: bytes, index: int, base_offset: int, log_append_time_ms: int, log_start_offset: int
) -> ProduceResponse:
    """The reply to a request with one batch."""
    reply = PartitionProduceResponse(
        index=index,
        error_code=_NONE,
        base_offset=base_offset,
        log_append_time_ms=log_append_time_ms,
        log_start_offset=log_start_offset,
    )
    topic = TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=[reply])
    return ProduceResponse(responses=[topic], throttle_time_ms=0)


def fill(reply: PartitionProduceResponse, result: AppendResult) -> None:
    """Write the fate of an append into its partition's reply."""
    reply.error_code = result.error_code
    reply.base_offset = result.base_offset
    reply.log_append_time_ms = result.log_append_time_ms
    reply.log_start_offset = result.log_start_offset
    if result.error_code:
        reply.error_message = result.error_message
        reply.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in result.record_errors
        ]


def _name_leader(ctx: RequestContext, reply: PartitionProduceResponse, topic: str, index: int) -> None:
    """Tell the client who leads the partition, so that it need not ask (KIP-951)."""
    state = ctx.services.metadata.partition(topic, index)
    if state is not None:
        reply.current_leader = LeaderIdAndEpoch(leader_id=state.leader, leader_epoch=state.leader_epoch)
