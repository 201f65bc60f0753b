"""AllocateProducerIds (key 67), version 0.

Behaviour: a broker gets the next block of producer ids for itself (KIP-730).  Only the active controller gives any.
"""

from __future__ import annotations

from pybroker.cluster.operations import ProducerIdBlock
from pybroker.handlers.context import Parked, RequestContext
from pybroker.security.acls import CLUSTER_NAME, AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

_NONE = ProducerIdBlock(0, 0)


def handle(ctx: RequestContext, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse | Parked:
    """Hand the request to the controller."""
    if not ctx.authorize(AclOperation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
        return _response(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    services = ctx.services
    broker = services.metadata.image.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        return _response(ErrorCode.STALE_BROKER_EPOCH)
    parked = Parked()

    def done(block: ProducerIdBlock | None) -> None:
        parked.complete(_response(ErrorCode.NOT_CONTROLLER) if block is None else _response(0, block))

    services.controller.allocate_producer_ids(done)
    return parked


def _response(error_code: int, block: ProducerIdBlock = _NONE) -> AllocateProducerIdsResponse:
    return AllocateProducerIdsResponse(
        throttle_time_ms=0,
        error_code=error_code,
        producer_id_start=block.first_producer_id,
        producer_id_len=block.size,
    )
