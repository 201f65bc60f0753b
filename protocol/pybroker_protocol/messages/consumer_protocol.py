"""What consumers put into the opaque metadata and assignments of classic groups."""

from pybroker_protocol.schema import DataRecord, Int32, NullableBytes, NullableString, String, Struct, field, since


class ConsumerProtocolAssignmentTopicPartition(Struct):
    topic: String = field(map_key=True)
    partitions: list[Int32]


class ConsumerProtocolAssignment(DataRecord, versions="0-3"):
    assigned_partitions: list[ConsumerProtocolAssignmentTopicPartition]
    user_data: NullableBytes


class ConsumerProtocolSubscriptionTopicPartition(Struct):
    topic: String = field(map_key=True)
    partitions: list[Int32]


class ConsumerProtocolSubscription(DataRecord, versions="0-3"):
    topics: list[String]
    user_data: NullableBytes
    owned_partitions: list[ConsumerProtocolSubscriptionTopicPartition] = since(1, ignorable=True)
    generation_id: Int32 = since(2, default=-1, ignorable=True)
    rack_id: NullableString = since(3, ignorable=True)
