"""ListOffsets (key 2): the offset that belongs to a timestamp, or to one of the special ones."""

from pybroker_protocol.schema import Int8, Int16, Int32, Int64, Request, Response, String, Struct, field, since


class ListOffsetsPartition(Struct):
    partition_index: Int32
    current_leader_epoch: Int32 = since(4, default=-1, ignorable=True)
    timestamp: Int64


class ListOffsetsTopic(Struct):
    name: String
    partitions: list[ListOffsetsPartition]


class ListOffsetsRequest(Request, key=2, versions="1-11", flexible="6+"):
    replica_id: Int32
    isolation_level: Int8 = since(2)
    topics: list[ListOffsetsTopic]
    timeout_ms: Int32 = since(10, ignorable=True)


class ListOffsetsPartitionResponse(Struct):
    partition_index: Int32
    error_code: Int16
    timestamp: Int64 = field(default=-1)
    offset: Int64 = field(default=-1)
    leader_epoch: Int32 = since(4, default=-1)


class ListOffsetsTopicResponse(Struct):
    name: String
    partitions: list[ListOffsetsPartitionResponse]


class ListOffsetsResponse(Response, key=2, versions="1-11", flexible="6+"):
    throttle_time_ms: Int32 = since(2, ignorable=True)
    topics: list[ListOffsetsTopicResponse]
