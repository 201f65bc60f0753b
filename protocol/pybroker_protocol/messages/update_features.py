"""UpdateFeatures (key 57): raise or lower finalized features."""

from pybroker_protocol.schema import (
    Bool,
    Int8,
    Int16,
    Int32,
    NullableString,
    Request,
    Response,
    String,
    Struct,
    field,
    since,
    until,
)


class FeatureUpdateKey(Struct):
    feature: String = field(map_key=True)
    max_version_level: Int16
    allow_downgrade: Bool = until(0)
    upgrade_type: Int8 = since(1, default=1)


class UpdateFeaturesRequest(Request, key=57, versions="0-2", flexible="0+"):
    timeout_ms: Int32 = field(default=60000)
    feature_updates: list[FeatureUpdateKey]
    validate_only: Bool = since(1)


class UpdatableFeatureResult(Struct):
    feature: String = field(map_key=True)
    error_code: Int16
    error_message: NullableString = field(default="")


class UpdateFeaturesResponse(Response, key=57, versions="0-2", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableString = field(default="")
    results: list[UpdatableFeatureResult] = until(1, ignorable=True)
