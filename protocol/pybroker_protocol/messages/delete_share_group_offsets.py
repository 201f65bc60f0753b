"""DeleteShareGroupOffsets (key 92): forget a share group's offsets of topics."""

from pybroker_protocol.schema import Int16, Int32, NullableString, Request, Response, String, Struct, Uuid


class DeleteShareGroupOffsetsRequestTopic(Struct):
    topic_name: String


class DeleteShareGroupOffsetsRequest(Request, key=92, versions="0", flexible="0+"):
    group_id: String
    topics: list[DeleteShareGroupOffsetsRequestTopic]


class DeleteShareGroupOffsetsResponseTopic(Struct):
    topic_name: String
    topic_id: Uuid
    error_code: Int16
    error_message: NullableString


class DeleteShareGroupOffsetsResponse(Response, key=92, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableString
    responses: list[DeleteShareGroupOffsetsResponseTopic]
