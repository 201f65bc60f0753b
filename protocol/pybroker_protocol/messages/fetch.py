"""Fetch (key 1): a consumer or a follower reads record batches from partitions."""

from pybroker_protocol.schema import (
    Int8,
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


class ReplicaState(Struct):
    replica_id: Int32 = field(default=-1)
    replica_epoch: Int64 = field(default=-1)


class FetchPartition(Struct):
    partition: Int32
    current_leader_epoch: Int32 = since(9, default=-1, ignorable=True)
    fetch_offset: Int64
    last_fetched_epoch: Int32 = since(12, default=-1)
    log_start_offset: Int64 = since(5, default=-1, ignorable=True)
    partition_max_bytes: Int32
    replica_directory_id: Uuid = since(17, tag=0, ignorable=True)
    high_watermark: Int64 = since(18, tag=1, default=0x7FFFFFFFFFFFFFFF, ignorable=True)


class FetchTopic(Struct):
    topic: String = until(12, ignorable=True)
    topic_id: Uuid = since(13, ignorable=True)
    partitions: list[FetchPartition]


class ForgottenTopic(Struct):
    topic: String = until(12, ignorable=True)
    topic_id: Uuid = since(13, ignorable=True)
    partitions: list[Int32]


class FetchRequest(Request, key=1, versions="4-18", flexible="12+"):
    cluster_id: NullableString = since(12, tag=0, ignorable=True)
    replica_id: Int32 = until(14, default=-1)
    replica_state: ReplicaState = since(15, tag=1)
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = field(default=0x7FFFFFFF)
    isolation_level: Int8
    session_id: Int32 = since(7, ignorable=True)
    session_epoch: Int32 = since(7, default=-1, ignorable=True)
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic] = since(7)
    rack_id: String = since(11, ignorable=True)


class EpochEndOffset(Struct):
    epoch: Int32 = field(default=-1)
    end_offset: Int64 = field(default=-1)


class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = field(default=-1)
    leader_epoch: Int32 = field(default=-1)


class SnapshotId(Struct):
    end_offset: Int64 = field(default=-1)
    epoch: Int32 = field(default=-1)


class AbortedTransaction(Struct):
    producer_id: Int64
    first_offset: Int64


class PartitionData(Struct):
    partition_index: Int32
    error_code: Int16
    high_watermark: Int64
    last_stable_offset: Int64 = field(default=-1)
    log_start_offset: Int64 = since(5, default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = since(12, tag=0)
    current_leader: LeaderIdAndEpoch = since(12, tag=1)
    snapshot_id: SnapshotId = since(12, tag=2)
    aborted_transactions: list[AbortedTransaction] | None = field(default=[])
    preferred_read_replica: Int32 = since(11, default=-1)
    records: NullableRecords


class FetchableTopicResponse(Struct):
    topic: String = until(12, ignorable=True)
    topic_id: Uuid = since(13, ignorable=True)
    partitions: list[PartitionData]


class NodeEndpoint(Struct):
    node_id: Int32 = field(map_key=True)
    host: String
    port: Int32
    rack: NullableString


class FetchResponse(Response, key=1, versions="4-18", flexible="12+"):
    throttle_time_ms: Int32
    error_code: Int16 = since(7, ignorable=True)
    session_id: Int32 = since(7)
    responses: list[FetchableTopicResponse]
    node_endpoints: list[NodeEndpoint] = since(16, tag=0)
