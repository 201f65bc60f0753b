"""ConsumerGroupHeartbeat (key 68): a member of a consumer group (KIP-848) joins, stays, or leaves."""

from pybroker_protocol.schema import Int16, Int32, NullableString, Request, Response, String, Struct, Uuid, field, since


class ConsumerGroupHeartbeatRequestTopicPartitions(Struct):
    topic_id: Uuid
    partitions: list[Int32]


class ConsumerGroupHeartbeatRequest(Request, key=68, versions="0-1", flexible="0+"):
    group_id: String
    member_id: String
    member_epoch: Int32
    instance_id: NullableString
    rack_id: NullableString
    rebalance_timeout_ms: Int32 = field(default=-1)
    subscribed_topic_names: list[String] | None
    subscribed_topic_regex: NullableString = since(1)
    server_assignor: NullableString
    topic_partitions: list[ConsumerGroupHeartbeatRequestTopicPartitions] | None


class ConsumerGroupHeartbeatResponseTopicPartitions(Struct):
    topic_id: Uuid
    partitions: list[Int32]


class Assignment(Struct):
    topic_partitions: list[ConsumerGroupHeartbeatResponseTopicPartitions]


class ConsumerGroupHeartbeatResponse(Response, key=68, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableString
    member_id: NullableString
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: Assignment | None
