"""DeleteTopics (key 20): delete topics by name or id."""

from pybroker_protocol.schema import (
    Int16,
    Int32,
    NullableString,
    Request,
    Response,
    String,
    Struct,
    Uuid,
    field,
    since,
    until,
)


class DeleteTopicState(Struct):
    name: NullableString
    topic_id: Uuid


class DeleteTopicsRequest(Request, key=20, versions="1-6", flexible="4+"):
    topics: list[DeleteTopicState] = since(6)
    topic_names: list[String] = until(5, ignorable=True)
    timeout_ms: Int32


class DeletableTopicResult(Struct):
    name: NullableString = field(nullable="6+", default="", map_key=True)
    topic_id: Uuid = since(6, ignorable=True)
    error_code: Int16
    error_message: NullableString = since(5, ignorable=True)


class DeleteTopicsResponse(Response, key=20, versions="1-6", flexible="4+"):
    throttle_time_ms: Int32
    responses: list[DeletableTopicResult]
