"""DescribeCluster (key 60): cluster id, controller and brokers."""

from pybroker_protocol.schema import (
    Bool,
    Int8,
    Int16,
    Int32,
    NullableString,
    Request,
    Response,
    String,
    Struct,
    field,
    since,
)


class DescribeClusterRequest(Request, key=60, versions="0-2", flexible="0+"):
    include_cluster_authorized_operations: Bool
    endpoint_type: Int8 = since(1, default=1)
    include_fenced_brokers: Bool = since(2)


class DescribeClusterBroker(Struct):
    broker_id: Int32 = field(map_key=True)
    host: String
    port: Int32
    rack: NullableString
    is_fenced: Bool = since(2)


class DescribeClusterResponse(Response, key=60, versions="0-2", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableString
    endpoint_type: Int8 = since(1, default=1)
    cluster_id: String
    controller_id: Int32 = field(default=-1)
    brokers: list[DescribeClusterBroker]
    cluster_authorized_operations: Int32 = field(default=-0x80000000)
