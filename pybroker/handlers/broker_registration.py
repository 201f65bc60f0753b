"""BrokerRegistration (key 62), versions 0 to 4.

Behaviour: a broker takes its place in the cluster, under the next broker epoch, and is not fenced from then on. It asks
when its logs are open, and has the kernel take connections when it hears that it is registered. It serves them once its
own image has that, some milliseconds later. Kafka's brokers register fenced, and are unfenced by a heartbeat. Only the
active controller registers. Not done: features of single brokers; all brokers of a cluster support the same.
"""

from __future__ import annotations

from pybroker.cluster.decisions.operations import Registration
from pybroker.cluster.image.cluster_image import BrokerRegistration, Endpoint
from pybroker.handlers.context import Parked, RequestContext
from pybroker.security.acl_bindings import CLUSTER_NAME, AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse


def handle(ctx: RequestContext, request: BrokerRegistrationRequest) -> BrokerRegistrationResponse | Parked:
    """Hand the registration to the controller."""
    if not ctx.authorize(AclOperation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
        return _response(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, -1)
    endpoints = {each.name: Endpoint(each.host, each.port, each.security_protocol) for each in request.listeners}
    registration = BrokerRegistration(
        request.broker_id, 0, request.incarnation_id, endpoints, request.rack, log_dirs=tuple(request.log_dirs)
    )
    parked = Parked()

    def done(answer: Registration) -> None:
        parked.complete(_response(answer.error_code, answer.broker_epoch))

    ctx.services.controller.register_broker(registration, request.cluster_id, request.previous_broker_epoch, done)
    return parked


def _response(error_code: int, broker_epoch: int) -> BrokerRegistrationResponse:
    return BrokerRegistrationResponse(throttle_time_ms=0, error_code=error_code, broker_epoch=broker_epoch)
