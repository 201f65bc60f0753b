"""InitProducerId (key 22), versions 0 to 5.

Behaviour: a producer id.  For an idempotent producer one from the broker's block of ids; for a transactional id the
transaction coordinator decides: the producer before is fenced, and its transaction aborted.  From 3 a producer may go
on after an error (KIP-360); from 4 a fenced one hears PRODUCER_FENCED, before INVALID_PRODUCER_EPOCH; 5 is for clients
of transaction version 2 (KIP-890).

Not served: 6, two-phase commit (KIP-939), which Kafka does not serve either unless unstable versions are enabled.
"""

from __future__ import annotations

from pybroker.handlers.context import Parked, RequestContext
from pybroker.security.acl_bindings import CLUSTER_NAME, AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_NONE = -1


def handle(ctx: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse | Parked:
    """Ask the coordinator, or take the next id of the broker's block."""
    transactional_id = request.transactional_id
    if transactional_id is None:
        # Who may write to any topic may do so idempotently (KIP-679).
        allowed = ctx.authorize(
            AclOperation.IDEMPOTENT_WRITE, Resource.CLUSTER, CLUSTER_NAME, log_if_denied=False
        ) or ctx.authorize_by_resource_type(AclOperation.WRITE, Resource.TOPIC)
    else:
        allowed = ctx.authorize(AclOperation.WRITE, Resource.TRANSACTIONAL_ID, transactional_id)
    if not allowed:
        return _failed(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            if transactional_id is None
            else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        )
    if (request.producer_id == _NONE) != (request.producer_epoch == _NONE):
        return _failed(ErrorCode.INVALID_REQUEST)
    parked = Parked()
    if transactional_id is not None:
        ctx.services.transactions.init_producer_id(request, ctx.api_version, parked.complete)
        return parked

    def done(producer_id: int | None) -> None:
        if producer_id is None:
            parked.complete(_failed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        else:
            parked.complete(
                InitProducerIdResponse(
                    throttle_time_ms=0, error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0
                )
            )

    ctx.services.producer_ids.next(done)
    return parked


def _failed(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(throttle_time_ms=0, error_code=error, producer_id=-1, producer_epoch=-1)
