"""DeleteShareGroupState (key 86): forget the state of share partitions."""

from pybroker_protocol.schema import Int16, Int32, NullableString, Request, Response, String, Struct, Uuid


class PartitionData(Struct):
    partition: Int32


class DeleteStateData(Struct):
    topic_id: Uuid
    partitions: list[PartitionData]


class DeleteShareGroupStateRequest(Request, key=86, versions="0", flexible="0+"):
    group_id: String
    topics: list[DeleteStateData]


class PartitionResult(Struct):
    partition: Int32
    error_code: Int16
    error_message: NullableString


class DeleteStateResult(Struct):
    topic_id: Uuid
    partitions: list[PartitionResult]


class DeleteShareGroupStateResponse(Response, key=86, versions="0", flexible="0+"):
    results: list[DeleteStateResult]
