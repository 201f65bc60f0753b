"""TxnOffsetCommit (key 28): a group's offsets are committed as part of a transaction."""

from pybroker_protocol.schema import (
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


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = since(2, default=-1, ignorable=True)
    committed_metadata: NullableString = field(default="")


class TxnOffsetCommitRequestTopic(Struct):
    name: String = until(5, ignorable=True)
    topic_id: Uuid = since(6, ignorable=True)
    partitions: list[TxnOffsetCommitRequestPartition]


class TxnOffsetCommitRequest(Request, key=28, versions="0-6", flexible="3+"):
    transactional_id: String
    group_id: String
    producer_id: Int64
    producer_epoch: Int16
    generation_id_or_member_epoch: Int32 = since(3, default=-1)
    member_id: String = since(3)
    group_instance_id: NullableString = since(3)
    topics: list[TxnOffsetCommitRequestTopic]


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: Int32
    error_code: Int16


class TxnOffsetCommitResponseTopic(Struct):
    name: String = until(5, ignorable=True)
    topic_id: Uuid = since(6, ignorable=True)
    partitions: list[TxnOffsetCommitResponsePartition]


class TxnOffsetCommitResponse(Response, key=28, versions="0-6", flexible="3+"):
    throttle_time_ms: Int32
    topics: list[TxnOffsetCommitResponseTopic]
