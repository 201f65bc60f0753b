"""DescribeCluster (key 60), versions 0 to 2.

Behaviour: the brokers that the listener of the request leads to, the controller if it is one of them, the cluster id.
Version notes: the endpoint type from 1 (KIP-919): controllers have no listener of their own here; fenced brokers from
2 where asked for (KIP-1073).
"""

from __future__ import annotations

from typing import Final

from pybroker.handlers.authorized_operations import NOT_ASKED, cluster_operations
from pybroker.handlers.context import RequestContext
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

_BROKERS: Final = 1
_CONTROLLERS: Final = 2


def handle(ctx: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """Describe the cluster as the request's listener shows it."""
    if request.endpoint_type != _BROKERS:
        return _wrong_endpoint_type(request.endpoint_type)
    metadata = ctx.services.metadata
    view = metadata.view(ctx.listener)
    operations = NOT_ASKED
    if request.include_cluster_authorized_operations:
        operations = cluster_operations(ctx)
    brokers = view.registered if request.include_fenced_brokers else tuple(view.live.values())
    controller_id = metadata.image.controller_id
    return DescribeClusterResponse(
        throttle_time_ms=0,
        error_code=0,
        error_message=None,
        cluster_id=metadata.image.cluster_id,
        controller_id=controller_id if controller_id in view.live else -1,
        brokers=[
            DescribeClusterBroker(
                broker_id=broker.broker_id,
                host=broker.host,
                port=broker.port,
                rack=broker.rack,
                is_fenced=broker.fenced,
            )
            for broker in brokers
        ],
        cluster_authorized_operations=operations,
    )


def _wrong_endpoint_type(endpoint_type: int) -> DescribeClusterResponse:
    if endpoint_type == _CONTROLLERS:
        error = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        message = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
    else:
        error = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        message = f"Unsupported endpoint type {endpoint_type}"
    return DescribeClusterResponse(
        throttle_time_ms=0, error_code=error, error_message=message, cluster_id="", brokers=[]
    )
