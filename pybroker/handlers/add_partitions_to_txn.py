"""AddPartitionsToTxn (key 24), versions 0 to 5.

Behaviour: partitions become part of the producer's transaction, all of them or none: where one does not exist, the
others are OPERATION_NOT_ATTEMPTED.  A client may not name internal topics.  From 2 a fenced producer hears
PRODUCER_FENCED.  From 4 brokers ask for partitions that they lead, many transactions at once, and may only want to know
whether a partition belongs to one (KIP-890).
"""

from __future__ import annotations

from itertools import groupby

from pybroker.apis import CLUSTER_NAME, Operation, Resource
from pybroker.cluster.image import INTERNAL_TOPICS
from pybroker.coordinators.gather import Gather
from pybroker.handlers.context import Parked, RequestContext
from pybroker.storage.results import PartitionErrors
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

BATCHED_VERSION = 4

# One code for all partitions of a transaction, or one for each.
Outcome = int | PartitionErrors


def handle(ctx: RequestContext, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse | Parked:
    """Check each transaction's partitions and hand it to the coordinator."""
    batched = ctx.api_version >= BATCHED_VERSION
    if batched and not ctx.authorize(Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
        return AddPartitionsToTxnResponse(
            throttle_time_ms=0, error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, results_by_transaction=[]
        )
    transactions = request.transactions if batched else [_of_client(request)]
    parked = Parked()

    def answer(outcomes: list[Outcome]) -> None:
        results = [
            AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id, topic_results=_topic_results(transaction, outcome)
            )
            for transaction, outcome in zip(transactions, outcomes, strict=True)
        ]
        if batched:
            response = AddPartitionsToTxnResponse(
                throttle_time_ms=0, error_code=ErrorCode.NONE, results_by_transaction=results
            )
        else:
            topic_results = results[0].topic_results
            response = AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_topic_v3_and_below=topic_results)
        parked.complete(response)

    gather = Gather(len(transactions), answer)
    for position, transaction in enumerate(transactions):
        refused = _refused(ctx, transaction)
        if refused is not None:
            gather.slot(position)(refused)
        else:
            ctx.services.transactions.add_partitions(transaction, ctx.api_version, gather.slot(position))
    return parked


def _of_client(request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        verify_only=False,
        topics=request.v3_and_below_topics,
    )


def _refused(ctx: RequestContext, transaction: AddPartitionsToTxnTransaction) -> Outcome | None:
    """What is said of the partitions if the coordinator is not to be asked at all."""
    is_client = ctx.api_version < BATCHED_VERSION
    if is_client and not ctx.authorize(Operation.WRITE, Resource.TRANSACTIONAL_ID, transaction.transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    topics = ctx.services.metadata.image.topics_by_name
    errors: PartitionErrors = {}
    for topic in transaction.topics:
        name = topic.name
        if is_client and (name in INTERNAL_TOPICS or not ctx.authorize(Operation.WRITE, Resource.TOPIC, name)):
            errors |= {(name, index): ErrorCode.TOPIC_AUTHORIZATION_FAILED for index in topic.partitions}
            continue
        count = len(topics[name].partitions) if name in topics else 0
        missing = [index for index in topic.partitions if not 0 <= index < count]
        errors |= {(name, index): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for index in missing}
    if not errors:
        return None
    partitions = ((topic.name, index) for topic in transaction.topics for index in topic.partitions)
    return dict.fromkeys(partitions, int(ErrorCode.OPERATION_NOT_ATTEMPTED)) | errors


def _topic_results(transaction: AddPartitionsToTxnTransaction, outcome: Outcome) -> list[AddPartitionsToTxnTopicResult]:
    """What was asked for, with one code for all; where each partition has its own, each is named once."""
    if isinstance(outcome, dict):
        by_topic = groupby(sorted(outcome), lambda partition: partition[0])
        return [
            _topic_result(name, [(index, outcome[name, index]) for _, index in partitions])
            for name, partitions in by_topic
        ]
    return [_topic_result(topic.name, [(index, outcome) for index in topic.partitions]) for topic in transaction.topics]


def _topic_result(name: str, codes: list[tuple[int, int]]) -> AddPartitionsToTxnTopicResult:
    return AddPartitionsToTxnTopicResult(
        name=name,
        results_by_partition=[
            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code) for index, code in codes
        ],
    )
