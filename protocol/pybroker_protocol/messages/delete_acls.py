"""DeleteAcls (key 31): remove the ACLs that match filters."""

from pybroker_protocol.schema import Int8, Int16, Int32, NullableString, Request, Response, String, Struct, field


class DeleteAclsFilter(Struct):
    resource_type_filter: Int8
    resource_name_filter: NullableString = field(default="")
    pattern_type_filter: Int8 = field(default=3)
    principal_filter: NullableString = field(default="")
    host_filter: NullableString = field(default="")
    operation: Int8
    permission_type: Int8


class DeleteAclsRequest(Request, key=31, versions="1-3", flexible="2+"):
    filters: list[DeleteAclsFilter]


class DeleteAclsMatchingAcl(Struct):
    error_code: Int16
    error_message: NullableString = field(default="")
    resource_type: Int8
    resource_name: String
    pattern_type: Int8 = field(default=3)
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


class DeleteAclsFilterResult(Struct):
    error_code: Int16
    error_message: NullableString = field(default="")
    matching_acls: list[DeleteAclsMatchingAcl]


class DeleteAclsResponse(Response, key=31, versions="1-3", flexible="2+"):
    throttle_time_ms: Int32
    filter_results: list[DeleteAclsFilterResult]
