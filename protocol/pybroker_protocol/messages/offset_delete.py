"""OffsetDelete (key 47): forget a group's offsets of partitions."""

from pybroker_protocol.schema import Int16, Int32, Request, Response, String, Struct, field


class OffsetDeleteRequestPartition(Struct):
    partition_index: Int32


class OffsetDeleteRequestTopic(Struct):
    name: String = field(map_key=True)
    partitions: list[OffsetDeleteRequestPartition]


class OffsetDeleteRequest(Request, key=47, versions="0"):
    group_id: String
    topics: list[OffsetDeleteRequestTopic]


class OffsetDeleteResponsePartition(Struct):
    partition_index: Int32 = field(map_key=True)
    error_code: Int16


class OffsetDeleteResponseTopic(Struct):
    name: String = field(map_key=True)
    partitions: list[OffsetDeleteResponsePartition]


class OffsetDeleteResponse(Response, key=47, versions="0"):
    error_code: Int16
    throttle_time_ms: Int32
    topics: list[OffsetDeleteResponseTopic]
