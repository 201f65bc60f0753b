"""TxnOffsetCommit (key 28), versions 0 to 6.

Behaviour: a producer writes how far a group has read as part of its transaction. From 2 the leader epoch is kept. From
3 generation and member of the consumer are checked (KIP-447). TRANSACTION_ABORTABLE is answered from 4. From 5 the
broker adds the group's partition to the transaction by itself (KIP-890). From 6 topics come by id, and
STALE_MEMBER_EPOCH or GROUP_ID_NOT_FOUND is answered where older versions say ILLEGAL_GENERATION (KIP-1319). Topics and
partitions that do not exist are refused one by one.
"""

from __future__ import annotations

from operator import attrgetter

from pybroker.coordinators.group.offsets.transactional_offsets import TOPIC_IDS_VERSION, txn_offset_commit_error
from pybroker.handlers.context import Parked, RequestContext, Steps
from pybroker.handlers.portions import answered_in_portions, merge_topics
from pybroker.security.acl_bindings import AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_Refused = dict[tuple[bytes, str], TxnOffsetCommitResponseTopic]

_KNOWS_LOADING = 2  # older clients may crash of COORDINATOR_LOAD_IN_PROGRESS

_key = attrgetter("topic_id", "name")


def handle(ctx: RequestContext, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse | Parked | Steps:
    """Commit what exists and may be read; the rest comes first in the response, with an error each."""
    answer: TxnOffsetCommitResponse | Parked | Steps = answered_in_portions(ctx, request, _commit, _key)
    return answer


def _commit(ctx: RequestContext, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse | Parked:
    if not ctx.authorize(AclOperation.WRITE, Resource.TRANSACTIONAL_ID, request.transactional_id):
        return txn_offset_commit_error(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not ctx.authorize(AclOperation.READ, Resource.GROUP, request.group_id):
        return txn_offset_commit_error(request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    refused: _Refused = {}
    request.topics = [topic for topic in request.topics if _accept(ctx, topic, refused)]
    if not request.topics:
        return TxnOffsetCommitResponse(throttle_time_ms=0, topics=list(refused.values()))
    parked = Parked()
    version = ctx.api_version

    def done(response: TxnOffsetCommitResponse) -> None:
        if version < _KNOWS_LOADING:
            for topic in response.topics:
                _hide_loading(topic)
        merge_topics(refused, response.topics, _key)
        response.topics = list(refused.values())
        parked.complete(response)

    ctx.services.groups.commit_transactional_offsets(request, version, done)
    return parked


def _accept(ctx: RequestContext, topic: TxnOffsetCommitRequestTopic, refused: _Refused) -> bool:
    """Leave only partitions that exist and may be read, and fill in the name or the id; returns whether any is left."""
    image = ctx.services.metadata.image
    by_id = ctx.api_version >= TOPIC_IDS_VERSION
    known = image.topics_by_id.get(topic.topic_id) if by_id else image.topics_by_name.get(topic.name)
    error, count = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0
    if by_id and known is None:
        error = ErrorCode.UNKNOWN_TOPIC_ID
    elif not ctx.authorize(AclOperation.READ, Resource.TOPIC, topic.name if known is None else known.name):
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif known is not None:
        count = len(known.partitions)
        topic.name, topic.topic_id = known.name, known.topic_id
    accepted = []
    for partition in topic.partitions:
        index = partition.partition_index
        if 0 <= index < count:
            accepted.append(partition)
            continue
        nothing = TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=[])
        answer = refused.setdefault(_key(topic), nothing)
        answer.partitions.append(TxnOffsetCommitResponsePartition(partition_index=index, error_code=error))
    topic.partitions = accepted
    return bool(accepted)


def _hide_loading(topic: TxnOffsetCommitResponseTopic) -> None:
    for partition in topic.partitions:
        if partition.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            partition.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
