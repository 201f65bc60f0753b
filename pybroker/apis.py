"""THE TABLE: one row per served API key; those that brokers alone may ask for in a table of their own.

Owns: which keys are served, in which versions, by which handler, routed where. Dispatch, ApiVersions, the table of
docs/reference.md, the comparator's versions and its list of what is not served, the mutants of permissions and the
parametrised tests all derive from these rows. ``scripts/new-api`` lays a new one. A row holds numbers and the dotted
name of its handler; the module is imported when the first request of its key comes.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Route(IntEnum):
    """Which broker a client sends the request to."""

    ANY_BROKER = 0
    PARTITION_LEADER = 1
    GROUP_COORDINATOR = 2
    TRANSACTION_COORDINATOR = 3
    CONTROLLER = 4  # any broker takes it, and forwards it to the active controller's


class Api(NamedTuple):
    """One served API: ``versions`` is an inclusive range, ``handler`` a module of ``pybroker.handlers``.

    The handlers ask whether a request is permitted.  ``open_to_all`` says of those that do not ask that Kafka does not
    ask either.
    """

    key: int
    name: str
    versions: tuple[int, int]
    handler: str
    routed_to: Route = Route.ANY_BROKER
    advertised_min: int | None = None  # Produce advertises 0 for the sake of old librdkafka (KAFKA-18659)
    elements_max: int | None = None  # of all arrays together, where the request is one operation as a whole
    open_to_all: bool = False


ANY, LEADER, GROUP = Route.ANY_BROKER, Route.PARTITION_LEADER, Route.GROUP_COORDINATOR
TRANSACTION, CONTROLLER = Route.TRANSACTION_COORDINATOR, Route.CONTROLLER
# Elements, over all arrays, of a request that is one operation as a whole, where it is no rule of Kafka's: members,
# protocols, subscriptions and filters cost a few microseconds each.
WHOLE = 20_000

# The same where the elements are topics and partitions with what is said of them, in requests of administrators.
ADMIN = 50_000

APIS: tuple[Api, ...] = (
    Api(0, "Produce", (3, 13), "produce", LEADER, advertised_min=0),
    Api(1, "Fetch", (4, 18), "fetch", LEADER),
    Api(2, "ListOffsets", (1, 11), "list_offsets", LEADER),
    Api(3, "Metadata", (0, 13), "metadata", ANY),
    Api(8, "OffsetCommit", (2, 10), "offset_commit", GROUP),
    Api(9, "OffsetFetch", (1, 10), "offset_fetch", GROUP),
    Api(10, "FindCoordinator", (0, 6), "find_coordinator", ANY),
    Api(11, "JoinGroup", (0, 9), "join_group", GROUP, elements_max=WHOLE),
    Api(12, "Heartbeat", (0, 4), "heartbeat", GROUP),
    Api(13, "LeaveGroup", (0, 5), "leave_group", GROUP, elements_max=WHOLE),
    Api(14, "SyncGroup", (0, 5), "sync_group", GROUP, elements_max=WHOLE),
    Api(15, "DescribeGroups", (0, 6), "describe_groups", GROUP),
    Api(16, "ListGroups", (0, 5), "list_groups", ANY, elements_max=WHOLE),
    Api(17, "SaslHandshake", (0, 1), "sasl_handshake", open_to_all=True),
    Api(18, "ApiVersions", (0, 5), "api_versions", open_to_all=True),
    Api(19, "CreateTopics", (2, 7), "create_topics", CONTROLLER, elements_max=ADMIN),
    Api(20, "DeleteTopics", (1, 6), "delete_topics", CONTROLLER, elements_max=ADMIN),
    Api(21, "DeleteRecords", (0, 2), "delete_records", LEADER),
    Api(22, "InitProducerId", (0, 5), "init_producer_id", ANY),
    Api(23, "OffsetForLeaderEpoch", (2, 4), "offset_for_leader_epoch", LEADER),
    Api(24, "AddPartitionsToTxn", (0, 5), "add_partitions_to_txn", TRANSACTION),
    Api(25, "AddOffsetsToTxn", (0, 4), "add_offsets_to_txn", TRANSACTION),
    Api(26, "EndTxn", (0, 5), "end_txn", TRANSACTION),
    Api(27, "WriteTxnMarkers", (1, 2), "write_txn_markers", LEADER, elements_max=ADMIN),
    Api(28, "TxnOffsetCommit", (0, 6), "txn_offset_commit", GROUP),
    Api(29, "DescribeAcls", (1, 3), "describe_acls", ANY),
    Api(30, "CreateAcls", (1, 3), "create_acls", CONTROLLER, elements_max=ADMIN),
    Api(31, "DeleteAcls", (1, 3), "delete_acls", CONTROLLER, elements_max=ADMIN),
    Api(32, "DescribeConfigs", (1, 4), "describe_configs", ANY),
    Api(33, "AlterConfigs", (0, 2), "alter_configs", CONTROLLER, elements_max=ADMIN),
    Api(34, "AlterReplicaLogDirs", (1, 2), "alter_replica_log_dirs", elements_max=ADMIN),
    Api(35, "DescribeLogDirs", (1, 5), "describe_log_dirs", ANY, elements_max=ADMIN),
    Api(36, "SaslAuthenticate", (0, 2), "sasl_authenticate", open_to_all=True),
    Api(37, "CreatePartitions", (0, 3), "create_partitions", CONTROLLER, elements_max=ADMIN),
    Api(38, "CreateDelegationToken", (1, 3), "create_delegation_token", CONTROLLER, elements_max=ADMIN),
    # A token's owner and its renewers change it, which no permission extends to others.
    Api(39, "RenewDelegationToken", (1, 2), "renew_delegation_token", CONTROLLER, open_to_all=True),
    Api(40, "ExpireDelegationToken", (1, 2), "expire_delegation_token", CONTROLLER, open_to_all=True),
    Api(41, "DescribeDelegationToken", (1, 3), "describe_delegation_token", elements_max=ADMIN),
    Api(42, "DeleteGroups", (0, 3), "delete_groups", GROUP),
    Api(43, "ElectLeaders", (0, 2), "elect_leaders", CONTROLLER, elements_max=WHOLE),
    Api(44, "IncrementalAlterConfigs", (0, 1), "incremental_alter_configs", CONTROLLER, elements_max=ADMIN),
    Api(45, "AlterPartitionReassignments", (0, 1), "alter_partition_reassignments", CONTROLLER, elements_max=ADMIN),
    Api(46, "ListPartitionReassignments", (0, 0), "list_partition_reassignments", CONTROLLER, elements_max=ADMIN),
    Api(47, "OffsetDelete", (0, 0), "offset_delete", GROUP),
    Api(48, "DescribeClientQuotas", (0, 1), "describe_client_quotas", ANY, elements_max=WHOLE),
    Api(49, "AlterClientQuotas", (0, 1), "alter_client_quotas", CONTROLLER, elements_max=ADMIN),
    Api(50, "DescribeUserScramCredentials", (0, 0), "describe_user_scram_credentials", elements_max=ADMIN),
    Api(51, "AlterUserScramCredentials", (0, 0), "alter_user_scram_credentials", CONTROLLER, elements_max=ADMIN),
    Api(55, "DescribeQuorum", (0, 2), "describe_quorum", CONTROLLER, elements_max=ADMIN),
    Api(57, "UpdateFeatures", (0, 2), "update_features", CONTROLLER, elements_max=WHOLE),
    Api(60, "DescribeCluster", (0, 2), "describe_cluster", ANY, open_to_all=True),
    Api(61, "DescribeProducers", (0, 0), "describe_producers", LEADER),
    Api(64, "UnregisterBroker", (0, 0), "unregister_broker", CONTROLLER),
    Api(65, "DescribeTransactions", (0, 0), "describe_transactions", TRANSACTION),
    Api(66, "ListTransactions", (0, 2), "list_transactions", ANY, elements_max=WHOLE),
    Api(68, "ConsumerGroupHeartbeat", (0, 1), "consumer_group_heartbeat", GROUP, elements_max=WHOLE),
    Api(69, "ConsumerGroupDescribe", (0, 1), "consumer_group_describe", GROUP),
    Api(71, "GetTelemetrySubscriptions", (0, 0), "get_telemetry_subscriptions", open_to_all=True),
    Api(72, "PushTelemetry", (0, 0), "push_telemetry", open_to_all=True),
    Api(74, "ListConfigResources", (0, 1), "list_config_resources", ANY, elements_max=WHOLE),
    Api(75, "DescribeTopicPartitions", (0, 0), "describe_topic_partitions", ANY, elements_max=ADMIN),
    Api(94, "UnregisterController", (0, 0), "unregister_controller", CONTROLLER),
)

# What brokers ask of each other, once that is proved; Kafka serves these on controllers.
INTER_BROKER_APIS: tuple[Api, ...] = (
    Api(56, "AlterPartition", (2, 3), "alter_partition"),
    Api(58, "Envelope", (0, 0), "envelope"),
    Api(62, "BrokerRegistration", (0, 4), "broker_registration"),
    Api(63, "BrokerHeartbeat", (0, 2), "broker_heartbeat"),
    Api(67, "AllocateProducerIds", (0, 0), "allocate_producer_ids"),
    Api(73, "AssignReplicasToDirs", (0, 0), "assign_replicas_to_dirs", elements_max=ADMIN),
)

BY_KEY: dict[int, Api] = {api.key: api for api in APIS}
