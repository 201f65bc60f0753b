"""LeaveGroup (key 13): members leave a classic group."""

from pybroker_protocol.schema import (
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


class MemberIdentity(Struct):
    member_id: String
    group_instance_id: NullableString
    reason: NullableString = since(5, ignorable=True)


class LeaveGroupRequest(Request, key=13, versions="0-5", flexible="4+"):
    group_id: String
    member_id: String = until(2)
    members: list[MemberIdentity] = since(3)


class MemberResponse(Struct):
    member_id: String
    group_instance_id: NullableString = field(default="")
    error_code: Int16


class LeaveGroupResponse(Response, key=13, versions="0-5", flexible="4+"):
    throttle_time_ms: Int32 = since(1, ignorable=True)
    error_code: Int16
    members: list[MemberResponse] = since(3)
