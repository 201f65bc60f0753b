"""ListConfigResources (key 74), versions 0 and 1 (KIP-1142).

Behaviour: version 0 lists client-metrics subscriptions; version 1 the types asked for, or, when none are named, all.
"""

from __future__ import annotations

from typing import Final

from pybroker.config.resources import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from pybroker.handlers.context import RequestContext
from pybroker.security.acl_bindings import CLUSTER_NAME, AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

_TYPES_SINCE: Final = ListConfigResourcesRequest.since("resource_types")
_ALL_TYPES: Final = frozenset({TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP})


def handle(ctx: RequestContext, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    """List the resources that have settings."""
    if not ctx.authorize(AclOperation.DESCRIBE_CONFIGS, Resource.CLUSTER, CLUSTER_NAME):
        return _response(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])
    asked = request.resource_types if ctx.api_version >= _TYPES_SINCE else (CLIENT_METRICS,)
    wanted = frozenset(asked) or _ALL_TYPES
    if not wanted <= _ALL_TYPES:
        return _response(ErrorCode.UNSUPPORTED_VERSION, [])
    resources = [
        ConfigResource(resource_name=name, resource_type=resource_type)
        for resource_type, name in ctx.services.configs.resources(wanted)
    ]
    return _response(ErrorCode.NONE, resources)


def _response(error: ErrorCode, resources: list[ConfigResource]) -> ListConfigResourcesResponse:
    return ListConfigResourcesResponse(throttle_time_ms=0, error_code=error, config_resources=resources)
