"""GetTelemetrySubscriptions (key 71), version 0 (KIP-714).

Behaviour: a client without an instance id gets one; it may ask again after its push interval, or at once after its
push was refused as out of date.
"""

from __future__ import annotations

from pybroker.handlers.context import RequestContext
from pybroker.telemetry import ACCEPTED_COMPRESSION_TYPES, Client
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from pybroker_protocol.uuids import ZERO_UUID


def handle(ctx: RequestContext, request: GetTelemetrySubscriptionsRequest) -> GetTelemetrySubscriptionsResponse:
    """Tell the client which metrics to push, how often, and how large."""
    telemetry = ctx.services.telemetry
    assigned = telemetry.assign(request.client_instance_id, client_of(ctx))
    if assigned.error_code != ErrorCode.NONE:
        return GetTelemetrySubscriptionsResponse(
            throttle_time_ms=0,
            error_code=assigned.error_code,
            client_instance_id=ZERO_UUID,
            subscription_id=0,
            accepted_compression_types=[],
            push_interval_ms=0,
            telemetry_max_bytes=0,
            delta_temporality=False,
            requested_metrics=[],
        )
    return GetTelemetrySubscriptionsResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        client_instance_id=assigned.instance_id,
        subscription_id=assigned.subscription_id,
        accepted_compression_types=list(ACCEPTED_COMPRESSION_TYPES),
        push_interval_ms=assigned.push_interval_ms,
        telemetry_max_bytes=telemetry.max_bytes,
        delta_temporality=True,
        requested_metrics=list(assigned.metrics),
    )


def client_of(ctx: RequestContext) -> Client:
    """What subscriptions may match the asking client by."""
    name, version = ctx.connection.client_software
    return Client(ctx.client_id, name, version, ctx.client_host.lstrip("/"))
