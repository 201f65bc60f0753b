"""Metadata (key 3): brokers, topics and partition leaders."""

from pybroker_protocol.schema import (
    Bool,
    Int16,
    Int32,
    NullableString,
    Request,
    Response,
    String,
    Struct,
    Uuid,
    field,
    since,
)


class MetadataRequestTopic(Struct):
    topic_id: Uuid = since(10, ignorable=True)
    name: NullableString = field(nullable="10+", default="")


class MetadataRequest(Request, key=3, versions="0-13", flexible="9+"):
    topics: list[MetadataRequestTopic] | None = field(nullable="1+", default=[])
    allow_auto_topic_creation: Bool = since(4, default=True)
    include_cluster_authorized_operations: Bool = field(versions="8-10")
    include_topic_authorized_operations: Bool = since(8)


class MetadataResponseBroker(Struct):
    node_id: Int32 = field(map_key=True)
    host: String
    port: Int32
    rack: NullableString = since(1, ignorable=True)


class MetadataResponsePartition(Struct):
    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = since(7, default=-1, ignorable=True)
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    offline_replicas: list[Int32] = since(5, ignorable=True)


class MetadataResponseTopic(Struct):
    error_code: Int16
    name: NullableString = field(nullable="12+", default="", map_key=True)
    topic_id: Uuid = since(10, ignorable=True)
    is_internal: Bool = since(1, ignorable=True)
    partitions: list[MetadataResponsePartition]
    topic_authorized_operations: Int32 = since(8, default=-0x80000000)


class MetadataResponse(Response, key=3, versions="0-13", flexible="9+"):
    throttle_time_ms: Int32 = since(3, ignorable=True)
    brokers: list[MetadataResponseBroker]
    cluster_id: NullableString = since(2, ignorable=True)
    controller_id: Int32 = since(1, default=-1, ignorable=True)
    topics: list[MetadataResponseTopic]
    cluster_authorized_operations: Int32 = field(versions="8-10", default=-0x80000000)
    error_code: Int16 = since(13, ignorable=True)
