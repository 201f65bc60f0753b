"""StreamsGroupHeartbeat (key 88): a member of a streams group (KIP-1071) joins, stays, or leaves."""

from pybroker_protocol.schema import (
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    NullableString,
    Request,
    Response,
    String,
    Struct,
    Uint16,
    field,
    since,
    until,
)


class KeyValue(Struct):
    key: String
    value: String


class TopicInfo(Struct):
    name: String
    partitions: Int32
    replication_factor: Int16
    topic_configs: list[KeyValue]


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


class Topology(Struct):
    epoch: Int32
    subtopologies: list[Subtopology]


class StreamsGroupHeartbeatRequestTaskIds(Struct):
    subtopology_id: String
    partitions: list[Int32]


class StreamsGroupHeartbeatRequestEndpoint(Struct):
    host: String
    port: Uint16


class TaskOffset(Struct):
    subtopology_id: String
    partition: Int32
    offset: Int64


class StreamsGroupHeartbeatRequest(Request, key=88, versions="0-1", flexible="0+"):
    group_id: String
    member_id: String
    member_epoch: Int32
    endpoint_information_epoch: Int32
    instance_id: NullableString
    rack_id: NullableString
    rebalance_timeout_ms: Int32 = field(default=-1)
    topology: Topology | None
    active_tasks: list[StreamsGroupHeartbeatRequestTaskIds] | None
    standby_tasks: list[StreamsGroupHeartbeatRequestTaskIds] | None
    warmup_tasks: list[StreamsGroupHeartbeatRequestTaskIds] | None
    process_id: NullableString
    user_endpoint: StreamsGroupHeartbeatRequestEndpoint | None
    client_tags: list[KeyValue] | None
    task_offsets: list[TaskOffset] | None
    task_end_offsets: list[TaskOffset] | None
    shutdown_application: Bool


class Status(Struct):
    status_code: Int8
    status_detail: String


class StreamsGroupHeartbeatResponseTaskIds(Struct):
    subtopology_id: String
    partitions: list[Int32]


class StreamsGroupHeartbeatResponseEndpoint(Struct):
    host: String
    port: Uint16


class TopicPartition(Struct):
    topic: String
    partitions: list[Int32]


class EndpointToPartitions(Struct):
    user_endpoint: StreamsGroupHeartbeatResponseEndpoint
    active_partitions: list[TopicPartition]
    standby_partitions: list[TopicPartition]


class StreamsGroupHeartbeatResponse(Response, key=88, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableString
    member_id: String
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    acceptable_recovery_lag_legacy: Int32 = until(0)
    task_offset_interval_ms: Int32
    acceptable_recovery_lag: Int64 = since(1, default=-1, ignorable=True)
    status: list[Status] | None = field(default=[])
    active_tasks: list[StreamsGroupHeartbeatResponseTaskIds] | None
    standby_tasks: list[StreamsGroupHeartbeatResponseTaskIds] | None
    warmup_tasks: list[StreamsGroupHeartbeatResponseTaskIds] | None
    topology_description_required: Bool = since(1)
    endpoint_information_epoch: Int32
    partitions_by_user_endpoint: list[EndpointToPartitions] | None
