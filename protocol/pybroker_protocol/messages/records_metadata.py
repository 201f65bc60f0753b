"""The records of __cluster_metadata (KRaft), by record type."""

from pybroker_protocol.schema import (
    Bool,
    Bytes,
    DataRecord,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    NullableString,
    String,
    Struct,
    Uint16,
    Uuid,
    field,
    since,
)


class BrokerEndpoint(Struct):
    name: String = field(map_key=True)
    host: String
    port: Uint16
    security_protocol: Int16


class BrokerFeature(Struct):
    name: String = field(map_key=True)
    min_supported_version: Int16
    max_supported_version: Int16


class RegisterBrokerRecord(DataRecord, key=0, kind="value", versions="0-4", flexible="0+"):
    broker_id: Int32
    is_migrating_zk_broker: Bool = since(2)
    incarnation_id: Uuid
    broker_epoch: Int64
    end_points: list[BrokerEndpoint]
    features: list[BrokerFeature]
    rack: NullableString = field(default="")
    fenced: Bool = field(default=True)
    in_controlled_shutdown: Bool = since(1)
    log_dirs: list[Uuid] = since(3, tag=0)
    cordoned_log_dirs: list[Uuid] | None = since(4, tag=1)


class UnregisterBrokerRecord(DataRecord, key=1, kind="value", versions="0", flexible="0+"):
    broker_id: Int32
    broker_epoch: Int64


class TopicRecord(DataRecord, key=2, kind="value", versions="0", flexible="0+"):
    name: String
    topic_id: Uuid


class PartitionRecord(DataRecord, key=3, kind="value", versions="0-2", flexible="0+"):
    partition_id: Int32 = field(default=-1)
    topic_id: Uuid
    replicas: list[Int32]
    isr: list[Int32]
    removing_replicas: list[Int32]
    adding_replicas: list[Int32]
    leader: Int32 = field(default=-1)
    leader_recovery_state: Int8 = field(tag=0)
    leader_epoch: Int32 = field(default=-1)
    partition_epoch: Int32 = field(default=-1)
    directories: list[Uuid] = since(1)
    eligible_leader_replicas: list[Int32] | None = since(2, tag=1)
    last_known_elr: list[Int32] | None = since(2, tag=2)


class ConfigRecord(DataRecord, key=4, kind="value", versions="0", flexible="0+"):
    resource_type: Int8
    resource_name: String
    name: String
    value: NullableString = field(default="")


class PartitionChangeRecord(DataRecord, key=5, kind="value", versions="0-2", flexible="0+"):
    partition_id: Int32 = field(default=-1)
    topic_id: Uuid
    isr: list[Int32] | None = field(tag=0)
    leader: Int32 = field(tag=1, default=-2)
    replicas: list[Int32] | None = field(tag=2)
    removing_replicas: list[Int32] | None = field(tag=3)
    adding_replicas: list[Int32] | None = field(tag=4)
    leader_recovery_state: Int8 = field(tag=5, default=-1)
    directories: list[Uuid] | None = since(1, tag=8)
    eligible_leader_replicas: list[Int32] | None = since(2, tag=6)
    last_known_elr: list[Int32] | None = since(2, tag=7)


class FenceBrokerRecord(DataRecord, key=7, kind="value", versions="0", flexible="0+"):
    id: Int32
    epoch: Int64


class UnfenceBrokerRecord(DataRecord, key=8, kind="value", versions="0", flexible="0+"):
    id: Int32
    epoch: Int64


class RemoveTopicRecord(DataRecord, key=9, kind="value", versions="0", flexible="0+"):
    topic_id: Uuid


class DelegationTokenRecord(DataRecord, key=10, kind="value", versions="0", flexible="0+"):
    owner: String
    requester: String
    renewers: list[String]
    issue_timestamp: Int64
    max_timestamp: Int64
    expiration_timestamp: Int64
    token_id: String


class UserScramCredentialRecord(DataRecord, key=11, kind="value", versions="0", flexible="0+"):
    name: String
    mechanism: Int8
    salt: Bytes
    stored_key: Bytes
    server_key: Bytes
    iterations: Int32


class FeatureLevelRecord(DataRecord, key=12, kind="value", versions="0", flexible="0+"):
    name: String
    feature_level: Int16


class EntityData(Struct):
    entity_type: String
    entity_name: NullableString = field(default="")


class ClientQuotaRecord(DataRecord, key=14, kind="value", versions="0", flexible="0+"):
    entity: list[EntityData]
    key: String
    value: Float64
    remove: Bool


class ProducerIdsRecord(DataRecord, key=15, kind="value", versions="0", flexible="0+"):
    broker_id: Int32
    broker_epoch: Int64 = field(default=-1)
    next_producer_id: Int64


class BrokerRegistrationChangeRecord(DataRecord, key=17, kind="value", versions="0-3", flexible="0+"):
    broker_id: Int32
    broker_epoch: Int64
    fenced: Int8 = field(tag=0)
    in_controlled_shutdown: Int8 = since(1, tag=1)
    log_dirs: list[Uuid] = since(2, tag=2)
    cordoned_log_dirs: list[Uuid] | None = since(3, tag=3)


class AccessControlEntryRecord(DataRecord, key=18, kind="value", versions="0", flexible="0+"):
    id: Uuid
    resource_type: Int8
    resource_name: String
    pattern_type: Int8
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


class RemoveAccessControlEntryRecord(DataRecord, key=19, kind="value", versions="0", flexible="0+"):
    id: Uuid


class NoOpRecord(DataRecord, key=20, kind="value", versions="0", flexible="0+"):
    """Has no fields."""


class ZkMigrationStateRecord(DataRecord, key=21, kind="value", versions="0", flexible="0+"):
    zk_migration_state: Int8


class RemoveUserScramCredentialRecord(DataRecord, key=22, kind="value", versions="0", flexible="0+"):
    name: String
    mechanism: Int8


class BeginTransactionRecord(DataRecord, key=23, kind="value", versions="0", flexible="0+"):
    name: NullableString = field(tag=0)


class EndTransactionRecord(DataRecord, key=24, kind="value", versions="0", flexible="0+"):
    """Has no fields."""


class AbortTransactionRecord(DataRecord, key=25, kind="value", versions="0", flexible="0+"):
    reason: NullableString = field(tag=0)


class RemoveDelegationTokenRecord(DataRecord, key=26, kind="value", versions="0", flexible="0+"):
    token_id: String


class ControllerEndpoint(Struct):
    name: String = field(map_key=True)
    host: String
    port: Uint16
    security_protocol: Int16


class ControllerFeature(Struct):
    name: String = field(map_key=True)
    min_supported_version: Int16
    max_supported_version: Int16


class RegisterControllerRecord(DataRecord, key=27, kind="value", versions="0", flexible="0+"):
    controller_id: Int32
    incarnation_id: Uuid
    zk_migration_ready: Bool
    end_points: list[ControllerEndpoint]
    features: list[ControllerFeature]


class ClearElrRecord(DataRecord, key=28, kind="value", versions="0", flexible="0+"):
    topic_name: String


class UnregisterControllerRecord(DataRecord, key=29, kind="value", versions="0", flexible="0+"):
    controller_id: Int32
