"""OffsetCommit (key 8): a group remembers how far it has read."""

from pybroker_protocol.schema import (
    Int16,
    Int32,
    Int64,
    NullableString,
    Request,
    Response,
    String,
    Struct,
    Uuid,
    field,
    since,
    until,
)


class OffsetCommitRequestPartition(Struct):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = since(6, default=-1, ignorable=True)
    committed_metadata: NullableString = field(default="")


class OffsetCommitRequestTopic(Struct):
    name: String = until(9, ignorable=True)
    topic_id: Uuid = since(10, ignorable=True)
    partitions: list[OffsetCommitRequestPartition]


class OffsetCommitRequest(Request, key=8, versions="2-10", flexible="8+"):
    group_id: String
    generation_id_or_member_epoch: Int32 = field(default=-1)
    member_id: String
    group_instance_id: NullableString = since(7)
    retention_time_ms: Int64 = until(4, default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic]


class OffsetCommitResponsePartition(Struct):
    partition_index: Int32
    error_code: Int16


class OffsetCommitResponseTopic(Struct):
    name: String = until(9, ignorable=True)
    topic_id: Uuid = since(10, ignorable=True)
    partitions: list[OffsetCommitResponsePartition]


class OffsetCommitResponse(Response, key=8, versions="2-10", flexible="8+"):
    throttle_time_ms: Int32 = since(3, ignorable=True)
    topics: list[OffsetCommitResponseTopic]
