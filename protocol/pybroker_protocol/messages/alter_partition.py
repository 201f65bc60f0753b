"""AlterPartition (key 56): a leader asks the controller for another ISR."""

from pybroker_protocol.schema import Int8, Int16, Int32, Int64, Request, Response, Struct, Uuid, field, since, until


class BrokerState(Struct):
    broker_id: Int32
    broker_epoch: Int64 = field(default=-1)


class AlterPartitionRequestPartitionData(Struct):
    partition_index: Int32
    leader_epoch: Int32
    new_isr: list[Int32] = until(2)
    new_isr_with_epochs: list[BrokerState] = since(3)
    leader_recovery_state: Int8
    partition_epoch: Int32


class AlterPartitionRequestTopicData(Struct):
    topic_id: Uuid
    partitions: list[AlterPartitionRequestPartitionData]


class AlterPartitionRequest(Request, key=56, versions="2-3", flexible="0+"):
    broker_id: Int32
    broker_epoch: Int64 = field(default=-1)
    topics: list[AlterPartitionRequestTopicData]


class AlterPartitionResponsePartitionData(Struct):
    partition_index: Int32
    error_code: Int16
    leader_id: Int32
    leader_epoch: Int32
    isr: list[Int32]
    leader_recovery_state: Int8
    partition_epoch: Int32


class AlterPartitionResponseTopicData(Struct):
    topic_id: Uuid
    partitions: list[AlterPartitionResponsePartitionData]


class AlterPartitionResponse(Response, key=56, versions="2-3", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    topics: list[AlterPartitionResponseTopicData]
