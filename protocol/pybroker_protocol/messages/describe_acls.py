"""DescribeAcls (key 29): the ACLs that match a filter."""

from pybroker_protocol.schema import Int8, Int16, Int32, NullableString, Request, Response, String, Struct, field


class DescribeAclsRequest(Request, key=29, versions="1-3", flexible="2+"):
    resource_type_filter: Int8
    resource_name_filter: NullableString = field(default="")
    pattern_type_filter: Int8 = field(default=3)
    principal_filter: NullableString = field(default="")
    host_filter: NullableString = field(default="")
    operation: Int8
    permission_type: Int8


class AclDescription(Struct):
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


class DescribeAclsResource(Struct):
    resource_type: Int8
    resource_name: String
    pattern_type: Int8 = field(default=3)
    acls: list[AclDescription]


class DescribeAclsResponse(Response, key=29, versions="1-3", flexible="2+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableString = field(default="")
    resources: list[DescribeAclsResource]
