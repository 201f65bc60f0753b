"""BeginQuorumEpoch (key 53): a new KRaft leader announces itself."""

from pybroker_protocol.schema import (
    Int16,
    Int32,
    NullableString,
    Request,
    Response,
    String,
    Struct,
    Uint16,
    Uuid,
    field,
    since,
)


class BeginQuorumEpochRequestPartitionData(Struct):
    partition_index: Int32
    voter_directory_id: Uuid = since(1, ignorable=True)
    leader_id: Int32
    leader_epoch: Int32


class BeginQuorumEpochRequestTopicData(Struct):
    topic_name: String
    partitions: list[BeginQuorumEpochRequestPartitionData]


class LeaderEndpoint(Struct):
    name: String = field(map_key=True)
    host: String
    port: Uint16


class BeginQuorumEpochRequest(Request, key=53, versions="0-1", flexible="1+"):
    cluster_id: NullableString
    voter_id: Int32 = since(1, default=-1, ignorable=True)
    topics: list[BeginQuorumEpochRequestTopicData]
    leader_endpoints: list[LeaderEndpoint] = since(1, ignorable=True)


class BeginQuorumEpochResponsePartitionData(Struct):
    partition_index: Int32
    error_code: Int16
    leader_id: Int32
    leader_epoch: Int32


class BeginQuorumEpochResponseTopicData(Struct):
    topic_name: String
    partitions: list[BeginQuorumEpochResponsePartitionData]


class NodeEndpoint(Struct):
    node_id: Int32 = field(map_key=True)
    host: String
    port: Uint16


class BeginQuorumEpochResponse(Response, key=53, versions="0-1", flexible="1+"):
    error_code: Int16
    topics: list[BeginQuorumEpochResponseTopicData]
    node_endpoints: list[NodeEndpoint] = since(1, tag=0)
