"""ShareFetch (key 78): a share consumer reads records, and acknowledges earlier ones."""

from pybroker_protocol.schema import (
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    NullableString,
    Records,
    Request,
    Response,
    String,
    Struct,
    Uuid,
    field,
    since,
    until,
)


class AcknowledgementBatch(Struct):
    first_offset: Int64
    last_offset: Int64
    acknowledge_types: list[Int8]


class FetchPartition(Struct):
    partition_index: Int32 = field(map_key=True)
    partition_max_bytes: Int32 = until(-1)
    acknowledgement_batches: list[AcknowledgementBatch]


class FetchTopic(Struct):
    topic_id: Uuid = field(map_key=True)
    partitions: list[FetchPartition]


class ForgottenTopic(Struct):
    topic_id: Uuid
    partitions: list[Int32]


class ShareFetchRequest(Request, key=78, versions="1-2", flexible="0+"):
    group_id: NullableString
    member_id: NullableString = field(default="")
    share_session_epoch: Int32
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = field(default=0x7FFFFFFF)
    max_records: Int32
    batch_size: Int32
    share_acquire_mode: Int8 = since(2, ignorable=True)
    is_renew_ack: Bool = since(2)
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic]


class LeaderIdAndEpoch(Struct):
    leader_id: Int32
    leader_epoch: Int32


class AcquiredRecords(Struct):
    first_offset: Int64
    last_offset: Int64
    delivery_count: Int16


class PartitionData(Struct):
    partition_index: Int32
    error_code: Int16
    error_message: NullableString
    acknowledge_error_code: Int16
    acknowledge_error_message: NullableString
    current_leader: LeaderIdAndEpoch
    records: Records
    acquired_records: list[AcquiredRecords]


class ShareFetchableTopicResponse(Struct):
    topic_id: Uuid = field(map_key=True)
    partitions: list[PartitionData]


class NodeEndpoint(Struct):
    node_id: Int32 = field(map_key=True)
    host: String
    port: Int32
    rack: NullableString


class ShareFetchResponse(Response, key=78, versions="1-2", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableString
    acquisition_lock_timeout_ms: Int32
    responses: list[ShareFetchableTopicResponse]
    node_endpoints: list[NodeEndpoint]
