"""ListGroups (key 16): the groups that a broker coordinates."""

from pybroker_protocol.schema import Int16, Int32, Request, Response, String, Struct, since


class ListGroupsRequest(Request, key=16, versions="0-5", flexible="3+"):
    states_filter: list[String] = since(4)
    types_filter: list[String] = since(5)


class ListedGroup(Struct):
    group_id: String
    protocol_type: String
    group_state: String = since(4, ignorable=True)
    group_type: String = since(5, ignorable=True)


class ListGroupsResponse(Response, key=16, versions="0-5", flexible="3+"):
    throttle_time_ms: Int32 = since(1, ignorable=True)
    error_code: Int16
    groups: list[ListedGroup]
