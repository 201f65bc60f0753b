"""ShareGroupDescribe (key 77): state, members and assignments of share groups."""

from pybroker_protocol.schema import Bool, Int16, Int32, NullableString, Request, Response, String, Struct, Uuid, field


class ShareGroupDescribeRequest(Request, key=77, versions="1", flexible="0+"):
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
    rack_id: NullableString
    member_epoch: Int32
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]
    assignment: Assignment


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


class ShareGroupDescribeResponse(Response, key=77, versions="1", flexible="0+"):
    throttle_time_ms: Int32
    groups: list[DescribedGroup]
