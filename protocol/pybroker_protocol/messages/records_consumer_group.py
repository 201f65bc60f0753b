"""Records of __consumer_offsets that belong to consumer groups (KIP-848)."""

from pybroker_protocol.schema import Bytes, DataRecord, Int8, Int32, Int64, NullableString, String, Struct, Uuid, field


class ConsumerGroupMetadataKey(DataRecord, key=3, kind="key", versions="0"):
    group_id: String


class ConsumerGroupMetadataValue(DataRecord, key=3, kind="value", versions="0", flexible="0+"):
    epoch: Int32
    metadata_hash: Int64 = field(tag=0)


class ConsumerGroupPartitionMetadataKey(DataRecord, key=4, kind="key", versions="0"):
    group_id: String


class PartitionMetadata(Struct):
    partition: Int32
    racks: list[String]


class TopicMetadata(Struct):
    topic_id: Uuid
    topic_name: String
    num_partitions: Int32
    partition_metadata: list[PartitionMetadata]


class ConsumerGroupPartitionMetadataValue(DataRecord, key=4, kind="value", versions="0", flexible="0+"):
    topics: list[TopicMetadata]


class ConsumerGroupMemberMetadataKey(DataRecord, key=5, kind="key", versions="0"):
    group_id: String
    member_id: String


class ClassicProtocol(Struct):
    name: String
    metadata: Bytes


class ClassicMemberMetadata(Struct):
    session_timeout_ms: Int32
    supported_protocols: list[ClassicProtocol]


class ConsumerGroupMemberMetadataValue(DataRecord, key=5, kind="value", versions="0", flexible="0+"):
    instance_id: NullableString = field(default="")
    rack_id: NullableString = field(default="")
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]
    subscribed_topic_regex: NullableString = field(default="")
    rebalance_timeout_ms: Int32 = field(default=-1)
    server_assignor: NullableString = field(default="")
    classic_member_metadata: ClassicMemberMetadata | None = field(tag=0, default=ClassicMemberMetadata)


class ConsumerGroupTargetAssignmentMetadataKey(DataRecord, key=6, kind="key", versions="0"):
    group_id: String


class ConsumerGroupTargetAssignmentMetadataValue(DataRecord, key=6, kind="value", versions="0", flexible="0+"):
    assignment_epoch: Int32
    assignment_timestamp: Int64 = field(tag=0)


class ConsumerGroupTargetAssignmentMemberKey(DataRecord, key=7, kind="key", versions="0"):
    group_id: String
    member_id: String


class TopicPartition(Struct):
    topic_id: Uuid
    partitions: list[Int32]


class ConsumerGroupTargetAssignmentMemberValue(DataRecord, key=7, kind="value", versions="0", flexible="0+"):
    topic_partitions: list[TopicPartition]


class ConsumerGroupCurrentMemberAssignmentKey(DataRecord, key=8, kind="key", versions="0"):
    group_id: String
    member_id: String


class TopicPartitions(Struct):
    topic_id: Uuid
    partitions: list[Int32]
    assignment_epochs: list[Int32] | None = field(tag=0, default=[])


class ConsumerGroupCurrentMemberAssignmentValue(DataRecord, key=8, kind="value", versions="0", flexible="0+"):
    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[TopicPartitions]
    partitions_pending_revocation: list[TopicPartitions]


class ConsumerGroupRegularExpressionKey(DataRecord, key=16, kind="key", versions="0"):
    group_id: String
    regular_expression: String


class ConsumerGroupRegularExpressionValue(DataRecord, key=16, kind="value", versions="0", flexible="0+"):
    topics: list[String]
    version: Int64
    timestamp: Int64
