"""Vote (key 52): a candidate of the KRaft quorum asks for votes."""

from pybroker_protocol.schema import (
    Bool,
    Int16,
    Int32,
    Int64,
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


class VoteRequestPartitionData(Struct):
    partition_index: Int32
    replica_epoch: Int32
    replica_id: Int32
    replica_directory_id: Uuid = since(1, ignorable=True)
    voter_directory_id: Uuid = since(1, ignorable=True)
    last_offset_epoch: Int32
    last_offset: Int64
    pre_vote: Bool = since(2)


class VoteRequestTopicData(Struct):
    topic_name: String
    partitions: list[VoteRequestPartitionData]


class VoteRequest(Request, key=52, versions="0-2", flexible="0+"):
    cluster_id: NullableString
    voter_id: Int32 = since(1, default=-1, ignorable=True)
    topics: list[VoteRequestTopicData]


class VoteResponsePartitionData(Struct):
    partition_index: Int32
    error_code: Int16
    leader_id: Int32
    leader_epoch: Int32
    vote_granted: Bool


class VoteResponseTopicData(Struct):
    topic_name: String
    partitions: list[VoteResponsePartitionData]


class NodeEndpoint(Struct):
    node_id: Int32 = field(map_key=True)
    host: String
    port: Uint16


class VoteResponse(Response, key=52, versions="0-2", flexible="0+"):
    error_code: Int16
    topics: list[VoteResponseTopicData]
    node_endpoints: list[NodeEndpoint] = since(1, tag=0)
