"""PushTelemetry (key 72), version 0 (KIP-714).

Behaviour: a push is refused before its time (89), for another subscription than the current one (117), and in an
unknown codec (76). It is refused, too, when it is too large (118), and after one that said it was the last (42).
"""

from __future__ import annotations

from pybroker.handlers.context import RequestContext
from pybroker.handlers.get_telemetry_subscriptions import client_of
from pybroker_protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse


def handle(ctx: RequestContext, request: PushTelemetryRequest) -> PushTelemetryResponse:
    """Keep the client's metrics as its latest."""
    error_code = ctx.services.telemetry.push(
        request.client_instance_id,
        client_of(ctx),
        request.subscription_id,
        request.terminating,
        request.compression_type,
        bytes(request.metrics),
    )
    return PushTelemetryResponse(throttle_time_ms=0, error_code=error_code)
