"""Client telemetry (KIP-714)."""

from __future__ import annotations

from comparator.broker import Broker
from comparator.registry import scenario


@scenario
def without_a_subscription(broker: Broker) -> None:
    reply = broker.call("GetTelemetrySubscriptions", 0, "a new client")
    if reply.get("error_code") != 0:
        return
    known = reply["client_instance_id"]
    broker.call("GetTelemetrySubscriptions", 0, "a known client, too soon", client_instance_id=known)
    broker.call("PushTelemetry", 0, "an unknown subscription", client_instance_id=known, subscription_id=1)
    broker.call("PushTelemetry", 0, "no client", subscription_id=reply["subscription_id"])
