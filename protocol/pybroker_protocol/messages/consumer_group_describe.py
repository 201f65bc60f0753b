"""ConsumerGroupDescribe (key 69): state, members and assignments of consumer groups (KIP-848)."""

from pybroker_protocol.schema import (
    Bool,
    Int8,
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
)


class ConsumerGroupDescribeRequest(Request, key=69, versions="0-1", flexible="0+"):
    group_ids: list[String]
    include_authorized_operations: Bool


class TopicPartitions(Struct):
    topic_id: Uuid
    topic_name: String
    partitions: list[Int32]


class Assignment(Struct):
    topic_partitions: list[TopicPartitions]


class Member(Struct):
    member_id: String
    instance_id: NullableString
    rack_id: NullableString
    member_epoch: Int32
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]
    subscribed_topic_regex: NullableString
    assignment: Assignment
    target_assignment: Assignment
    member_type: Int8 = since(1, default=-1, ignorable=True)


class DescribedGroup(Struct):
    error_code: Int16
    error_message: NullableString
    group_id: String
    group_state: String
    group_epoch: Int32
    assignment_epoch: Int32
    assignor_name: String
    members: list[Member]
    authorized_operations: Int32 = field(default=-0x80000000)


class ConsumerGroupDescribeResponse(Response, key=69, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32
    groups: list[DescribedGroup]
