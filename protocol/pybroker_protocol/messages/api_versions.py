"""ApiVersions (key 18): which APIs, versions and features a broker serves."""

from pybroker_protocol.schema import (
    Bool,
    Int16,
    Int32,
    Int64,
    NullableString,
    Request,
    Response,
    String,
    Struct,
    field,
    since,
)


class ApiVersionsRequest(Request, key=18, versions="0-5", flexible="3+"):
    client_software_name: String = since(3, ignorable=True)
    client_software_version: String = since(3, ignorable=True)
    cluster_id: NullableString = since(5, default=None, ignorable=True)
    node_id: Int32 = since(5, default=-1, ignorable=True)


class ApiVersion(Struct):
    api_key: Int16 = field(map_key=True)
    min_version: Int16
    max_version: Int16


class SupportedFeatureKey(Struct):
    name: String = field(map_key=True)
    min_version: Int16
    max_version: Int16


class FinalizedFeatureKey(Struct):
    name: String = field(map_key=True)
    max_version_level: Int16
    min_version_level: Int16


class ApiVersionsResponse(Response, key=18, versions="0-5", flexible="3+"):
    error_code: Int16
    api_keys: list[ApiVersion]
    throttle_time_ms: Int32 = since(1, ignorable=True)
    supported_features: list[SupportedFeatureKey] = since(3, tag=0, ignorable=True)
    finalized_features_epoch: Int64 = since(3, tag=1, default=-1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = since(3, tag=2, ignorable=True)
    zk_migration_ready: Bool = since(3, tag=3, ignorable=True)
