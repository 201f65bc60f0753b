"""JoinGroup (key 11): a member joins a classic group, or joins it again in a rebalance."""

from pybroker_protocol.schema import (
    Bool,
    Bytes,
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


class JoinGroupRequestProtocol(Struct):
    name: String = field(map_key=True)
    metadata: Bytes


class JoinGroupRequest(Request, key=11, versions="0-9", flexible="6+"):
    group_id: String
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32 = since(1, default=-1, ignorable=True)
    member_id: String
    group_instance_id: NullableString = since(5)
    protocol_type: String
    protocols: list[JoinGroupRequestProtocol]
    reason: NullableString = since(8, ignorable=True)


class JoinGroupResponseMember(Struct):
    member_id: String
    group_instance_id: NullableString = since(5, ignorable=True)
    metadata: Bytes


class JoinGroupResponse(Response, key=11, versions="0-9", flexible="6+"):
    throttle_time_ms: Int32 = since(2, ignorable=True)
    error_code: Int16
    generation_id: Int32 = field(default=-1)
    protocol_type: NullableString = since(7, ignorable=True)
    protocol_name: NullableString = field(nullable="7+", default="")
    leader: String
    skip_assignment: Bool = since(9)
    member_id: String
    members: list[JoinGroupResponseMember]
