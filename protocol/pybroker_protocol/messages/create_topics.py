"""CreateTopics (key 19): create topics with partitions, replicas and configs."""

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
    Uuid,
    field,
    since,
)


class CreatableReplicaAssignment(Struct):
    partition_index: Int32 = field(map_key=True)
    broker_ids: list[Int32]


class CreatableTopicConfig(Struct):
    name: String = field(map_key=True)
    value: NullableString = field(default="")


class CreatableTopic(Struct):
    name: String = field(map_key=True)
    num_partitions: Int32
    replication_factor: Int16
    assignments: list[CreatableReplicaAssignment]
    configs: list[CreatableTopicConfig]


class CreateTopicsRequest(Request, key=19, versions="2-7", flexible="5+"):
    topics: list[CreatableTopic]
    timeout_ms: Int32 = field(default=60000)
    validate_only: Bool


class CreatableTopicConfigs(Struct):
    name: String
    value: NullableString = field(default="")
    read_only: Bool
    config_source: Int8 = field(default=-1)
    is_sensitive: Bool


class CreatableTopicResult(Struct):
    name: String = field(map_key=True)
    topic_id: Uuid = since(7, ignorable=True)
    error_code: Int16
    error_message: NullableString = field(default="")
    topic_config_error_code: Int16 = since(5, tag=0, ignorable=True)
    num_partitions: Int32 = since(5, default=-1, ignorable=True)
    replication_factor: Int16 = since(5, default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = since(5, default=[], ignorable=True)


class CreateTopicsResponse(Response, key=19, versions="2-7", flexible="5+"):
    throttle_time_ms: Int32
    topics: list[CreatableTopicResult]
