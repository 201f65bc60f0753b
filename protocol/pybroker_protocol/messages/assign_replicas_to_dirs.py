"""AssignReplicasToDirs (key 73): a broker tells the controller which log dir holds which replica."""

from pybroker_protocol.schema import Int16, Int32, Int64, Request, Response, Struct, Uuid, field


class AssignReplicasToDirsRequestPartitionData(Struct):
    partition_index: Int32


class AssignReplicasToDirsRequestTopicData(Struct):
    topic_id: Uuid
    partitions: list[AssignReplicasToDirsRequestPartitionData]


class AssignReplicasToDirsRequestDirectoryData(Struct):
    id: Uuid
    topics: list[AssignReplicasToDirsRequestTopicData]


class AssignReplicasToDirsRequest(Request, key=73, versions="0", flexible="0+"):
    broker_id: Int32
    broker_epoch: Int64 = field(default=-1)
    directories: list[AssignReplicasToDirsRequestDirectoryData]


class AssignReplicasToDirsResponsePartitionData(Struct):
    partition_index: Int32
    error_code: Int16


class AssignReplicasToDirsResponseTopicData(Struct):
    topic_id: Uuid
    partitions: list[AssignReplicasToDirsResponsePartitionData]


class AssignReplicasToDirsResponseDirectoryData(Struct):
    id: Uuid
    topics: list[AssignReplicasToDirsResponseTopicData]


class AssignReplicasToDirsResponse(Response, key=73, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    directories: list[AssignReplicasToDirsResponseDirectoryData]
