"""DescribeQuorum (key 55): voters, observers and progress of the KRaft quorum."""

from pybroker_protocol.schema import (
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


class DescribeQuorumRequestPartitionData(Struct):
    partition_index: Int32


class DescribeQuorumRequestTopicData(Struct):
    topic_name: String
    partitions: list[DescribeQuorumRequestPartitionData]


class DescribeQuorumRequest(Request, key=55, versions="0-2", flexible="0+"):
    topics: list[DescribeQuorumRequestTopicData]


class ReplicaState(Struct):
    replica_id: Int32
    replica_directory_id: Uuid = since(2)
    log_end_offset: Int64
    last_fetch_timestamp: Int64 = since(1, default=-1, ignorable=True)
    last_caught_up_timestamp: Int64 = since(1, default=-1, ignorable=True)


class DescribeQuorumResponsePartitionData(Struct):
    partition_index: Int32
    error_code: Int16
    error_message: NullableString = since(2, default="", ignorable=True)
    leader_id: Int32
    leader_epoch: Int32
    high_watermark: Int64
    current_voters: list[ReplicaState]
    observers: list[ReplicaState]


class DescribeQuorumResponseTopicData(Struct):
    topic_name: String
    partitions: list[DescribeQuorumResponsePartitionData]


class Listener(Struct):
    name: String = field(map_key=True)
    host: String
    port: Uint16


class Node(Struct):
    node_id: Int32 = field(map_key=True)
    listeners: list[Listener]


class DescribeQuorumResponse(Response, key=55, versions="0-2", flexible="0+"):
    error_code: Int16
    error_message: NullableString = since(2, default="", ignorable=True)
    topics: list[DescribeQuorumResponseTopicData]
    nodes: list[Node] = since(2)
