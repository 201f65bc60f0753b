"""CreatePartitions (key 37): give topics more partitions."""

from pybroker_protocol.schema import Bool, Int16, Int32, NullableString, Request, Response, String, Struct, field


class CreatePartitionsAssignment(Struct):
    broker_ids: list[Int32]


class CreatePartitionsTopic(Struct):
    name: String = field(map_key=True)
    count: Int32
    assignments: list[CreatePartitionsAssignment] | None = field(default=[])


class CreatePartitionsRequest(Request, key=37, versions="0-3", flexible="2+"):
    topics: list[CreatePartitionsTopic]
    timeout_ms: Int32
    validate_only: Bool


class CreatePartitionsTopicResult(Struct):
    name: String
    error_code: Int16
    error_message: NullableString


class CreatePartitionsResponse(Response, key=37, versions="0-3", flexible="2+"):
    throttle_time_ms: Int32
    results: list[CreatePartitionsTopicResult]
