"""AlterPartitionReassignments (key 45): start or cancel moving partitions to other replicas."""

from pybroker_protocol.schema import Bool, Int16, Int32, NullableString, Request, Response, String, Struct, field, since


class ReassignablePartition(Struct):
    partition_index: Int32
    replicas: list[Int32] | None


class ReassignableTopic(Struct):
    name: String
    partitions: list[ReassignablePartition]


class AlterPartitionReassignmentsRequest(Request, key=45, versions="0-1", flexible="0+"):
    timeout_ms: Int32 = field(default=60000)
    allow_replication_factor_change: Bool = since(1, default=True)
    topics: list[ReassignableTopic]


class ReassignablePartitionResponse(Struct):
    partition_index: Int32
    error_code: Int16
    error_message: NullableString = field(default="")


class ReassignableTopicResponse(Struct):
    name: String
    partitions: list[ReassignablePartitionResponse]


class AlterPartitionReassignmentsResponse(Response, key=45, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32
    allow_replication_factor_change: Bool = since(1, default=True, ignorable=True)
    error_code: Int16
    error_message: NullableString = field(default="")
    responses: list[ReassignableTopicResponse]
