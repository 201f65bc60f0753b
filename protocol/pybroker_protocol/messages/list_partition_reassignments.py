"""ListPartitionReassignments (key 46): the reassignments that are under way."""

from pybroker_protocol.schema import Int16, Int32, NullableString, Request, Response, String, Struct, field


class ListPartitionReassignmentsTopics(Struct):
    name: String
    partition_indexes: list[Int32]


class ListPartitionReassignmentsRequest(Request, key=46, versions="0", flexible="0+"):
    timeout_ms: Int32 = field(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None


class OngoingPartitionReassignment(Struct):
    partition_index: Int32
    replicas: list[Int32]
    adding_replicas: list[Int32]
    removing_replicas: list[Int32]


class OngoingTopicReassignment(Struct):
    name: String
    partitions: list[OngoingPartitionReassignment]


class ListPartitionReassignmentsResponse(Response, key=46, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableString = field(default="")
    topics: list[OngoingTopicReassignment]
