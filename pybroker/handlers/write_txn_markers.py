"""WriteTxnMarkers (key 27), versions 1 and 2.

Behaviour: ends transactions in partitions that are led here, each marker and partition answered for itself; several
markers of one producer are answered together.  From 2 a marker says its transaction version (KIP-890), by which the
partition judges its epoch.  Brokers send it to each other, and administrators to end a transaction that hangs.
"""

from __future__ import annotations

from pybroker.coordinators.gather import Gather
from pybroker.handlers.context import Parked, RequestContext, Steps
from pybroker.security.acl_bindings import CLUSTER_NAME, AclOperation, Resource
from pybroker.storage.results import PartitionErrors, TopicPartition, TransactionMarker
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


def handle(ctx: RequestContext, request: WriteTxnMarkersRequest) -> Steps:
    """Write every marker; the reply waits for all of them."""
    answers = Parked()
    gather = Gather(len(request.markers), answers.complete)
    allowed = ctx.authorize(AclOperation.ALTER, Resource.CLUSTER, CLUSTER_NAME, log_if_denied=False) or ctx.authorize(
        AclOperation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME
    )
    for position, marker in enumerate(request.markers):
        partitions: list[TopicPartition] = []
        for topic in marker.topics:
            partitions += [(topic.name, index) for index in topic.partition_indexes]
            yield
        if allowed:
            ctx.services.transaction_markers.write(_marker_of(marker), partitions, gather.slot(position))
        else:
            gather.slot(position)(dict.fromkeys(partitions, ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        yield
    return (yield from _response(request.markers, (yield answers)))


def _marker_of(marker: WritableTxnMarker) -> TransactionMarker:
    return TransactionMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        coordinator_epoch=marker.coordinator_epoch,
        commit=marker.transaction_result,
        transaction_version=marker.transaction_version,
    )


def _response(markers: list[WritableTxnMarker], answers: list[PartitionErrors]) -> Steps:
    errors_of_producer: dict[int, PartitionErrors] = {}
    for marker, errors in zip(markers, answers, strict=True):
        if errors:
            errors_of_producer.setdefault(marker.producer_id, {}).update(errors)
        yield
    results = []
    for producer_id, errors in errors_of_producer.items():
        results.append(WritableTxnMarkerResult(producer_id=producer_id, topics=(yield from _topics(errors))))
    return WriteTxnMarkersResponse(markers=results)


def _topics(errors: PartitionErrors) -> Steps:
    topics: dict[str, WritableTxnMarkerTopicResult] = {}
    for (name, index), code in errors.items():
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = WritableTxnMarkerTopicResult(name=name, partitions=[])
        topic.partitions.append(WritableTxnMarkerPartitionResult(partition_index=index, error_code=code))
        yield
    return list(topics.values())
