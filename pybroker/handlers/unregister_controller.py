"""UnregisterController (key 94), version 0.

Behaviour: no controller has a registration of its own to be forgotten, because controllers are brokers
(``UnregisterBroker``); every id is CONTROLLER_ID_NOT_REGISTERED.  Below metadata.version 4.4-IV2 the answer is
UNSUPPORTED_VERSION, as in Kafka.
"""

from __future__ import annotations

from pybroker.cluster.decisions.broker_changes import unregister_controller
from pybroker.handlers.context import RequestContext
from pybroker.security.acl_bindings import CLUSTER_NAME, AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.unregister_controller import UnregisterControllerRequest, UnregisterControllerResponse


def handle(ctx: RequestContext, request: UnregisterControllerRequest) -> UnregisterControllerResponse:
    """Say that there is no such controller."""
    if not ctx.authorize(AclOperation.ALTER, Resource.CLUSTER, CLUSTER_NAME):
        return refuse(ctx, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    outcome = unregister_controller(ctx.services.metadata.image, request.controller_id)
    return _response(outcome.error_code, outcome.error_message)


def refuse(ctx: RequestContext, request: UnregisterControllerRequest, error: ErrorCode) -> UnregisterControllerResponse:
    """No controller is forgotten, for this reason."""
    return _response(error, error.message)


def _response(error_code: int, error_message: str | None) -> UnregisterControllerResponse:
    return UnregisterControllerResponse(throttle_time_ms=0, error_code=error_code, error_message=error_message)
