"""Records of __consumer_offsets that belong to streams groups (KIP-1071)."""

from pybroker_protocol.schema import (
    DataRecord,
    Int8,
    Int16,
    Int32,
    Int64,
    NullableString,
    String,
    Struct,
    Uint16,
    field,
)


class StreamsGroupMetadataKey(DataRecord, key=17, kind="key", versions="0"):
    group_id: String


class LastAssignmentConfig(Struct):
    key: String
    value: String


class StreamsGroupMetadataValue(DataRecord, key=17, kind="value", versions="0", flexible="0+"):
    epoch: Int32
    metadata_hash: Int64
    validated_topology_epoch: Int32 = field(tag=0, default=-1)
    last_assignment_configs: list[LastAssignmentConfig] | None = field(tag=1, default=[])
    stored_description_topology_epoch: Int32 = field(tag=2, default=-1)
    failed_description_topology_epoch: Int32 = field(tag=3, default=-1)


class StreamsGroupMemberMetadataKey(DataRecord, key=19, kind="key", versions="0"):
    group_id: String
    member_id: String


class Endpoint(Struct):
    host: String
    port: Uint16


class KeyValue(Struct):
    key: String
    value: String


class StreamsGroupMemberMetadataValue(DataRecord, key=19, kind="value", versions="0", flexible="0+"):
    instance_id: NullableString = field(default="")
    rack_id: NullableString = field(default="")
    client_id: String
    client_host: String
    rebalance_timeout_ms: Int32 = field(default=-1)
    topology_epoch: Int32
    process_id: String
    user_endpoint: Endpoint | None
    client_tags: list[KeyValue]


class StreamsGroupTargetAssignmentMetadataKey(DataRecord, key=20, kind="key", versions="0"):
    group_id: String


class StreamsGroupTargetAssignmentMetadataValue(DataRecord, key=20, kind="value", versions="0", flexible="0+"):
    assignment_epoch: Int32
    assignment_timestamp: Int64 = field(tag=0)


class StreamsGroupTargetAssignmentMemberKey(DataRecord, key=21, kind="key", versions="0"):
    group_id: String
    member_id: String


class StreamsGroupTargetAssignmentMemberValueTaskIds(Struct):
    subtopology_id: String
    partitions: list[Int32]


class StreamsGroupTargetAssignmentMemberValue(DataRecord, key=21, kind="value", versions="0", flexible="0+"):
    active_tasks: list[StreamsGroupTargetAssignmentMemberValueTaskIds]
    standby_tasks: list[StreamsGroupTargetAssignmentMemberValueTaskIds]
    warmup_tasks: list[StreamsGroupTargetAssignmentMemberValueTaskIds]


class StreamsGroupCurrentMemberAssignmentKey(DataRecord, key=22, kind="key", versions="0"):
    group_id: String
    member_id: String


class StreamsGroupCurrentMemberAssignmentValueTaskIds(Struct):
    subtopology_id: String
    partitions: list[Int32]
    assignment_epochs: list[Int32] | None = field(tag=0, default=[])


class StreamsGroupCurrentMemberAssignmentValue(DataRecord, key=22, kind="value", versions="0", flexible="0+"):
    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    active_tasks: list[StreamsGroupCurrentMemberAssignmentValueTaskIds]
    standby_tasks: list[StreamsGroupCurrentMemberAssignmentValueTaskIds]
    warmup_tasks: list[StreamsGroupCurrentMemberAssignmentValueTaskIds]
    active_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValueTaskIds]
    standby_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValueTaskIds]
    warmup_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValueTaskIds]


class StreamsGroupTopologyKey(DataRecord, key=23, kind="key", versions="0"):
    group_id: String


class TopicConfig(Struct):
    key: String
    value: String


class TopicInfo(Struct):
    name: String
    partitions: Int32
    replication_factor: Int16
    topic_configs: list[TopicConfig]


class CopartitionGroup(Struct):
    source_topics: list[Int16]
    source_topic_regex: list[Int16]
    repartition_source_topics: list[Int16]


class Subtopology(Struct):
    subtopology_id: String
    source_topics: list[String]
    source_topic_regex: list[String]
    state_changelog_topics: list[TopicInfo]
    repartition_sink_topics: list[String]
    repartition_source_topics: list[TopicInfo]
    copartition_groups: list[CopartitionGroup]


class StreamsGroupTopologyValue(DataRecord, key=23, kind="value", versions="0", flexible="0+"):
    epoch: Int32
    subtopologies: list[Subtopology]
