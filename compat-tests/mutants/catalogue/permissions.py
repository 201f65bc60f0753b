"""Permissions that nobody is asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from mutants.mutant import Edit, Mutant

_TABLE: Final = "test_permissions.py::test_who_lacks_a_permission_is_refused"
_PRODUCE: Final = "test_permissions.py::test_who_may_not_write_produces_nothing"
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
        "ConsumerGroupHeartbeat",
        "consumer_group_heartbeat.handle",
        "ctx.authorize(AclOperation.READ, Resource.GROUP, request.group_id)",
    ),
    (
        "ConsumerGroupHeartbeat",
        "consumer_group_heartbeat.handle",
        "ctx.authorize(AclOperation.DESCRIBE, Resource.TOPIC, topic)",
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
    ("ElectLeaders", "elect_leaders.handle", "ctx.authorize(AclOperation.ALTER, Resource.CLUSTER, CLUSTER_NAME)"),
    (
        "EndTxn",
        "end_txn.handle",
        "ctx.authorize(AclOperation.WRITE, Resource.TRANSACTIONAL_ID, request.transactional_id)",
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
    ("ListOffsets", "list_offsets.handle", "ctx.authorize(AclOperation.DESCRIBE, Resource.TOPIC, topic.name)"),
    (
        "ListPartitionReassignments",
        "list_partition_reassignments.handle",
        "ctx.authorize(AclOperation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME)",
    ),
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
    ("Produce", "produce._refusal_of_topic", "ctx.authorize(_WRITE, _TOPIC, name)"),
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
    ("TxnOffsetCommit", "txn_offset_commit._accept", "ctx.authorize(AclOperation.READ, Resource.TOPIC, topic.name)"),
    (
        "UnregisterBroker",
        "unregister_broker.handle",
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
        test = _PRODUCE if api == "Produce" else f"{_TABLE}[{api}]"
        trap = f"{api}: whoever lacks a permission is taken for permitted."
        yield Mutant(name, trap, (Edit(place, question, "True"),), (test,))


MUTANTS: Final = tuple(_mutants())
