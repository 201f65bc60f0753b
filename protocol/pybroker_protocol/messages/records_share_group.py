"""Records of __consumer_offsets that belong to share groups (KIP-932)."""

from pybroker_protocol.schema import DataRecord, Int8, Int32, Int64, NullableString, String, Struct, Uuid, field


class ShareGroupMemberMetadataKey(DataRecord, key=10, kind="key", versions="0"):
    group_id: String
    member_id: String


class ShareGroupMemberMetadataValue(DataRecord, key=10, kind="value", versions="0", flexible="0+"):
    rack_id: NullableString = field(default="")
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]


class ShareGroupMetadataKey(DataRecord, key=11, kind="key", versions="0"):
    group_id: String


class ShareGroupMetadataValue(DataRecord, key=11, kind="value", versions="0", flexible="0+"):
    epoch: Int32
    metadata_hash: Int64


class ShareGroupTargetAssignmentMetadataKey(DataRecord, key=12, kind="key", versions="0"):
    group_id: String


class ShareGroupTargetAssignmentMetadataValue(DataRecord, key=12, kind="value", versions="0", flexible="0+"):
    assignment_epoch: Int32
    assignment_timestamp: Int64 = field(tag=0)


class ShareGroupTargetAssignmentMemberKey(DataRecord, key=13, kind="key", versions="0"):
    group_id: String
    member_id: String


class TopicPartition(Struct):
    topic_id: Uuid
    partitions: list[Int32]


class ShareGroupTargetAssignmentMemberValue(DataRecord, key=13, kind="value", versions="0", flexible="0+"):
    topic_partitions: list[TopicPartition]


class ShareGroupCurrentMemberAssignmentKey(DataRecord, key=14, kind="key", versions="0"):
    group_id: String
    member_id: String


class TopicPartitions(Struct):
    topic_id: Uuid
    partitions: list[Int32]


class ShareGroupCurrentMemberAssignmentValue(DataRecord, key=14, kind="value", versions="0", flexible="0+"):
    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[TopicPartitions]


class ShareGroupStatePartitionMetadataKey(DataRecord, key=15, kind="key", versions="0"):
    group_id: String


class TopicPartitionsInfo(Struct):
    topic_id: Uuid
    topic_name: String
    partitions: list[Int32]


class TopicInfo(Struct):
    topic_id: Uuid
    topic_name: String


class ShareGroupStatePartitionMetadataValue(DataRecord, key=15, kind="value", versions="0", flexible="0+"):
    initializing_topics: list[TopicPartitionsInfo]
    initialized_topics: list[TopicPartitionsInfo]
    deleting_topics: list[TopicInfo]
