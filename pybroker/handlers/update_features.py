"""UpdateFeatures (key 57), versions 0 to 2.

Behaviour: all of the updates are made or, when one is refused, none (KIP-584).
Version notes: an upgrade type from 1 (KIP-778); ``allow_downgrade`` of 0 has no effect, as in Kafka. Results are per
feature up to 1; from 2 there is only the error of the whole (KIP-1022).
"""

from __future__ import annotations

from pybroker.cluster.decisions.operations import UPGRADE, FeatureUpdate, NamedResult
from pybroker.handlers.context import Parked, RequestContext
from pybroker.security.acl_bindings import CLUSTER_NAME, AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

_UPGRADE_TYPE_SINCE = FeatureUpdateKey.since("upgrade_type")


def handle(ctx: RequestContext, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse | Parked:
    """Update the features; the reply waits for the commit."""
    if not ctx.authorize(AclOperation.ALTER, Resource.CLUSTER, CLUSTER_NAME):
        return refuse(ctx, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    parked = Parked()
    names = [update.feature for update in request.feature_updates]
    ctx.services.controller.update_features(
        [_update(update, ctx.api_version) for update in request.feature_updates],
        lambda results: parked.complete(_response(names, results)),
        validate_only=request.validate_only,
        timeout_ms=request.timeout_ms,
    )
    return parked


def refuse(ctx: RequestContext, request: UpdateFeaturesRequest, error: ErrorCode) -> UpdateFeaturesResponse:
    """Nothing was updated, for this reason."""
    return UpdateFeaturesResponse(throttle_time_ms=0, error_code=error, error_message=error.message, results=[])


def _update(update: FeatureUpdateKey, version: int) -> FeatureUpdate:
    upgrade_type = update.upgrade_type if version >= _UPGRADE_TYPE_SINCE else UPGRADE
    return FeatureUpdate(update.feature, update.max_version_level, upgrade_type)


def _response(names: list[str], results: list[NamedResult]) -> UpdateFeaturesResponse:
    failed = next((result for result in results if result.error_code), None)
    if failed is not None:
        prefix = "The update failed for all features since the following feature had an error: "
        return UpdateFeaturesResponse(
            throttle_time_ms=0,
            error_code=failed.error_code,
            error_message=f"{prefix}{failed.error_message}",
            results=[],
        )
    # Kafka sends the name of the error code as the message of what went well.
    rows = [UpdatableFeatureResult(feature=name, error_code=0, error_message="NONE") for name in names]
    return UpdateFeaturesResponse(throttle_time_ms=0, error_code=0, error_message=None, results=rows)
