"""StreamsGroupDescribe (key 89): state, members and topology of streams groups."""

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
)


class StreamsGroupDescribeRequest(Request, key=89, versions="0-1", flexible="0+"):
    group_ids: list[String]
    include_authorized_operations: Bool
    include_topology_description: Bool = since(1)


class KeyValue(Struct):
    key: String
    value: String


class TopicInfo(Struct):
    name: String
    partitions: Int32
    replication_factor: Int16
    topic_configs: list[KeyValue]


class Subtopology(Struct):
    subtopology_id: String
    source_topics: list[String]
    repartition_sink_topics: list[String]
    state_changelog_topics: list[TopicInfo]
    repartition_source_topics: list[TopicInfo]


class Topology(Struct):
    epoch: Int32
    subtopologies: list[Subtopology] | None


class Endpoint(Struct):
    host: String
    port: Uint16


class TaskOffset(Struct):
    subtopology_id: String
    partition: Int32
    offset: Int64


class TaskIds(Struct):
    subtopology_id: String
    partitions: list[Int32]


class Assignment(Struct):
    active_tasks: list[TaskIds]
    standby_tasks: list[TaskIds]
    warmup_tasks: list[TaskIds]


class Member(Struct):
    member_id: String
    member_epoch: Int32
    instance_id: NullableString
    rack_id: NullableString
    client_id: String
    client_host: String
    topology_epoch: Int32
    process_id: String
    user_endpoint: Endpoint | None
    client_tags: list[KeyValue]
    task_offsets: list[TaskOffset]
    task_end_offsets: list[TaskOffset]
    assignment: Assignment
    target_assignment: Assignment
    is_classic: Bool


class TopologyDescriptionNode(Struct):
    name: String
    node_type: Int8
    source_topics: list[String]
    sink_topic: NullableString = field(default=None)
    stores: list[String]
    successors: list[String]


class TopologyDescriptionGlobalStore(Struct):
    source: TopologyDescriptionNode
    processor: TopologyDescriptionNode


class TopologyDescriptionSubtopology(Struct):
    subtopology_id: String
    nodes: list[TopologyDescriptionNode]


class TopologyDescription(Struct):
    subtopologies: list[TopologyDescriptionSubtopology]
    global_stores: list[TopologyDescriptionGlobalStore]


class DescribedGroup(Struct):
    error_code: Int16
    error_message: NullableString
    group_id: String
    group_state: String
    group_epoch: Int32
    assignment_epoch: Int32
    topology: Topology | None
    members: list[Member]
    authorized_operations: Int32 = field(default=-0x80000000)
    topology_description: TopologyDescription | None = since(1, default=None)
    topology_description_status: Int8 = since(1)
    assignor_name: NullableString = since(1, default=None, ignorable=True)


class StreamsGroupDescribeResponse(Response, key=89, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32
    groups: list[DescribedGroup]
