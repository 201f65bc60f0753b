"""ShareAcknowledge (key 79): a share consumer acknowledges records."""

from pybroker_protocol.schema import (
    Bool,
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
    field,
    since,
)


class AcknowledgementBatch(Struct):
    first_offset: Int64
    last_offset: Int64
    acknowledge_types: list[Int8]


class AcknowledgePartition(Struct):
    partition_index: Int32 = field(map_key=True)
    acknowledgement_batches: list[AcknowledgementBatch]


class AcknowledgeTopic(Struct):
    topic_id: Uuid = field(map_key=True)
    partitions: list[AcknowledgePartition]


class ShareAcknowledgeRequest(Request, key=79, versions="1-2", flexible="0+"):
    group_id: NullableString
    member_id: NullableString = field(default="")
    share_session_epoch: Int32
    is_renew_ack: Bool = since(2)
    topics: list[AcknowledgeTopic]


class LeaderIdAndEpoch(Struct):
    leader_id: Int32
    leader_epoch: Int32


class PartitionData(Struct):
    partition_index: Int32
    error_code: Int16
    error_message: NullableString
    current_leader: LeaderIdAndEpoch


class ShareAcknowledgeTopicResponse(Struct):
    topic_id: Uuid = field(map_key=True)
    partitions: list[PartitionData]


class NodeEndpoint(Struct):
    node_id: Int32 = field(map_key=True)
    host: String
    port: Int32
    rack: NullableString


class ShareAcknowledgeResponse(Response, key=79, versions="1-2", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableString
    acquisition_lock_timeout_ms: Int32 = since(2, ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse]
    node_endpoints: list[NodeEndpoint]
