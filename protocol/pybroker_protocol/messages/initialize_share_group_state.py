"""InitializeShareGroupState (key 83): begin to keep the state of share partitions."""

from pybroker_protocol.schema import Int16, Int32, Int64, NullableString, Request, Response, String, Struct, Uuid


class PartitionData(Struct):
    partition: Int32
    state_epoch: Int32
    start_offset: Int64


class InitializeStateData(Struct):
    topic_id: Uuid
    partitions: list[PartitionData]


class InitializeShareGroupStateRequest(Request, key=83, versions="0", flexible="0+"):
    group_id: String
    topics: list[InitializeStateData]


class PartitionResult(Struct):
    partition: Int32
    error_code: Int16
    error_message: NullableString


class InitializeStateResult(Struct):
    topic_id: Uuid
    partitions: list[PartitionResult]


class InitializeShareGroupStateResponse(Response, key=83, versions="0", flexible="0+"):
    results: list[InitializeStateResult]
