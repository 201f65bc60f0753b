"""EndQuorumEpoch (key 54): a KRaft leader resigns."""

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
    until,
)


class ReplicaInfo(Struct):
    candidate_id: Int32
    candidate_directory_id: Uuid


class EndQuorumEpochRequestPartitionData(Struct):
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32
    preferred_successors: list[Int32] = until(0, ignorable=True)
    preferred_candidates: list[ReplicaInfo] = since(1, ignorable=True)


class EndQuorumEpochRequestTopicData(Struct):
    topic_name: String
    partitions: list[EndQuorumEpochRequestPartitionData]


class LeaderEndpoint(Struct):
    name: String = field(map_key=True)
    host: String
    port: Uint16


class EndQuorumEpochRequest(Request, key=54, versions="0-1", flexible="1+"):
    cluster_id: NullableString
    topics: list[EndQuorumEpochRequestTopicData]
    leader_endpoints: list[LeaderEndpoint] = since(1, ignorable=True)


class EndQuorumEpochResponsePartitionData(Struct):
    partition_index: Int32
    error_code: Int16
    leader_id: Int32
    leader_epoch: Int32


class EndQuorumEpochResponseTopicData(Struct):
    topic_name: String
    partitions: list[EndQuorumEpochResponsePartitionData]


class NodeEndpoint(Struct):
    node_id: Int32 = field(map_key=True)
    host: String
    port: Uint16


class EndQuorumEpochResponse(Response, key=54, versions="0-1", flexible="1+"):
    error_code: Int16
    topics: list[EndQuorumEpochResponseTopicData]
    node_endpoints: list[NodeEndpoint] = since(1, tag=0)
