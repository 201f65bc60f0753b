"""ShareGroupHeartbeat (key 76): a member of a share group (KIP-932) joins, stays, or leaves."""

from pybroker_protocol.schema import Int16, Int32, NullableString, Request, Response, String, Struct, Uuid


class ShareGroupHeartbeatRequest(Request, key=76, versions="1", flexible="0+"):
    group_id: String
    member_id: String
    member_epoch: Int32
    rack_id: NullableString
    subscribed_topic_names: list[String] | None


class TopicPartitions(Struct):
    topic_id: Uuid
    partitions: list[Int32]


class Assignment(Struct):
    topic_partitions: list[TopicPartitions]


class ShareGroupHeartbeatResponse(Response, key=76, versions="1", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableString
    member_id: NullableString
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: Assignment | None
