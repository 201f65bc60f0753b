"""DescribeGroups (key 15): state, members and assignments of classic groups."""

from pybroker_protocol.schema import Bool, Bytes, Int16, Int32, NullableString, Request, Response, String, Struct, since


class DescribeGroupsRequest(Request, key=15, versions="0-6", flexible="5+"):
    groups: list[String]
    include_authorized_operations: Bool = since(3)


class DescribedGroupMember(Struct):
    member_id: String
    group_instance_id: NullableString = since(4, ignorable=True)
    client_id: String
    client_host: String
    member_metadata: Bytes
    member_assignment: Bytes


class DescribedGroup(Struct):
    error_code: Int16
    error_message: NullableString = since(6)
    group_id: String
    group_state: String
    protocol_type: String
    protocol_data: String
    members: list[DescribedGroupMember]
    authorized_operations: Int32 = since(3, default=-0x80000000)


class DescribeGroupsResponse(Response, key=15, versions="0-6", flexible="5+"):
    throttle_time_ms: Int32 = since(1, ignorable=True)
    groups: list[DescribedGroup]
