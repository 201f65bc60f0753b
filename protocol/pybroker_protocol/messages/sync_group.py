"""SyncGroup (key 14): the leader of a classic group hands over assignments, every member gets its own."""

from pybroker_protocol.schema import Bytes, Int16, Int32, NullableString, Request, Response, String, Struct, since


class SyncGroupRequestAssignment(Struct):
    member_id: String
    assignment: Bytes


class SyncGroupRequest(Request, key=14, versions="0-5", flexible="4+"):
    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: NullableString = since(3)
    protocol_type: NullableString = since(5, ignorable=True)
    protocol_name: NullableString = since(5, ignorable=True)
    assignments: list[SyncGroupRequestAssignment]


class SyncGroupResponse(Response, key=14, versions="0-5", flexible="4+"):
    throttle_time_ms: Int32 = since(1, ignorable=True)
    error_code: Int16
    protocol_type: NullableString = since(5, ignorable=True)
    protocol_name: NullableString = since(5, ignorable=True)
    assignment: Bytes
