"""DeleteGroups (key 42): delete groups with their offsets."""

from pybroker_protocol.schema import Int16, Int32, Request, Response, String, Struct, field


class DeleteGroupsRequest(Request, key=42, versions="0-2", flexible="2+"):
    groups_names: list[String]


class DeletableGroupResult(Struct):
    group_id: String = field(map_key=True)
    error_code: Int16


class DeleteGroupsResponse(Response, key=42, versions="0-2", flexible="2+"):
    throttle_time_ms: Int32
    results: list[DeletableGroupResult]
