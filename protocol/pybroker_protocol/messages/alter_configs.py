"""AlterConfigs (key 33): replace all settings of config resources."""

from pybroker_protocol.schema import Bool, Int8, Int16, Int32, NullableString, Request, Response, String, Struct, field


class AlterableConfig(Struct):
    name: String = field(map_key=True)
    value: NullableString = field(default="")


class AlterConfigsResource(Struct):
    resource_type: Int8 = field(map_key=True)
    resource_name: String = field(map_key=True)
    configs: list[AlterableConfig]


class AlterConfigsRequest(Request, key=33, versions="0-2", flexible="2+"):
    resources: list[AlterConfigsResource]
    validate_only: Bool


class AlterConfigsResourceResponse(Struct):
    error_code: Int16
    error_message: NullableString = field(default="")
    resource_type: Int8
    resource_name: String


class AlterConfigsResponse(Response, key=33, versions="0-2", flexible="2+"):
    throttle_time_ms: Int32
    responses: list[AlterConfigsResourceResponse]
