"""DescribeQuorum (key 55), versions 0 to 2.

Behaviour: who decides, and how far the metadata of each broker is. There is no quorum of KRaft: the metadata lies in a
store, whose revisions stand for offsets. The leader is the active controller, with the epoch of its activity. Every
registered broker may become it, so all are voters. What is known of them is what they last said of themselves
(``cluster/failure_detection/liveness``), and -1 where a broker has said nothing. There are no observers, and no ids of
metadata directories. Version notes: times of the last word, and of the last one by which it had everything, from 1
(KIP-836); listeners and texts of errors from 2 (KIP-853).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pybroker.handlers.context import RequestContext, Steps
from pybroker.security.acl_bindings import CLUSTER_NAME, AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
    Listener,
    Node,
    ReplicaState,
)
from pybroker_protocol.uuids import ZERO_UUID

if TYPE_CHECKING:
    from pybroker.cluster.image.cluster_image import BrokerRegistration

_TOPIC: Final = "__cluster_metadata"
_UNKNOWN: Final = -1
_NODES_SINCE: Final = DescribeQuorumResponse.since("nodes")


def handle(ctx: RequestContext, request: DescribeQuorumRequest) -> Steps:
    """Describe the quorum to a request for its one partition."""
    if not ctx.authorize(AclOperation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
        return refuse(ctx, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    asked = [
        (topic.topic_name, partition.partition_index) for topic in request.topics for partition in topic.partitions
    ]
    if asked != [(_TOPIC, 0)] or len(request.topics) != 1:
        return (yield from _unknown(request))
    brokers = sorted(ctx.services.metadata.image.brokers.values(), key=lambda broker: broker.broker_id)
    partition = _partition(
        ErrorCode.NONE,
        leader_id=ctx.services.broker_id,
        leader_epoch=ctx.services.controller.epoch,
        high_watermark=ctx.services.metadata.image.epoch,
        voters=[_state(ctx, broker.broker_id) for broker in brokers],
    )
    topics = [DescribeQuorumResponseTopicData(topic_name=_TOPIC, partitions=[partition])]
    return _response(topics, list(_nodes(brokers)) if ctx.api_version >= _NODES_SINCE else [])


def refuse(ctx: RequestContext, request: DescribeQuorumRequest, error: ErrorCode) -> DescribeQuorumResponse:
    """There is no description, for this reason."""
    return DescribeQuorumResponse(error_code=error, error_message=error.message, topics=[], nodes=[])


def _unknown(request: DescribeQuorumRequest) -> Steps:
    """Whatever else is asked for is no partition of a quorum."""
    topics = []
    for topic in request.topics:
        partitions = []
        for asked in topic.partitions:
            partitions.append(_partition(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, asked.partition_index))
            yield
        topics.append(DescribeQuorumResponseTopicData(topic_name=topic.topic_name, partitions=partitions))
        yield
    return _response(topics, [])


def _state(ctx: RequestContext, broker_id: int) -> ReplicaState:
    services, now_ms = ctx.services, ctx.services.env.clock.now_ms()
    end, last_fetch_ms, caught_up_ms = _UNKNOWN, _UNKNOWN, _UNKNOWN
    if broker_id == services.broker_id:
        end, last_fetch_ms, caught_up_ms = services.metadata.image.epoch, now_ms, now_ms
    elif services.liveness is not None and (progress := services.liveness.progress(broker_id)) is not None:
        end, last_fetch_ms = progress.metadata_epoch, now_ms - progress.last_report_ms_ago
        if progress.caught_up_ms_ago is not None:
            caught_up_ms = now_ms - progress.caught_up_ms_ago
    return ReplicaState(
        replica_id=broker_id,
        replica_directory_id=ZERO_UUID,
        log_end_offset=end,
        last_fetch_timestamp=last_fetch_ms,
        last_caught_up_timestamp=caught_up_ms,
    )


def _nodes(brokers: list[BrokerRegistration]) -> Iterator[Node]:
    for broker in brokers:
        listeners = [
            Listener(name=name, host=endpoint.host, port=endpoint.port) for name, endpoint in broker.endpoints.items()
        ]
        yield Node(node_id=broker.broker_id, listeners=listeners)


def _partition(
    error: ErrorCode,
    index: int = 0,
    leader_id: int = 0,
    leader_epoch: int = 0,
    high_watermark: int = 0,
    voters: list[ReplicaState] | None = None,
) -> DescribeQuorumResponsePartitionData:
    return DescribeQuorumResponsePartitionData(
        partition_index=index,
        error_code=error,
        error_message=error.message if error else "",
        leader_id=leader_id,
        leader_epoch=leader_epoch,
        high_watermark=high_watermark,
        current_voters=voters or [],
        observers=[],
    )


def _response(topics: list[DescribeQuorumResponseTopicData], nodes: list[Node]) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(error_code=0, error_message="", topics=topics, nodes=nodes)
