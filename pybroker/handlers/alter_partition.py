"""AlterPartition (key 56), versions 2 and 3.

Behaviour: the leader of partitions asks for other in-sync replicas (KIP-497); from 3 with the broker epochs that it
knows of them (KIP-903).  Only the active controller decides.
"""

from __future__ import annotations

from pybroker.cluster.decisions.operations import InSyncChange, InSyncResults, InSyncState
from pybroker.handlers.context import Parked, RequestContext
from pybroker.security.acl_bindings import CLUSTER_NAME, AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)

_EPOCHS_SINCE = AlterPartitionRequestPartitionData.since("new_isr_with_epochs")
_ANY_EPOCH = -1
_NO_STATE = InSyncState(0, 0, (), 0)


def handle(ctx: RequestContext, request: AlterPartitionRequest) -> AlterPartitionResponse | Parked:
    """Hand the changes to the controller."""
    if not ctx.authorize(AclOperation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
        return _refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    changes = [
        InSyncChange(
            topic.topic_id,
            asked.partition_index,
            asked.leader_epoch,
            asked.partition_epoch,
            _in_sync(ctx.api_version, asked),
            asked.leader_recovery_state,
        )
        for topic in request.topics
        for asked in topic.partitions
    ]
    parked = Parked()
    ctx.services.controller.alter_partitions(
        request.broker_id, request.broker_epoch, changes, lambda results: parked.complete(_response(results))
    )
    return parked


def _refused(error_code: int) -> AlterPartitionResponse:
    return AlterPartitionResponse(throttle_time_ms=0, error_code=error_code, topics=[])


def _in_sync(version: int, asked: AlterPartitionRequestPartitionData) -> tuple[tuple[int, int], ...]:
    if version >= _EPOCHS_SINCE:
        return tuple((state.broker_id, state.broker_epoch) for state in asked.new_isr_with_epochs)
    return tuple((broker_id, _ANY_EPOCH) for broker_id in asked.new_isr)


def _response(results: InSyncResults) -> AlterPartitionResponse:
    topics: dict[bytes, list[AlterPartitionResponsePartitionData]] = {}
    for topic_id, index, error_code, state in results.results:
        leader, leader_epoch, isr, partition_epoch, recovery = state or _NO_STATE
        data = AlterPartitionResponsePartitionData(
            partition_index=index,
            error_code=error_code,
            leader_id=leader,
            leader_epoch=leader_epoch,
            isr=list(isr),
            leader_recovery_state=recovery,
            partition_epoch=partition_epoch,
        )
        topics.setdefault(topic_id, []).append(data)
    return AlterPartitionResponse(
        throttle_time_ms=0,
        error_code=results.error_code,
        topics=[AlterPartitionResponseTopicData(topic_id=key, partitions=of_topic) for key, of_topic in topics.items()],
    )
