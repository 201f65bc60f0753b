"""Produce (key 0), versions 3 to 13 (advertised from 0, KAFKA-18659).

Behaviour: one record batch per partition, validated from its header alone and never decoded unless a rule needs it.
acks may be 0 (no reply, an error closes the connection), 1 and -1. Errors are per partition, and per record from 8
(KIP-467). Topics come by id from 13. The first batch of a transaction waits for the transaction coordinator's answer,
and what comes behind it on the connection waits for the batch. Below 12 the coordinator verifies that the client has
added the partition, from 12 it adds it. TRANSACTION_ABORTABLE is answered from 11 (KIP-890).

Who may produce is asked in three functions, each of them in one place: ``_refusal_of_request``, ``_refusal_of_topic``
and ``_refusal_of_partition``. When a batch may be appended and acknowledged is the partition's to say, what may stand
in it the log's. ``handle`` asks them for any request, ``append_run`` for those that ``net.produce_fast_path``
recognizes: a rule that is written there holds for both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from pybroker.cluster.image.coordinator_table import INTERNAL_TOPICS
from pybroker.handlers.context import Parked, RequestContext, Steps
from pybroker.handlers.portions import is_short, portions, portions_of_topics
from pybroker.handlers.produce_appends import ProduceAppends
from pybroker.security.acl_bindings import AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from pybroker_protocol.records import ATTRIBUTES_AT, TRANSACTIONAL_FLAG

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pybroker.handlers.transactional_produce import TransactionalProduce
    from pybroker.replication.partition import Partition

# Partitions of a Produce that are appended to at once: the first batch of a partition makes its files.
PARTITIONS_APPENDED_AT_ONCE = 20

_NONE = 0
_WRITE, _TOPIC = AclOperation.WRITE, Resource.TOPIC  # a look into an enum is a third of what a question costs
_BY_ID = TopicProduceData.since("topic_id")
_ADMIN_CLIENT = "__admin_client"  # the one client id that Kafka lets write into internal topics
_ATTRIBUTES_LOW_BYTE = ATTRIBUTES_AT + 1
_NO_RECORDS = memoryview(b"")
_REQUIRED_ACKS = (-1, 0, 1)
_REFUSALS = {int(ErrorCode.INVALID_PRODUCER_ID_MAPPING): "One request may write for one transactional producer only"}


# What becomes of a batch whose partition was found.
_Place = Callable[["Partition", memoryview, PartitionProduceResponse], None]


def handle(ctx: RequestContext, request: ProduceRequest) -> ProduceResponse | Parked | Steps | None:
    """Append every partition's batch; the reply waits for those that go to the writer thread."""
    produce = ProduceAppends(ctx.api_version, request.acks, request.timeout_ms)
    is_transactional = _has_transactional_records(request)
    refusal = _refusal_of_transaction(ctx, request) if is_transactional else 0
    refusal = refusal or _refusal_of_request(ctx, request.acks)
    if _is_long(ctx, request.topic_data):
        return _append_in_steps(ctx, request, refusal, is_transactional, produce)
    if is_transactional and not refusal:
        from pybroker.handlers.transactional_produce import TransactionalProduce, producers_of

        refusal = _refusal_of_producers(producers_of(_records_of(request.topic_data)))
        if not refusal:
            transactional = TransactionalProduce(produce)
            _place_batches(ctx, request.topic_data, refusal, produce, transactional.place)
            return transactional.start(ctx, request.transactional_id)
    _place_batches(ctx, request.topic_data, refusal, produce, produce.append)
    return produce.answer(ctx)


def append_run(
    ctx: RequestContext, partition: Partition, batches: Sequence[memoryview], required_acks: int
) -> list[int]:
    """Append the batches of requests with one each for the same partition: the base offsets of those that succeeded.

    Those are the first ones, as far as they are plain (``Partition.append_run``) and nothing speaks against them; what
    becomes of the others ``handle`` is to say.
    """
    if (
        _refusal_of_request(ctx, required_acks)
        or _refusal_of_topic(ctx, partition.topic)
        or _refusal_of_partition(ctx, partition.topic)
    ):
        return []
    return partition.append_run(batches, required_acks, ctx.api_version)


def _is_long(ctx: RequestContext, topics: list[TopicProduceData]) -> bool:
    """Whether it takes several turns: because of many batches, or of several that are the first of their partitions."""
    if is_short(topics, "partition_data", PARTITIONS_APPENDED_AT_ONCE):
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


def _append_in_steps(
    ctx: RequestContext, request: ProduceRequest, refusal: int, is_transactional: bool, produce: ProduceAppends
) -> Steps:
    """Append over many turns: nothing behind it on its connection is started, so that batches stay in order."""
    transactional: TransactionalProduce | None = None
    held = ctx.connection.hold_request()
    produce.pending += 1  # so that no append which completes on the way is taken for the last one
    try:
        if is_transactional and not refusal:
            from pybroker.handlers.transactional_produce import TransactionalProduce, producers_of

            producers: set[tuple[int, int]] = set()
            for portion in _portions(request):
                producers |= producers_of(_records_of(portion))
                yield
            refusal = _refusal_of_producers(producers)
            if not refusal:
                transactional = TransactionalProduce(produce)
        place = produce.append if transactional is None else transactional.place
        for portion in _portions(request):
            _place_batches(ctx, portion, refusal, produce, place)
            yield
        if transactional is not None:
            verified = Parked()
            transactional.verify(ctx, request.transactional_id, verified.complete)
            errors = yield verified
            for some in portions(transactional.places, PARTITIONS_APPENDED_AT_ONCE):
                transactional.append(some, errors)
                yield
    finally:
        produce.pending -= 1
        # A writer thread may still read from the request.
        if produce.pending:
            produce.held = held
        else:
            held.release()
    return produce.answer(ctx)


def _portions(request: ProduceRequest) -> Iterable[Sequence[TopicProduceData]]:
    return portions_of_topics(request.topic_data, "partition_data", PARTITIONS_APPENDED_AT_ONCE)


def _place_batches(
    ctx: RequestContext, topics: Sequence[TopicProduceData], refusal: int, produce: ProduceAppends, place: _Place
) -> None:
    """Find the partition of every batch, and answer for those that may not be appended; a cut topic goes on."""
    answered = produce.response.responses
    by_id = ctx.api_version >= _BY_ID
    replicas = ctx.services.replicas
    request_refusal = refusal
    for topic in topics:
        replies: list[PartitionProduceResponse] = []
        key = topic.topic_id if by_id else topic.name
        name = _name_of(ctx, topic) if by_id else topic.name
        refusal = request_refusal or _refusal_of_topic(ctx, name)
        for data in topic.partition_data:
            reply = PartitionProduceResponse(index=data.index, error_code=_NONE, base_offset=-1)
            replies.append(reply)
            if refusal:
                reply.error_code = refusal
                reply.error_message = _REFUSALS.get(refusal)
                continue
            partition = replicas.partition(key, data.index)
            if partition is not None:
                reply.error_code = _refusal_of_partition(ctx, partition.topic)
                if not reply.error_code:
                    place(partition, cast(memoryview, data.records) if data.records is not None else _NO_RECORDS, reply)
                continue
            reply.error_code = replicas.error_of(key, data.index)
            if name is not None and reply.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                reply.error_code = _refusal_of_partition(ctx, name) or reply.error_code
            if reply.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                produce.has_other_leader = True
                replicas.note_refusal(key, data.index, cast(memoryview, data.records or _NO_RECORDS), reply.error_code)
        if answered and (answered[-1].name, answered[-1].topic_id) == (topic.name, topic.topic_id):
            answered[-1].partition_responses.extend(replies)
        elif replies:
            answered.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=replies))


def _records_of(topics: Sequence[TopicProduceData]) -> Iterator[memoryview]:
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


def _refusal_of_request(ctx: RequestContext, required_acks: int) -> int:
    """The error of the whole request, or 0, as far as it depends on no topic."""
    return 0 if required_acks in _REQUIRED_ACKS else ErrorCode.INVALID_REQUIRED_ACKS


def _refusal_of_topic(ctx: RequestContext, name: str | None) -> int:
    """The error of all batches for a topic, or 0, also for None: an unknown id is refused as such."""
    if ctx.services.authorizer is None or name is None or ctx.authorize(_WRITE, _TOPIC, name):
        return 0
    return ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _refusal_of_partition(ctx: RequestContext, topic: str) -> int:
    """The error of a batch for a partition that there is, or 0, whatever is in it and wherever the leader is."""
    if topic in INTERNAL_TOPICS and ctx.client_id != _ADMIN_CLIENT:
        # What a client wrote there, a coordinator would replay as its own state.
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return 0


def _refusal_of_transaction(ctx: RequestContext, request: ProduceRequest) -> int:
    """The error of a request with transactional batches, or 0, as far as it does not depend on them."""
    transactional_id = request.transactional_id
    if transactional_id is not None and ctx.authorize(AclOperation.WRITE, Resource.TRANSACTIONAL_ID, transactional_id):
        return 0
    return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def _name_of(ctx: RequestContext, topic: TopicProduceData) -> str | None:
    image = ctx.services.metadata.image.topics_by_id.get(topic.topic_id)
    return None if image is None else image.name


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
