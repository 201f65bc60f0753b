"""What handlers refuse before the config service is asked: no permission, or a name that no topic can have.

Owns: the permission that each kind of config resource needs, and the error without it.

Counterpart in Kafka: the authorization part of ``ConfigHelper`` and ``ControllerApis``.
"""

from __future__ import annotations

from typing import Final

from pybroker.apis import Operation, Resource
from pybroker.cluster.topic_names import invalid_reason
from pybroker.config.resources import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC, ConfigFailure
from pybroker.handlers.context import RequestContext
from pybroker_protocol.errors import ErrorCode

CLUSTER_NAME: Final = "kafka-cluster"

_GUARDS: Final = {
    TOPIC: (Resource.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    GROUP: (Resource.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    BROKER: (Resource.CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    BROKER_LOGGER: (Resource.CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    CLIENT_METRICS: (Resource.CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
}


def refusal(ctx: RequestContext, operation: Operation, resource_type: int, name: str) -> ConfigFailure | None:
    """Why the principal cannot do ``operation`` on the config resource, or None; unknown types are the service's."""
    if resource_type in _GUARDS:
        resource, code = _GUARDS[resource_type]
        if not ctx.authorize(operation, resource, CLUSTER_NAME if resource == Resource.CLUSTER else name):
            return ConfigFailure(code, code.message)
    # An empty name means a default, which each operation refuses in its own words.
    reason = invalid_reason(name) if resource_type == TOPIC and name else None
    return None if reason is None else ConfigFailure(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
