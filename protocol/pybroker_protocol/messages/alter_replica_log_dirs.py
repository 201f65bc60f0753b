"""AlterReplicaLogDirs (key 34): move replicas to other log dirs of a broker."""

from pybroker_protocol.schema import Int16, Int32, Request, Response, String, Struct, field


class AlterReplicaLogDirTopic(Struct):
    name: String = field(map_key=True)
    partitions: list[Int32]


class AlterReplicaLogDir(Struct):
    path: String = field(map_key=True)
    topics: list[AlterReplicaLogDirTopic]


class AlterReplicaLogDirsRequest(Request, key=34, versions="1-2", flexible="2+"):
    dirs: list[AlterReplicaLogDir]


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: Int32
    error_code: Int16


class AlterReplicaLogDirTopicResult(Struct):
    topic_name: String
    partitions: list[AlterReplicaLogDirPartitionResult]


class AlterReplicaLogDirsResponse(Response, key=34, versions="1-2", flexible="2+"):
    throttle_time_ms: Int32
    results: list[AlterReplicaLogDirTopicResult]
