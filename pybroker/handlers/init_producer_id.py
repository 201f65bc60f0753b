"""InitProducerId (key 22), versions 0 to 5.

Behaviour: a producer id for an idempotent producer, from the broker's block of ids.
Not done: transactions.  A transactional id is refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which is fatal to
the client, so that it does not spin.
"""

from __future__ import annotations

from pybroker.handlers.context import Parked, RequestContext
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_NONE = -1


def handle(ctx: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse | Parked:
    """The next id of the broker's block; parked while a new block is being allocated."""
    if request.transactional_id == "":
        return _failed(ErrorCode.INVALID_REQUEST)
    if (request.producer_id == _NONE) != (request.producer_epoch == _NONE):
        return _failed(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return _failed(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    parked = Parked()

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
