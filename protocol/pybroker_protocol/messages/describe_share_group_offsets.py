"""DescribeShareGroupOffsets (key 90): the start offsets of share groups."""

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
)


class DescribeShareGroupOffsetsRequestTopic(Struct):
    topic_name: String
    partitions: list[Int32]


class DescribeShareGroupOffsetsRequestGroup(Struct):
    group_id: String
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = field(default=[])


class DescribeShareGroupOffsetsRequest(Request, key=90, versions="0-1", flexible="0+"):
    groups: list[DescribeShareGroupOffsetsRequestGroup]


class DescribeShareGroupOffsetsResponsePartition(Struct):
    partition_index: Int32
    start_offset: Int64
    leader_epoch: Int32
    lag: Int64 = since(1, default=-1, ignorable=True)
    error_code: Int16
    error_message: NullableString


class DescribeShareGroupOffsetsResponseTopic(Struct):
    topic_name: String
    topic_id: Uuid
    partitions: list[DescribeShareGroupOffsetsResponsePartition]


class DescribeShareGroupOffsetsResponseGroup(Struct):
    group_id: String
    topics: list[DescribeShareGroupOffsetsResponseTopic]
    error_code: Int16
    error_message: NullableString


class DescribeShareGroupOffsetsResponse(Response, key=90, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32
    groups: list[DescribeShareGroupOffsetsResponseGroup]
