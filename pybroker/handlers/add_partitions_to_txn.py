"""AddPartitionsToTxn (key 24), versions 0 to 5.

Behaviour: partitions become part of the producer's transaction, all of them or none: where one does not exist, the
others are OPERATION_NOT_ATTEMPTED.  A client may not name internal topics.  From 2 a fenced producer hears
PRODUCER_FENCED.  From 4 brokers ask for partitions that they lead, many transactions at once, and may only want to know
whether a partition belongs to one (KIP-890).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat

from pybroker.cluster.image.coordinator_table import INTERNAL_TOPICS
from pybroker.coordinators.gather import Gather
from pybroker.handlers.context import Parked, RequestContext, Steps
from pybroker.security.acl_bindings import CLUSTER_NAME, AclOperation, Resource
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

_TRANSACTIONS_SINCE = AddPartitionsToTxnRequest.since("transactions")

# One code for all partitions of a transaction, or one for each.
Outcome = int | PartitionErrors


def handle(ctx: RequestContext, request: AddPartitionsToTxnRequest) -> Steps:
    """Check each transaction's partitions and hand it to the coordinator."""
    batched = ctx.api_version >= _TRANSACTIONS_SINCE
    if batched and not ctx.authorize(AclOperation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
        return AddPartitionsToTxnResponse(
            throttle_time_ms=0, error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, results_by_transaction=[]
        )
    transactions = request.transactions if batched else [_of_client(request)]
    answers = Parked()
    gather = Gather(len(transactions), answers.complete)
    for position, transaction in enumerate(transactions):
        refused = yield from _refused(ctx, transaction)
        if refused is not None:
            gather.slot(position)(refused)
        else:
            ctx.services.transactions.add_partitions(transaction, ctx.api_version, gather.slot(position))
        yield
    results = []
    for transaction, outcome in zip(transactions, (yield answers), strict=True):
        topic_results = yield from _topic_results(transaction, outcome)
        results.append(
            AddPartitionsToTxnResult(transactional_id=transaction.transactional_id, topic_results=topic_results)
        )
        yield
    if batched:
        return AddPartitionsToTxnResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, results_by_transaction=results)
    return AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_topic_v3_and_below=results[0].topic_results)


def _of_client(request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        verify_only=False,
        topics=request.v3_and_below_topics,
    )


def _refused(ctx: RequestContext, transaction: AddPartitionsToTxnTransaction) -> Steps:
    """What is said of the partitions if the coordinator is not to be asked at all."""
    is_client = ctx.api_version < _TRANSACTIONS_SINCE
    if is_client and not ctx.authorize(AclOperation.WRITE, Resource.TRANSACTIONAL_ID, transaction.transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    topics = ctx.services.metadata.image.topics_by_name
    errors: PartitionErrors = {}
    for topic in transaction.topics:
        name = topic.name
        if is_client and (name in INTERNAL_TOPICS or not ctx.authorize(AclOperation.WRITE, Resource.TOPIC, name)):
            errors |= {(name, index): ErrorCode.TOPIC_AUTHORIZATION_FAILED for index in topic.partitions}
            yield
            continue
        count = len(topics[name].partitions) if name in topics else 0
        missing = [index for index in topic.partitions if not 0 <= index < count]
        errors |= {(name, index): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for index in missing}
        yield
    if not errors:
        return None
    outcome: PartitionErrors = {}
    for topic in transaction.topics:
        for index in topic.partitions:
            outcome[topic.name, index] = errors.get((topic.name, index), ErrorCode.OPERATION_NOT_ATTEMPTED)
            yield
    return outcome


def _topic_results(transaction: AddPartitionsToTxnTransaction, outcome: Outcome) -> Steps:
    """What was asked for, with one code for all; where each partition has its own, each is named once."""
    if isinstance(outcome, dict):
        by_topic: dict[str, list[tuple[int, int]]] = {}
        for (name, index), code in outcome.items():
            by_topic.setdefault(name, []).append((index, code))
            yield
        results = []
        for name in sorted(by_topic):
            results.append((yield from _topic_result(name, sorted(by_topic[name]))))
        return results
    results = []
    for topic in transaction.topics:
        results.append((yield from _topic_result(topic.name, zip(topic.partitions, repeat(outcome), strict=False))))
    return results


def _topic_result(name: str, codes: Iterable[tuple[int, int]]) -> Steps:
    results = []
    for index, code in codes:
        results.append(AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code))
        yield
    return AddPartitionsToTxnTopicResult(name=name, results_by_partition=results)
