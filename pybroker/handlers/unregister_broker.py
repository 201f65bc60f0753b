"""UnregisterBroker (key 64), version 0 (KIP-631).

Behaviour: a broker that is gone for good is forgotten; partitions keep it among their replicas until they are moved.
Where Kafka differs: it forgets brokers that are alive, too.
"""

from __future__ import annotations

from pybroker.cluster.decisions.operations import Outcome
from pybroker.handlers.context import Parked, RequestContext
from pybroker.security.acl_bindings import CLUSTER_NAME, AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


def handle(ctx: RequestContext, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse | Parked:
    """Forget the broker; the reply waits for the commit."""
    if not ctx.authorize(AclOperation.ALTER, Resource.CLUSTER, CLUSTER_NAME):
        return refuse(ctx, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    parked = Parked()
    ctx.services.controller.unregister_broker(request.broker_id, lambda outcome: parked.complete(_response(outcome)))
    return parked


def refuse(ctx: RequestContext, request: UnregisterBrokerRequest, error: ErrorCode) -> UnregisterBrokerResponse:
    """No broker is forgotten, for this reason."""
    return _response(Outcome(error, error.message))


def _response(outcome: Outcome) -> UnregisterBrokerResponse:
    # Kafka says nothing by a message that is empty, not by none.
    return UnregisterBrokerResponse(
        throttle_time_ms=0, error_code=outcome.error_code, error_message=outcome.error_message or ""
    )
