"""DeleteGroups (key 42): delete groups with their offsets."""

from pybroker_protocol.schema import Int16, Int32, NullableString, Request, Response, String, Struct, field, since


class DeleteGroupsRequest(Request, key=42, versions="0-3", flexible="2+"):
    groups_names: list[String]


class DeletableGroupResult(Struct):
    group_id: String = field(map_key=True)
    error_code: Int16
    error_message: NullableString = since(3, default=None, ignorable=True)


class DeleteGroupsResponse(Response, key=42, versions="0-3", flexible="2+"):
    throttle_time_ms: Int32
    results: list[DeletableGroupResult]
