"""DescribeConfigs (key 32): the settings of topics, brokers, groups and other config resources."""

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
)


class DescribeConfigsResource(Struct):
    resource_type: Int8
    resource_name: String
    configuration_keys: list[String] | None = field(default=[])


class DescribeConfigsRequest(Request, key=32, versions="1-4", flexible="4+"):
    resources: list[DescribeConfigsResource]
    include_synonyms: Bool
    include_documentation: Bool = since(3)


class DescribeConfigsSynonym(Struct):
    name: String
    value: NullableString = field(default="")
    source: Int8


class DescribeConfigsResourceResult(Struct):
    name: String
    value: NullableString = field(default="")
    read_only: Bool
    config_source: Int8 = field(default=-1)
    is_sensitive: Bool
    synonyms: list[DescribeConfigsSynonym]
    config_type: Int8 = since(3, ignorable=True)
    documentation: NullableString = since(3, default="", ignorable=True)


class DescribeConfigsResult(Struct):
    error_code: Int16
    error_message: NullableString = field(default="")
    resource_type: Int8
    resource_name: String
    configs: list[DescribeConfigsResourceResult]


class DescribeConfigsResponse(Response, key=32, versions="1-4", flexible="4+"):
    throttle_time_ms: Int32
    results: list[DescribeConfigsResult]
