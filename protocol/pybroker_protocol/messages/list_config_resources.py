"""ListConfigResources (key 74): the config resources of the cluster."""

from pybroker_protocol.schema import Int8, Int16, Int32, Request, Response, String, Struct, since


class ListConfigResourcesRequest(Request, key=74, versions="0-1", flexible="0+"):
    resource_types: list[Int8] = since(1)


class ConfigResource(Struct):
    resource_name: String
    resource_type: Int8 = since(1, default=16, ignorable=True)


class ListConfigResourcesResponse(Response, key=74, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    config_resources: list[ConfigResource]
