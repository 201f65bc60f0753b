"""DescribeTopicPartitions (key 75): topics and their partitions, page by page."""

from pybroker_protocol.schema import Bool, Int16, Int32, NullableString, Request, Response, String, Struct, Uuid, field


class TopicRequest(Struct):
    name: String


class DescribeTopicPartitionsRequestCursor(Struct):
    topic_name: String
    partition_index: Int32


class DescribeTopicPartitionsRequest(Request, key=75, versions="0", flexible="0+"):
    topics: list[TopicRequest]
    response_partition_limit: Int32 = field(default=2000)
    cursor: DescribeTopicPartitionsRequestCursor | None


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = field(default=-1)
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    eligible_leader_replicas: list[Int32] | None
    last_known_elr: list[Int32] | None
    offline_replicas: list[Int32]


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: Int16
    name: NullableString = field(default="", map_key=True)
    topic_id: Uuid
    is_internal: Bool
    partitions: list[DescribeTopicPartitionsResponsePartition]
    topic_authorized_operations: Int32 = field(default=-0x80000000)


class DescribeTopicPartitionsResponseCursor(Struct):
    topic_name: String
    partition_index: Int32


class DescribeTopicPartitionsResponse(Response, key=75, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    topics: list[DescribeTopicPartitionsResponseTopic]
    next_cursor: DescribeTopicPartitionsResponseCursor | None
