"""WriteShareGroupState (key 85): the leader of share partitions stores their state."""

from pybroker_protocol.schema import (
    Int8,
    Int16,
    Int32,
    Int64,
    NullableString,
    Request,
    Response,
    String,
    Struct,
    Uuid,
    since,
)


class StateBatch(Struct):
    first_offset: Int64
    last_offset: Int64
    delivery_state: Int8
    delivery_count: Int16


class PartitionData(Struct):
    partition: Int32
    state_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = since(1, default=-1, ignorable=True)
    state_batches: list[StateBatch]


class WriteStateData(Struct):
    topic_id: Uuid
    partitions: list[PartitionData]


class WriteShareGroupStateRequest(Request, key=85, versions="0-1", flexible="0+"):
    group_id: String
    topics: list[WriteStateData]


class PartitionResult(Struct):
    partition: Int32
    error_code: Int16
    error_message: NullableString


class WriteStateResult(Struct):
    topic_id: Uuid
    partitions: list[PartitionResult]


class WriteShareGroupStateResponse(Response, key=85, versions="0-1", flexible="0+"):
    results: list[WriteStateResult]
