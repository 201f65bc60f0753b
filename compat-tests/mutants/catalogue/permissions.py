"""Permissions that nobody is asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from mutants.mutant import Edit, Mutant

_TABLE: Final = "test_permissions.py::test_who_lacks_a_permission_is_refused"
_AMONG_BROKERS: Final = "tests/broker/test_inter_broker_requests.py::test_who_may_not_act_for_the_cluster_is_refused"
_TOKENS: Final = "tests/broker/test_delegation_tokens.py"
# Not taken from ``pybroker.apis``: what is imported before a mutant is put in cannot be mutated.
_OF_BROKERS: Final = (
    "AllocateProducerIds",
    "AlterPartition",
    "AssignReplicasToDirs",
    "BrokerHeartbeat",
    "BrokerRegistration",
    "Envelope",
)
# What notices where the table does not: whom it has not, or more than one request is needed.
_NOTICES: Final = {
    "Produce again": "test_permissions.py::test_who_may_not_write_produces_nothing",
    "ConsumerGroupHeartbeat with a regular expression": (
        "tests/broker/test_acls.py::test_a_regular_expression_names_no_topic_that_its_member_may_not_know_of"
    ),
    "Fetch of a follower": (
        "tests/replication/test_follower_fetch.py::test_a_broker_that_may_not_act_for_the_cluster_moves_nothing"
    ),
    "CreateDelegationToken": f"{_TOKENS}::test_another_users_token_takes_permission",
    "DescribeDelegationToken": f"{_TOKENS}::test_tokens_are_seen_by_whom_they_concern_and_whom_that_is_allowed",
    **{api: f"{_AMONG_BROKERS}[{api}]" for api in _OF_BROKERS},
}
_WORDS: Final = re.compile(r"\b(?:AclOperation\.|Resource\.|_)([A-Z_]+)")

# An API that notices, the place, and the question that is taken away there.
_QUESTIONS: Final = (
    (
        "CreateAcls",
        "acl_requests.refusal_of_change",
        "ctx.authorize(AclOperation.ALTER, Resource.CLUSTER, CLUSTER_NAME)",
    ),
    (
        "AddOffsetsToTxn",
        "add_offsets_to_txn.handle",
        "ctx.authorize(AclOperation.WRITE, Resource.TRANSACTIONAL_ID, request.transactional_id)",
    ),
    (
        "AddOffsetsToTxn",
        "add_offsets_to_txn.handle",
        "ctx.authorize(AclOperation.READ, Resource.GROUP, request.group_id)",
    ),
    (
        "AddPartitionsToTxn",
        "add_partitions_to_txn.handle",
        "ctx.authorize(AclOperation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME)",
    ),
    (
        "AddPartitionsToTxn",
        "add_partitions_to_txn._refused",
        "ctx.authorize(AclOperation.WRITE, Resource.TRANSACTIONAL_ID, transaction.transactional_id)",
    ),
    ("AddPartitionsToTxn", "add_partitions_to_txn._refused", "ctx.authorize(AclOperation.WRITE, Resource.TOPIC, name)"),
    (
        "AllocateProducerIds",
        "allocate_producer_ids.handle",
        "ctx.authorize(AclOperation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME)",
    ),
    (
        "AlterClientQuotas",
        "alter_client_quotas.handle",
        "ctx.authorize(AclOperation.ALTER_CONFIGS, Resource.CLUSTER, CLUSTER_NAME)",
    ),
    (
        "AlterPartition",
        "alter_partition.handle",
        "ctx.authorize(AclOperation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME)",
    ),
    (
        "AlterPartitionReassignments",
        "alter_partition_reassignments.handle",
        "ctx.authorize(AclOperation.ALTER, Resource.CLUSTER, CLUSTER_NAME)",
    ),
    (
        "AlterReplicaLogDirs",
        "alter_replica_log_dirs.handle",
        "ctx.authorize(AclOperation.ALTER, Resource.CLUSTER, CLUSTER_NAME)",
    ),
    (
        "AlterUserScramCredentials",
        "alter_user_scram_credentials.handle",
        "ctx.authorize(AclOperation.ALTER, Resource.CLUSTER, CLUSTER_NAME)",
    ),
    (
        "AssignReplicasToDirs",
        "assign_replicas_to_dirs.handle",
        "ctx.authorize(AclOperation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME)",
    ),
    (
        "BrokerHeartbeat",
        "broker_heartbeat.handle",
        "ctx.authorize(AclOperation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME)",
    ),
    (
        "BrokerRegistration",
        "broker_registration.handle",
        "ctx.authorize(AclOperation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME)",
    ),
    (
        "DescribeCluster",
        "authorized_operations.authorized_operations",
        "ctx.authorize(operation, resource, name, log_if_denied=False)",
    ),
    (
        "DescribeCluster",
        "authorized_operations.cluster_operations",
        "ctx.authorize(AclOperation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME)",
    ),
    (
        "DescribeConfigs",
        "config_requests.refusal",
        "ctx.authorize(operation, resource, CLUSTER_NAME if resource == Resource.CLUSTER else name)",
    ),
    (
        "ConsumerGroupDescribe",
        "consumer_group_describe.handle",
        "ctx.authorize(AclOperation.DESCRIBE, Resource.GROUP, group_id)",
    ),
    (
        "ConsumerGroupDescribe",
        "consumer_group_describe._visible",
        "ctx.authorize(AclOperation.DESCRIBE, Resource.TOPIC, topic)",
    ),
    (
        "ConsumerGroupHeartbeat",
        "consumer_group_heartbeat.handle",
        "ctx.authorize(AclOperation.READ, Resource.GROUP, request.group_id)",
    ),
    (
        "ConsumerGroupHeartbeat",
        "consumer_group_heartbeat.handle",
        "ctx.authorize(AclOperation.DESCRIBE, Resource.TOPIC, topic)",
    ),
    (
        "ConsumerGroupHeartbeat with a regular expression",
        "consumer_group_heartbeat.handle.may_describe",
        "ctx.authorize(AclOperation.DESCRIBE, Resource.TOPIC, topic, log_if_denied=False)",
    ),
    (
        "CreateDelegationToken",
        "create_delegation_token._refusal",
        "ctx.authorize(AclOperation.CREATE_TOKENS, Resource.USER, owner)",
    ),
    ("CreatePartitions", "create_partitions.handle", "ctx.authorize(AclOperation.ALTER, Resource.TOPIC, topic.name)"),
    (
        "CreateTopics",
        "create_topics.handle",
        "ctx.authorize(AclOperation.CREATE, Resource.CLUSTER, CLUSTER_NAME, log_if_denied=False)",
    ),
    ("CreateTopics", "create_topics.handle", "ctx.authorize(AclOperation.CREATE, Resource.TOPIC, name)"),
    (
        "CreateTopics",
        "create_topics._result",
        "ctx.authorize(AclOperation.DESCRIBE_CONFIGS, Resource.TOPIC, creation.name, log_if_denied=False)",
    ),
    ("DeleteGroups", "delete_groups.handle", "ctx.authorize(AclOperation.DELETE, Resource.GROUP, group_id)"),
    ("DeleteRecords", "delete_records.handle", "ctx.authorize(AclOperation.DELETE, Resource.TOPIC, name)"),
    (
        "DeleteTopics",
        "delete_topics._delete",
        "ctx.authorize(AclOperation.DELETE, Resource.CLUSTER, CLUSTER_NAME, log_if_denied=False)",
    ),
    ("DeleteTopics", "delete_topics._unauthorized", "ctx.authorize(AclOperation.DESCRIBE, Resource.TOPIC, name)"),
    ("DeleteTopics", "delete_topics._unauthorized", "ctx.authorize(AclOperation.DELETE, Resource.TOPIC, name)"),
    ("DescribeAcls", "describe_acls.handle", "ctx.authorize(AclOperation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME)"),
    (
        "DescribeClientQuotas",
        "describe_client_quotas.handle",
        "ctx.authorize(AclOperation.DESCRIBE_CONFIGS, Resource.CLUSTER, CLUSTER_NAME)",
    ),
    (
        "DescribeDelegationToken",
        "describe_delegation_token._may_see",
        "ctx.authorize(AclOperation.DESCRIBE, Resource.DELEGATION_TOKEN, token.token_id, log_if_denied=False)",
    ),
    (
        "DescribeDelegationToken",
        "describe_delegation_token._may_see",
        "ctx.authorize(AclOperation.DESCRIBE_TOKENS, Resource.USER, token.owner, log_if_denied=False)",
    ),
    ("DescribeGroups", "describe_groups.handle", "ctx.authorize(AclOperation.DESCRIBE, Resource.GROUP, group_id)"),
    (
        "DescribeLogDirs",
        "describe_log_dirs.handle",
        "ctx.authorize(AclOperation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME)",
    ),
    ("DescribeProducers", "describe_producers._refusal", "ctx.authorize(AclOperation.READ, Resource.TOPIC, topic)"),
    (
        "DescribeQuorum",
        "describe_quorum.handle",
        "ctx.authorize(AclOperation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME)",
    ),
    (
        "DescribeTopicPartitions",
        "describe_topic_partitions.handle",
        "ctx.authorize(AclOperation.DESCRIBE, Resource.TOPIC, name)",
    ),
    (
        "DescribeTransactions",
        "describe_transactions.handle",
        "ctx.authorize(AclOperation.DESCRIBE, Resource.TRANSACTIONAL_ID, transactional_id)",
    ),
    (
        "DescribeTransactions",
        "describe_transactions.handle",
        "ctx.authorize(AclOperation.DESCRIBE, Resource.TOPIC, t.topic)",
    ),
    (
        "DescribeUserScramCredentials",
        "describe_user_scram_credentials.handle",
        "ctx.authorize(AclOperation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME)",
    ),
    ("ElectLeaders", "elect_leaders.handle", "ctx.authorize(AclOperation.ALTER, Resource.CLUSTER, CLUSTER_NAME)"),
    (
        "EndTxn",
        "end_txn.handle",
        "ctx.authorize(AclOperation.WRITE, Resource.TRANSACTIONAL_ID, request.transactional_id)",
    ),
    ("Envelope", "envelope._handle", "ctx.authorize(AclOperation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME)"),
    (
        "Fetch of a follower",
        "fetch.refusal_of_follower",
        "ctx.authorize(AclOperation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME)",
    ),
    ("Fetch", "fetch._permitted", "ctx.authorize(_READ, _TOPIC, fetched.topic)"),
    ("FindCoordinator", "find_coordinator._may_see", "ctx.authorize(AclOperation.DESCRIBE, kind.resource, key)"),
    ("Heartbeat", "heartbeat.handle", "ctx.authorize(AclOperation.READ, Resource.GROUP, request.group_id)"),
    (
        "InitProducerId",
        "init_producer_id.handle",
        "ctx.authorize(AclOperation.WRITE, Resource.TRANSACTIONAL_ID, transactional_id)",
    ),
    (
        "InitProducerId",
        "init_producer_id.handle",
        "ctx.authorize(AclOperation.IDEMPOTENT_WRITE, Resource.CLUSTER, CLUSTER_NAME, log_if_denied=False)",
    ),
    ("InitProducerId", "init_producer_id.handle", "ctx.authorize_by_resource_type(AclOperation.WRITE, Resource.TOPIC)"),
    ("JoinGroup", "join_group.handle", "ctx.authorize(AclOperation.READ, Resource.GROUP, request.group_id)"),
    ("LeaveGroup", "leave_group.handle", "ctx.authorize(AclOperation.READ, Resource.GROUP, request.group_id)"),
    (
        "ListConfigResources",
        "list_config_resources.handle",
        "ctx.authorize(AclOperation.DESCRIBE_CONFIGS, Resource.CLUSTER, CLUSTER_NAME)",
    ),
    (
        "ListGroups",
        "list_groups.handle",
        "ctx.authorize(AclOperation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME, log_if_denied=False)",
    ),
    (
        "ListGroups",
        "list_groups.handle",
        "ctx.authorize(AclOperation.DESCRIBE, Resource.GROUP, group.group_id, log_if_denied=False)",
    ),
    ("ListOffsets", "list_offsets.handle", "ctx.authorize(AclOperation.DESCRIBE, Resource.TOPIC, topic.name)"),
    (
        "ListPartitionReassignments",
        "list_partition_reassignments.handle",
        "ctx.authorize(AclOperation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME)",
    ),
    (
        "ListTransactions",
        "list_transactions.handle",
        "ctx.authorize(AclOperation.DESCRIBE, Resource.TRANSACTIONAL_ID, state.transactional_id)",
    ),
    (
        "Metadata",
        "metadata._answer_by_name",
        "ctx.authorize(AclOperation.CREATE, Resource.CLUSTER, CLUSTER_NAME, log_if_denied=False)",
    ),
    ("Metadata", "metadata._answer_by_name", "ctx.authorize(AclOperation.CREATE, Resource.TOPIC, name)"),
    (
        "Metadata",
        "metadata._may_see",
        "ctx.authorize(AclOperation.DESCRIBE, Resource.TOPIC, name, log_if_denied=is_named)",
    ),
    ("OffsetCommit", "offset_commit._refusal_of_group", "ctx.authorize(AclOperation.READ, Resource.GROUP, group_id)"),
    ("OffsetCommit", "offset_commit._refusal_of_topic", "ctx.authorize(AclOperation.READ, Resource.TOPIC, name)"),
    ("OffsetDelete", "offset_delete.handle", "ctx.authorize(AclOperation.DELETE, Resource.GROUP, request.group_id)"),
    ("OffsetDelete", "offset_delete._split", "ctx.authorize(AclOperation.READ, Resource.TOPIC, topic.name)"),
    (
        "OffsetFetch",
        "offset_fetch._fetch_group",
        "ctx.authorize(AclOperation.DESCRIBE, Resource.GROUP, group.group_id)",
    ),
    ("OffsetFetch", "offset_fetch._refuse", "ctx.authorize(AclOperation.DESCRIBE, Resource.TOPIC, topic.name)"),
    ("OffsetFetch", "offset_fetch._visible", "ctx.authorize(AclOperation.DESCRIBE, Resource.TOPIC, topic.name)"),
    (
        "OffsetForLeaderEpoch",
        "offset_for_leader_epoch.handle",
        "ctx.authorize(AclOperation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME, log_if_denied=False)",
    ),
    (
        "OffsetForLeaderEpoch",
        "offset_for_leader_epoch.handle",
        "ctx.authorize(AclOperation.DESCRIBE, Resource.TOPIC, topic.topic)",
    ),
    (
        "Produce",
        "produce._refusal_of_transaction",
        "ctx.authorize(AclOperation.WRITE, Resource.TRANSACTIONAL_ID, transactional_id)",
    ),
    ("Produce again", "produce._refusal_of_topic", "ctx.authorize(_WRITE, _TOPIC, name)"),
    ("SyncGroup", "sync_group.handle", "ctx.authorize(AclOperation.READ, Resource.GROUP, request.group_id)"),
    (
        "TxnOffsetCommit",
        "txn_offset_commit._commit",
        "ctx.authorize(AclOperation.WRITE, Resource.TRANSACTIONAL_ID, request.transactional_id)",
    ),
    (
        "TxnOffsetCommit",
        "txn_offset_commit._commit",
        "ctx.authorize(AclOperation.READ, Resource.GROUP, request.group_id)",
    ),
    (
        "TxnOffsetCommit",
        "txn_offset_commit._accept",
        "ctx.authorize(AclOperation.READ, Resource.TOPIC, topic.name if known is None else known.name)",
    ),
    (
        "UnregisterBroker",
        "unregister_broker.handle",
        "ctx.authorize(AclOperation.ALTER, Resource.CLUSTER, CLUSTER_NAME)",
    ),
    (
        "UnregisterController",
        "unregister_controller.handle",
        "ctx.authorize(AclOperation.ALTER, Resource.CLUSTER, CLUSTER_NAME)",
    ),
    ("UpdateFeatures", "update_features.handle", "ctx.authorize(AclOperation.ALTER, Resource.CLUSTER, CLUSTER_NAME)"),
    (
        "WriteTxnMarkers",
        "write_txn_markers.handle",
        "ctx.authorize(AclOperation.ALTER, Resource.CLUSTER, CLUSTER_NAME, log_if_denied=False)",
    ),
    (
        "WriteTxnMarkers",
        "write_txn_markers.handle",
        "ctx.authorize(AclOperation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME)",
    ),
)


def _mutants() -> Iterator[Mutant]:
    for api, place, question in _QUESTIONS:
        words = [word.lower() for word in _WORDS.findall(question)]
        name = re.sub("[^a-z]+", "-", " ".join((place, "asks-nobody", *words)))
        test = _NOTICES.get(api, f"{_TABLE}[{api}]")
        trap = f"{api}: whoever lacks a permission is taken for permitted."
        yield Mutant(name, trap, (Edit(place, question, "True"),), (test,))


_STRANGERS: Final = "tests/net/test_broker_login.py"

MUTANTS: Final = (
    *_mutants(),
    # Kafka asks for no permission there: a token's owner and its renewers change it, nobody else.
    *(
        Mutant(
            f"{change}-token-of-anybody",
            f"Whoever knows a delegation token's HMAC may {change} it, whosever it is.",
            (Edit(f"delegation_tokens.{change}_token", "not token.may_be_renewed_by(principal)", "False"),),
            (f"{_TOKENS}::test_renewers_renew_and_end_a_token",),
        )
        for change in ("renew", "expire")
    ),
    Mutant(
        "what-brokers-ask-served-to-strangers",
        "Whoever comes by the listener of brokers is served what brokers ask, without the proof of being one.",
        (
            Edit(
                "Processor._serves_brokers",
                "is_broker and listener == self.services.inter_broker_listener",
                "listener == self.services.inter_broker_listener",
            ),
        ),
        (f"{_STRANGERS}::test_a_stranger_that_asks_what_brokers_ask_loses_its_connection",),
    ),
    Mutant(
        "every-login-is-of-a-broker",
        "Whoever has logged in by the listener of brokers is taken for one, by whatever mechanism.",
        (Edit("Login._complete", "started.is_of_brokers", "True"),),
        (f"{_STRANGERS}::test_a_user_who_has_logged_in_by_the_listener_of_brokers_is_none",),
    ),
    Mutant(
        "follower-without-proof",
        "Whoever fetches as a replica is believed, without the proof of being a broker.",
        (Edit("fetch.refusal_of_follower", "not ctx.connection.is_broker", "False"),),
        (f"{_STRANGERS}::test_a_stranger_that_fetches_as_a_replica_moves_nothing",),
    ),
)
