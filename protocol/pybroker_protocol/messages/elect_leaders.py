"""ElectLeaders (key 43): elect preferred or unclean leaders of partitions."""

from pybroker_protocol.schema import Int8, Int16, Int32, NullableString, Request, Response, String, Struct, field, since


class TopicPartitions(Struct):
    topic: String = field(map_key=True)
    partitions: list[Int32]


class ElectLeadersRequest(Request, key=43, versions="0-2", flexible="2+"):
    election_type: Int8 = since(1)
    topic_partitions: list[TopicPartitions] | None = field(default=[])
    timeout_ms: Int32 = field(default=60000)


class PartitionResult(Struct):
    partition_id: Int32
    error_code: Int16
    error_message: NullableString = field(default="")


class ReplicaElectionResult(Struct):
    topic: String
    partition_result: list[PartitionResult]


class ElectLeadersResponse(Response, key=43, versions="0-2", flexible="2+"):
    throttle_time_ms: Int32
    error_code: Int16 = since(1)
    replica_election_results: list[ReplicaElectionResult]
