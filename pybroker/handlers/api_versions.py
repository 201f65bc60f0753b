"""ApiVersions (key 18), versions 0 to 4.

Behaviour: one entry per row of the API table; supported and finalized features from 3 (KIP-584); below 4 supported
ranges that start at 0 are left out (KIP-1022); telemetry is announced only where a client-metrics subscription exists
(KIP-714).  A version of the future is answered with error 35 in the oldest body.
"""

from __future__ import annotations

import re

from pybroker import limits
from pybroker.apis import APIS, BY_KEY, Api
from pybroker.cluster.features import SUPPORTED
from pybroker.handlers.context import RequestContext
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

_KEY = 18
_TELEMETRY_KEYS = (71, 72)
_FEATURES_FROM_ZERO = 4
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(ctx: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """Everything that is served, and the features that it implies."""
    if ctx.api_version >= 3:
        name, version = request.client_software_name, request.client_software_version
        if not _SOFTWARE.fullmatch(name) or not _SOFTWARE.fullmatch(version):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
        ctx.connection.client_software = (
            name[: limits.SOFTWARE_NAME_CHARS],
            version[: limits.SOFTWARE_NAME_CHARS],
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


def unsupported_version() -> ApiVersionsResponse:
    """The answer to a version that is not known here: which ones are (KIP-511)."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[_entry(BY_KEY[_KEY])])


def _entry(api: Api) -> ApiVersion:
    low = api.versions[0] if api.advertised_min is None else api.advertised_min
    return ApiVersion(api_key=api.key, min_version=low, max_version=api.versions[1])
