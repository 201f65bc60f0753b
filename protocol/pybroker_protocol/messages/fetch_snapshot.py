"""FetchSnapshot (key 59): a part of a KRaft snapshot."""

from pybroker_protocol.schema import (
    Int16,
    Int32,
    Int64,
    NullableString,
    Records,
    Request,
    Response,
    String,
    Struct,
    Uint16,
    Uuid,
    field,
    since,
)


class FetchSnapshotRequestSnapshotId(Struct):
    end_offset: Int64
    epoch: Int32


class FetchSnapshotRequestPartitionSnapshot(Struct):
    partition: Int32
    current_leader_epoch: Int32
    snapshot_id: FetchSnapshotRequestSnapshotId
    position: Int64
    replica_directory_id: Uuid = since(1, tag=0, ignorable=True)


class FetchSnapshotRequestTopicSnapshot(Struct):
    name: String
    partitions: list[FetchSnapshotRequestPartitionSnapshot]


class FetchSnapshotRequest(Request, key=59, versions="0-1", flexible="0+"):
    cluster_id: NullableString = field(tag=0)
    replica_id: Int32 = field(default=-1)
    max_bytes: Int32 = field(default=0x7FFFFFFF)
    topics: list[FetchSnapshotRequestTopicSnapshot]


class FetchSnapshotResponseSnapshotId(Struct):
    end_offset: Int64
    epoch: Int32


class LeaderIdAndEpoch(Struct):
    leader_id: Int32
    leader_epoch: Int32


class FetchSnapshotResponsePartitionSnapshot(Struct):
    index: Int32
    error_code: Int16
    snapshot_id: FetchSnapshotResponseSnapshotId
    current_leader: LeaderIdAndEpoch = field(tag=0)
    size: Int64
    position: Int64
    unaligned_records: Records


class FetchSnapshotResponseTopicSnapshot(Struct):
    name: String
    partitions: list[FetchSnapshotResponsePartitionSnapshot]


class NodeEndpoint(Struct):
    node_id: Int32 = field(map_key=True)
    host: String
    port: Uint16


class FetchSnapshotResponse(Response, key=59, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    topics: list[FetchSnapshotResponseTopicSnapshot]
    node_endpoints: list[NodeEndpoint] = since(1, tag=0)
