"""ReadShareGroupState (key 84): the state of share partitions, for the broker that leads them."""

from pybroker_protocol.schema import Int8, Int16, Int32, Int64, NullableString, Request, Response, String, Struct, Uuid


class PartitionData(Struct):
    partition: Int32
    leader_epoch: Int32


class ReadStateData(Struct):
    topic_id: Uuid
    partitions: list[PartitionData]


class ReadShareGroupStateRequest(Request, key=84, versions="0", flexible="0+"):
    group_id: String
    topics: list[ReadStateData]


class StateBatch(Struct):
    first_offset: Int64
    last_offset: Int64
    delivery_state: Int8
    delivery_count: Int16


class PartitionResult(Struct):
    partition: Int32
    error_code: Int16
    error_message: NullableString
    state_epoch: Int32
    start_offset: Int64
    state_batches: list[StateBatch]


class ReadStateResult(Struct):
    topic_id: Uuid
    partitions: list[PartitionResult]


class ReadShareGroupStateResponse(Response, key=84, versions="0", flexible="0+"):
    results: list[ReadStateResult]
