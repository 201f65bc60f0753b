"""OffsetForLeaderEpoch (key 23): where a leader epoch ended in a partition's log."""

from pybroker_protocol.schema import Int16, Int32, Int64, Request, Response, String, Struct, field, since


class OffsetForLeaderPartition(Struct):
    partition: Int32
    current_leader_epoch: Int32 = field(default=-1)
    leader_epoch: Int32


class OffsetForLeaderTopic(Struct):
    topic: String = field(map_key=True)
    partitions: list[OffsetForLeaderPartition]


class OffsetForLeaderEpochRequest(Request, key=23, versions="2-4", flexible="4+"):
    replica_id: Int32 = since(3, default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic]


class EpochEndOffset(Struct):
    error_code: Int16
    partition: Int32
    leader_epoch: Int32 = field(default=-1)
    end_offset: Int64 = field(default=-1)


class OffsetForLeaderTopicResult(Struct):
    topic: String = field(map_key=True)
    partitions: list[EpochEndOffset]


class OffsetForLeaderEpochResponse(Response, key=23, versions="2-4", flexible="4+"):
    throttle_time_ms: Int32
    topics: list[OffsetForLeaderTopicResult]
