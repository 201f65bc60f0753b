"""ReadShareGroupStateSummary (key 87): start offsets and epochs of share partitions."""

from pybroker_protocol.schema import Int16, Int32, Int64, NullableString, Request, Response, String, Struct, Uuid, since


class PartitionData(Struct):
    partition: Int32
    leader_epoch: Int32


class ReadStateSummaryData(Struct):
    topic_id: Uuid
    partitions: list[PartitionData]


class ReadShareGroupStateSummaryRequest(Request, key=87, versions="0-1", flexible="0+"):
    group_id: String
    topics: list[ReadStateSummaryData]


class PartitionResult(Struct):
    partition: Int32
    error_code: Int16
    error_message: NullableString
    state_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = since(1, default=-1, ignorable=True)


class ReadStateSummaryResult(Struct):
    topic_id: Uuid
    partitions: list[PartitionResult]


class ReadShareGroupStateSummaryResponse(Response, key=87, versions="0-1", flexible="0+"):
    results: list[ReadStateSummaryResult]
