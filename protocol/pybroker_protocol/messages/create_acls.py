"""CreateAcls (key 30): add ACLs."""

from pybroker_protocol.schema import Int8, Int16, Int32, NullableString, Request, Response, String, Struct, field


class AclCreation(Struct):
    resource_type: Int8
    resource_name: String
    resource_pattern_type: Int8 = field(default=3)
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


class CreateAclsRequest(Request, key=30, versions="1-3", flexible="2+"):
    creations: list[AclCreation]


class AclCreationResult(Struct):
    error_code: Int16
    error_message: NullableString = field(default="")


class CreateAclsResponse(Response, key=30, versions="1-3", flexible="2+"):
    throttle_time_ms: Int32
    results: list[AclCreationResult]
