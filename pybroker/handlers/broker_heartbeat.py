"""BrokerHeartbeat (key 63), versions 0 to 2.

Behaviour: a broker keeps up its session with the active controller. Its heartbeat may also tell
- of log dirs that have failed (1), of all that are full (1) and of all that are cordoned (2, KIP-1066),
- of what it has found in partitions that it mirrors (1, then of nothing else),
- that it wants to stop and be rid of its leaderships first.

Not done: asking to be fenced, or unfenced: a broker that is fenced registers anew.
"""

from __future__ import annotations

from collections.abc import Callable

from pybroker.cluster.decisions.operations import Heartbeat
from pybroker.handlers.context import Parked, RequestContext
from pybroker.security.acl_bindings import CLUSTER_NAME, AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse


def handle(ctx: RequestContext, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse | Parked:
    """Hand what the broker tells to the controller."""
    if not ctx.authorize(AclOperation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
        return _response(Heartbeat(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    parked = Parked()

    def done(answer: Heartbeat) -> None:
        parked.complete(_response(answer))

    if request.mirror_reports:
        _take_reports(ctx, request, done)
        return parked
    ctx.services.controller.heartbeat(
        request.broker_id,
        request.broker_epoch,
        done,
        offline_directories=request.offline_log_dirs or (),
        full_directories=request.full_log_dirs,
        cordoned_directories=request.cordoned_log_dirs,
        wants_shutdown=request.want_shut_down,
    )
    return parked


def _take_reports(ctx: RequestContext, request: BrokerHeartbeatRequest, done: Callable[[Heartbeat], None]) -> None:
    from pybroker.cluster.controller.link_operations import report_mirrors
    from pybroker.cluster.image.link_states import MirrorReport

    reports = [
        MirrorReport(each.topic_id, each.partition_index, each.leader_epoch, each.kind, each.reason)
        for each in request.mirror_reports
    ]
    report_mirrors(ctx.services.controller, request.broker_id, request.broker_epoch, reports, done)


def _response(answer: Heartbeat) -> BrokerHeartbeatResponse:
    return BrokerHeartbeatResponse(
        throttle_time_ms=0,
        error_code=answer.error_code,
        is_caught_up=not answer.error_code,
        is_fenced=answer.is_fenced,
        should_shut_down=answer.should_shut_down,
    )
