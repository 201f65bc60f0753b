"""OffsetFetch (key 9): how far groups have read."""

from pybroker_protocol.schema import (
    Bool,
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


class OffsetFetchRequestTopic(Struct):
    name: String
    partition_indexes: list[Int32]


class OffsetFetchRequestTopics(Struct):
    name: String = until(9, ignorable=True)
    topic_id: Uuid = since(10, ignorable=True)
    partition_indexes: list[Int32]


class OffsetFetchRequestGroup(Struct):
    group_id: String
    member_id: NullableString = since(9, ignorable=True)
    member_epoch: Int32 = since(9, default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = field(default=[])


class OffsetFetchRequest(Request, key=9, versions="1-10", flexible="6+"):
    group_id: String = until(7)
    topics: list[OffsetFetchRequestTopic] | None = until(7, nullable="2+", default=[])
    groups: list[OffsetFetchRequestGroup] = since(8)
    require_stable: Bool = since(7)


class OffsetFetchResponsePartition(Struct):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = since(5, default=-1, ignorable=True)
    metadata: NullableString = field(default="")
    error_code: Int16


class OffsetFetchResponseTopic(Struct):
    name: String
    partitions: list[OffsetFetchResponsePartition]


class OffsetFetchResponsePartitions(Struct):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = field(default=-1)
    metadata: NullableString = field(default="")
    error_code: Int16


class OffsetFetchResponseTopics(Struct):
    name: String = until(9, ignorable=True)
    topic_id: Uuid = since(10, ignorable=True)
    partitions: list[OffsetFetchResponsePartitions]


class OffsetFetchResponseGroup(Struct):
    group_id: String
    topics: list[OffsetFetchResponseTopics]
    error_code: Int16


class OffsetFetchResponse(Response, key=9, versions="1-10", flexible="6+"):
    throttle_time_ms: Int32 = since(3, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = until(7)
    error_code: Int16 = field(versions="2-7", ignorable=True)
    groups: list[OffsetFetchResponseGroup] = since(8)
