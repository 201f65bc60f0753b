"""AllocateProducerIds (key 67), version 0.

Behaviour: a broker gets the next block of producer ids for itself (KIP-730).  Only the active controller gives any.
"""

from __future__ import annotations

from pybroker.cluster.decisions.operations import ProducerIdAllocation, ProducerIdBlock
from pybroker.handlers.context import Parked, RequestContext
from pybroker.security.acl_bindings import CLUSTER_NAME, AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

_NONE = ProducerIdBlock(0, 0)


def handle(ctx: RequestContext, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse | Parked:
    """Hand the request to the controller."""
    if not ctx.authorize(AclOperation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
        return _response(ProducerIdAllocation(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    parked = Parked()
    ctx.services.controller.allocate_producer_ids(
        request.broker_id, request.broker_epoch, lambda allocation: parked.complete(_response(allocation))
    )
    return parked


def _response(allocation: ProducerIdAllocation) -> AllocateProducerIdsResponse:
    block = allocation.block or _NONE
    return AllocateProducerIdsResponse(
        throttle_time_ms=0,
        error_code=allocation.error_code,
        producer_id_start=block.first_producer_id,
        producer_id_len=block.size,
    )
