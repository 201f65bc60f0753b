"""Produce (key 0): a producer appends record batches to partitions."""

from pybroker_protocol.schema import (
    Int16,
    Int32,
    Int64,
    NullableRecords,
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


class PartitionProduceData(Struct):
    index: Int32
    records: NullableRecords


class TopicProduceData(Struct):
    name: String = until(12, ignorable=True, map_key=True)
    topic_id: Uuid = since(13, ignorable=True, map_key=True)
    partition_data: list[PartitionProduceData]


class ProduceRequest(Request, key=0, versions="3-13", flexible="9+"):
    transactional_id: NullableString
    acks: Int16
    timeout_ms: Int32
    topic_data: list[TopicProduceData]


class BatchIndexAndErrorMessage(Struct):
    batch_index: Int32
    batch_index_error_message: NullableString


class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = field(default=-1)
    leader_epoch: Int32 = field(default=-1)


class PartitionProduceResponse(Struct):
    index: Int32
    error_code: Int16
    base_offset: Int64
    log_append_time_ms: Int64 = field(default=-1)
    log_start_offset: Int64 = since(5, default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = since(8, ignorable=True)
    error_message: NullableString = since(8, ignorable=True)
    current_leader: LeaderIdAndEpoch = since(10, tag=0)


class TopicProduceResponse(Struct):
    name: String = until(12, ignorable=True, map_key=True)
    topic_id: Uuid = since(13, ignorable=True, map_key=True)
    partition_responses: list[PartitionProduceResponse]


class NodeEndpoint(Struct):
    node_id: Int32 = field(map_key=True)
    host: String
    port: Int32
    rack: NullableString


class ProduceResponse(Response, key=0, versions="3-13", flexible="9+"):
    responses: list[TopicProduceResponse]
    throttle_time_ms: Int32
    node_endpoints: list[NodeEndpoint] = since(10, tag=0)
