"""AlterShareGroupOffsets (key 91): set the start offsets of a share group."""

from pybroker_protocol.schema import Int16, Int32, Int64, NullableString, Request, Response, String, Struct, Uuid, field


class AlterShareGroupOffsetsRequestPartition(Struct):
    partition_index: Int32
    start_offset: Int64


class AlterShareGroupOffsetsRequestTopic(Struct):
    topic_name: String = field(map_key=True)
    partitions: list[AlterShareGroupOffsetsRequestPartition]


class AlterShareGroupOffsetsRequest(Request, key=91, versions="0", flexible="0+"):
    group_id: String
    topics: list[AlterShareGroupOffsetsRequestTopic]


class AlterShareGroupOffsetsResponsePartition(Struct):
    partition_index: Int32
    error_code: Int16
    error_message: NullableString


class AlterShareGroupOffsetsResponseTopic(Struct):
    topic_name: String = field(map_key=True)
    topic_id: Uuid
    partitions: list[AlterShareGroupOffsetsResponsePartition]


class AlterShareGroupOffsetsResponse(Response, key=91, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableString
    responses: list[AlterShareGroupOffsetsResponseTopic]
