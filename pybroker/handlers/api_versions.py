"""ApiVersions (key 18), versions 0 to 5.

Behaviour: one entry per row of the API table. Supported and finalized features come from 3 on (KIP-584); below 4
supported ranges that start at 0 are left out (KIP-1022). Telemetry is announced only where a client-metrics
subscription exists (KIP-714). A version of the future is answered with error 35 in the oldest body. From 5 a client may
say which node of which cluster it means (KIP-1242): REBOOTSTRAP_REQUIRED where this is another one, INVALID_REQUEST
where it says half of it. Before a login no identity is compared: Kafka looks only whether both are there.
"""

from __future__ import annotations

import re

from pybroker.apis import APIS, BY_KEY, Api
from pybroker.cluster.image.supported_features import SUPPORTED
from pybroker.handlers.context import RequestContext
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

# Software names and versions that clients send with ApiVersions are cut to this, for logs and metrics.
SOFTWARE_NAME_CHARS = 100

_KEY = 18
_TELEMETRY_KEYS = (71, 72)
_FEATURES_FROM_ZERO = 4
_SOFTWARE_SINCE = ApiVersionsRequest.since("client_software_name")
_NO_NODE = -1
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(ctx: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """Everything that is served, and the features that it implies."""
    if (request.cluster_id is None) != (request.node_id == _NO_NODE):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    if ctx.api_version >= _SOFTWARE_SINCE:
        name, version = request.client_software_name, request.client_software_version
        if not _SOFTWARE.fullmatch(name) or not _SOFTWARE.fullmatch(version):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
        if _means_another_node(ctx, request):
            return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED, api_keys=[])
        ctx.connection.client_software = (
            name[:SOFTWARE_NAME_CHARS],
            version[:SOFTWARE_NAME_CHARS],
        )
    image = ctx.services.metadata.image
    telemetry = ctx.services.telemetry.has_subscriptions
    return ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        api_keys=[_entry(api) for api in APIS if telemetry or api.key not in _TELEMETRY_KEYS],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in SUPPORTED.items()
            if low > 0 or ctx.api_version >= _FEATURES_FROM_ZERO
        ],
        finalized_features_epoch=image.epoch,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in image.features.items()
            if level > 0
        ],
    )


def _means_another_node(ctx: RequestContext, request: ApiVersionsRequest) -> bool:
    """Whether the client has come to another node than it meant, of this cluster or of another."""
    login = ctx.connection.login
    if request.cluster_id is None or (login is not None and not login.is_done()):
        return False
    services = ctx.services
    return (request.cluster_id, request.node_id) != (services.metadata.image.cluster_id, services.broker_id)


def unsupported_version() -> ApiVersionsResponse:
    """The answer to a version that is not known here: which ones are (KIP-511)."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[_entry(BY_KEY[_KEY])])


def _entry(api: Api) -> ApiVersion:
    low = api.versions[0] if api.advertised_min is None else api.advertised_min
    return ApiVersion(api_key=api.key, min_version=low, max_version=api.versions[1])
