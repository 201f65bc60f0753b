"""Produce (key 0), versions 3 to 13 (advertised from 0, KAFKA-18659).

Behaviour: one record batch per partition, validated from its header alone and never decoded unless a rule needs it;
acks 0 (no reply, an error closes the connection), 1 and -1; topic ids from 13; errors per partition, and per record
from 8 (KIP-467).  The first batch of a transaction waits for the transaction coordinator's word, and what comes behind
it on the connection waits for it: below 12 the coordinator verifies that the client has added the partition, from 12 it
adds it; TRANSACTION_ABORTABLE from 11 (KIP-890).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from pybroker import limits
from pybroker.apis import AclOperation, Resource
from pybroker.cluster.image import INTERNAL_TOPICS
from pybroker.handlers.context import NO_REPLY, CloseConnection, HeldRequest, Parked, RequestContext, Steps
from pybroker.handlers.portions import is_short, portions, portions_of_topics
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from pybroker_protocol.records import ATTRIBUTES_AT, TRANSACTIONAL_FLAG

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pybroker.replication.partition import Partition
    from pybroker.storage.results import AppendResult

_NONE = 0
_BY_ID = 13
_ADMIN_CLIENT = "__admin_client"  # the one client id that Kafka lets write into internal topics
_ATTRIBUTES_LOW_BYTE = ATTRIBUTES_AT + 1
_NO_RECORDS = memoryview(b"")
_REFUSALS = {int(ErrorCode.INVALID_PRODUCER_ID_MAPPING): "One request may write for one transactional producer only"}


class Produce:
    """One request under way: the reply as far as it is known, and how many appends are still at the disk."""

    __slots__ = ("api_version", "copied_bytes", "held", "needs_request", "on_complete", "pending", "response")

    def __init__(self, api_version: int) -> None:
        self.api_version = api_version
        self.response = ProduceResponse(responses=[], throttle_time_ms=0)
        self.pending = 0
        self.on_complete: Callable[[ProduceResponse], None] | None = None
        self.held: HeldRequest | None = None
        self.copied_bytes = 0  # of batches that a log has copied and not written yet
        self.needs_request = False  # a log reads a batch from the request's bytes till it is done with it

    def append(self, partition: Partition, records: memoryview, reply: PartitionProduceResponse) -> None:
        """Append a batch; its reply is filled in now or later."""

        def written(result: AppendResult) -> None:
            fill(reply, result)
            self.pending -= 1
            self.complete_if_done()

        result = partition.append_as_leader(records, self.api_version, written)
        if result is None:
            self.pending += 1
            if len(records) > limits.INLINE_WRITE_BYTES_MAX:
                self.needs_request = True
            else:
                self.copied_bytes += len(records)
        else:
            fill(reply, result)

    def complete_if_done(self) -> None:
        """Hand over the response, if somebody waits for it and nothing is missing."""
        if self.pending:
            return
        if self.held is not None:
            self.held.release()
            self.held = None
        if self.on_complete is not None:
            self.on_complete(self.response)

    def answer(self, ctx: RequestContext, acks: int) -> ProduceResponse | Parked | None:
        """The handler's answer, once every batch has been handed to its log."""
        if not self.pending:
            if acks:
                return self.response
            if (reason := reason_to_close(self.response)) is not None:
                raise CloseConnection(reason)
            return None
        if self.held is None:
            # Also before a connection is closed: a writer thread reads the records from the request.
            connection = ctx.connection
            self.held = connection.hold_request() if self.needs_request else connection.hold_copy(self.copied_bytes)
        return self.wait(ctx, acks)

    def wait(self, ctx: RequestContext, acks: int) -> Parked:
        """The handler's answer while something is missing; whoever needs the request's bytes till then holds them.

        Also with acks=0: a request that waits without a place among the others would be bounded by nothing.
        """
        parked = Parked()
        if acks:
            self.on_complete = parked.complete
            return parked
        connection = ctx.connection

        def close_on_error(response: ProduceResponse) -> None:
            if (reason := reason_to_close(response)) is not None:
                connection.refuse(reason)
            else:
                parked.complete(NO_REPLY)

        self.on_complete = close_on_error
        return parked


def reason_to_close(response: ProduceResponse) -> str | None:
    """acks=0: the client learns of an error by the end of its connection, as in Kafka; None where there is none."""
    for topic in response.responses:
        for reply in topic.partition_responses:
            if reply.error_code:
                return f"produce with acks=0 to {topic.name}-{reply.index}: error {reply.error_code}"
    return None


# What becomes of a batch whose partition was found.
_Place = Callable[["Partition", memoryview, PartitionProduceResponse], None]


def handle(ctx: RequestContext, request: ProduceRequest) -> ProduceResponse | Parked | Steps | None:
    """Append every partition's batch; the reply waits for those that go to the writer thread."""
    produce = Produce(ctx.api_version)
    is_transactional = _has_transactional_records(request)
    refusal = _refusal(ctx, request, is_transactional)
    if _is_long(ctx, request.topic_data):
        return _append_many(ctx, request, refusal, is_transactional, produce)
    if is_transactional and not refusal:
        from pybroker.handlers.transactional_produce import TransactionalProduce, producers_of

        refusal = _refusal_of_producers(producers_of(_records_of(request.topic_data)))
    if refusal or not is_transactional:
        _place_batches(ctx, request.topic_data, refusal, produce.response, produce.append)
        return produce.answer(ctx, request.acks)
    places: list[tuple[Partition, memoryview, PartitionProduceResponse]] = []
    _place_batches(ctx, request.topic_data, refusal, produce.response, lambda *place: places.append(place))
    assert request.transactional_id is not None
    transactional = TransactionalProduce(produce, places)
    transactional.start(ctx, request.transactional_id)
    if transactional.is_appended:
        return produce.answer(ctx, request.acks)
    return transactional.wait(ctx, request.acks)


def _is_long(ctx: RequestContext, topics: list[TopicProduceData]) -> bool:
    """Whether it takes several turns: because of many batches, or of several that are the first of their partitions."""
    if is_short(topics, "partition_data", limits.PARTITIONS_APPENDED_AT_ONCE):
        return False
    if not is_short(topics, "partition_data"):
        return True
    by_id = ctx.api_version >= _BY_ID
    replicas = ctx.services.replicas
    for topic in topics:
        key = topic.topic_id if by_id else topic.name
        for data in topic.partition_data:
            partition = replicas.partition(key, data.index)
            if partition is not None and not partition.log.on_disk:
                return True
    return False


def _append_many(
    ctx: RequestContext, request: ProduceRequest, refusal: int, is_transactional: bool, produce: Produce
) -> Steps:
    """Append over many turns: nothing behind it on its connection is started, so that batches stay in order."""
    held = ctx.connection.hold_request()
    produce.pending += 1  # so that no append which completes on the way is taken for the last one
    try:
        if is_transactional and not refusal:
            yield from _append_many_transactional(ctx, request, produce)
        else:
            yield from _place_many(ctx, request, refusal, produce, produce.append)
    finally:
        produce.pending -= 1
        # A writer thread may still read from the request.
        if produce.pending:
            produce.held = held
        else:
            held.release()
    return produce.answer(ctx, request.acks)


def _append_many_transactional(ctx: RequestContext, request: ProduceRequest, produce: Produce) -> Steps:
    """The coordinator is asked once, for all of them."""
    from pybroker.handlers.transactional_produce import TransactionalProduce, producers_of

    producers: set[tuple[int, int]] = set()
    for portion in _portions(request):
        producers |= producers_of(_records_of(portion))
        yield
    refusal = _refusal_of_producers(producers)
    if refusal:
        yield from _place_many(ctx, request, refusal, produce, produce.append)
        return
    places: list[tuple[Partition, memoryview, PartitionProduceResponse]] = []
    yield from _place_many(ctx, request, 0, produce, lambda *place: places.append(place))
    assert request.transactional_id is not None
    transactional = TransactionalProduce(produce, places)
    verified = Parked()
    transactional.verify(ctx, request.transactional_id, verified.complete)
    errors = yield verified
    for some in portions(places, limits.PARTITIONS_APPENDED_AT_ONCE):
        transactional.append(some, errors)
        yield


def _place_many(ctx: RequestContext, request: ProduceRequest, refusal: int, produce: Produce, place: _Place) -> Steps:
    answered = produce.response.responses
    for portion in _portions(request):
        some = ProduceResponse(responses=[], throttle_time_ms=0)
        _place_batches(ctx, portion, refusal, some, place)
        for topic in some.responses:
            if answered and (answered[-1].name, answered[-1].topic_id) == (topic.name, topic.topic_id):
                answered[-1].partition_responses.extend(topic.partition_responses)
            else:
                answered.append(topic)
        yield


def _portions(request: ProduceRequest) -> Iterator[list[TopicProduceData]]:
    return portions_of_topics(request.topic_data, "partition_data", limits.PARTITIONS_APPENDED_AT_ONCE)


def _place_batches(
    ctx: RequestContext, topics: list[TopicProduceData], refusal: int, response: ProduceResponse, place: _Place
) -> None:
    """Find the partition of every batch, and answer for those that may not be appended."""
    by_id = ctx.api_version >= _BY_ID
    replicas = ctx.services.replicas
    request_refusal = refusal
    for topic in topics:
        replies: list[PartitionProduceResponse] = []
        key = topic.topic_id if by_id else topic.name
        refusal = request_refusal or _refusal_of_topic(ctx, topic, by_id)
        for data in topic.partition_data:
            reply = PartitionProduceResponse(index=data.index, error_code=_NONE, base_offset=-1)
            replies.append(reply)
            if refusal:
                reply.error_code = refusal
                reply.error_message = _REFUSALS.get(refusal)
                continue
            partition = replicas.partition(key, data.index)
            if partition is not None:
                if partition.topic in INTERNAL_TOPICS and ctx.client_id != _ADMIN_CLIENT:
                    # What a client wrote there, a coordinator would replay as its own state.
                    reply.error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
                    continue
                place(partition, cast(memoryview, data.records) if data.records is not None else _NO_RECORDS, reply)
                continue
            reply.error_code = replicas.error_of(key, data.index)
            if reply.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                _name_leader(ctx, reply, topic.name, data.index)
        if replies:
            response.responses.append(
                TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=replies)
            )


def _records_of(topics: list[TopicProduceData]) -> Iterator[memoryview]:
    for topic in topics:
        for data in topic.partition_data:
            if data.records is not None:
                yield cast(memoryview, data.records)


def _has_transactional_records(request: ProduceRequest) -> bool:
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if (
                records is not None
                and len(records) > _ATTRIBUTES_LOW_BYTE
                and records[_ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_FLAG
            ):
                return True
    return False


def _refusal(ctx: RequestContext, request: ProduceRequest, is_transactional: bool) -> int:
    """The error of the whole request, or 0, as far as it does not depend on the batches."""
    if is_transactional:
        transactional_id = request.transactional_id
        if transactional_id is None or not ctx.authorize(
            AclOperation.WRITE, Resource.TRANSACTIONAL_ID, transactional_id
        ):
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if request.acks not in (-1, 0, 1):
        return ErrorCode.INVALID_REQUIRED_ACKS
    return 0


def _refusal_of_topic(ctx: RequestContext, topic: TopicProduceData, by_id: bool) -> int:
    """TOPIC_AUTHORIZATION_FAILED, or 0, also of an id that nobody has: that is refused as such."""
    if ctx.services.authorizer is None:
        return 0
    name: str | None = topic.name
    if by_id:
        image = ctx.services.metadata.image.topics_by_id.get(topic.topic_id)
        name = None if image is None else image.name
    may_write = name is None or ctx.authorize(AclOperation.WRITE, Resource.TOPIC, name)
    return 0 if may_write else ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _refusal_of_producers(producers: set[tuple[int, int]]) -> int:
    return ErrorCode.INVALID_PRODUCER_ID_MAPPING if len(producers) > 1 else 0


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
