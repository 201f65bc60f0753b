"""What each broker tells of the cluster: its brokers, topics with replicas, and who coordinates what."""

from __future__ import annotations

from comparator.cluster import Cluster
from comparator.registry import cluster_scenario

GROUP, TRANSACTION = 0, 1
BROKERS, CONTROLLERS = 1, 2


@cluster_scenario
def brokers_are_told_by_each(cluster: Cluster) -> None:
    for version in cluster.versions("Metadata"):
        cluster.call(1, "Metadata", version, "brokers", topics=[] if version else [{"name": "nobody"}])
    cluster.call_each("Metadata", 12, "brokers", topics=[])
    for version in cluster.versions("DescribeCluster"):
        cluster.call_each("DescribeCluster", version, "brokers", endpoint_type=BROKERS)
    cluster.call_each("DescribeCluster", 1, "controllers", endpoint_type=CONTROLLERS)
    cluster.call_each("DescribeCluster", 2, "with fenced ones", endpoint_type=BROKERS, include_fenced_brokers=True)


@cluster_scenario
def the_quorum_is_told_by_each(cluster: Cluster) -> None:
    """Who leads it, and how far each is, is anybody's: its members are the brokers, of whom one leads."""
    asked = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    for version in cluster.versions("DescribeQuorum"):
        for broker_id in cluster.ids:
            (topic,) = cluster.brokers[broker_id].quietly("DescribeQuorum", version, topics=asked)["topics"]
            (partition,) = topic["partitions"]
            voters = sorted(each["replica_id"] for each in partition["current_voters"])
            cluster.note(f"voters, by {broker_id}, v{version}", voters)
            cluster.note(f"its leader is one, by {broker_id}, v{version}", partition["leader_id"] in voters)


@cluster_scenario
def topics_with_replicas_are_told_by_each(cluster: Cluster) -> None:
    cluster.prepare_topic("told", [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    cluster.prepare_topic("told-less", [[3], [1]])
    names = [{"name": "told"}, {"name": "told-less"}]
    for version in cluster.versions("Metadata"):
        cluster.call(2, "Metadata", version, "topics", topics=names, allow_auto_topic_creation=False)
    cluster.call_each("Metadata", 12, "topics", topics=names, allow_auto_topic_creation=False)
    cluster.call_each("DescribeTopicPartitions", 0, "topics", topics=names)
    cluster.call_each("DescribeTopicPartitions", 0, "in parts", topics=names, response_partition_limit=2)


@cluster_scenario
def coordinators_are_found_from_each(cluster: Cluster) -> None:
    cluster.prepare_coordinators()
    for kind, name in ((GROUP, "group"), (TRANSACTION, "transaction")):
        for version in range(1 if kind else 0, 4):
            cluster.call_each("FindCoordinator", version, f"a {name}", key=f"some-{name}", key_type=kind)
        for version in range(4, cluster.versions("FindCoordinator").stop):
            keys = [f"{name}-{number}" for number in range(6)]
            cluster.call_each("FindCoordinator", version, f"{name}s", coordinator_keys=keys, key_type=kind)
    cluster.call_each("FindCoordinator", 4, "of no kind", coordinator_keys=["k"], key_type=7)


@cluster_scenario
def settings_of_a_broker_are_its_own_to_tell(cluster: Cluster) -> None:
    for broker_id in (2, 9):
        for kind in (4, 8):  # a broker, and its loggers
            asked = [
                {"resource_type": kind, "resource_name": str(broker_id), "configuration_keys": ["node.id", "root"]}
            ]
            cluster.call_each("DescribeConfigs", 4, f"kind {kind} of {broker_id}", resources=asked)
    changed = [{"name": "log.cleaner.threads", "config_operation": 0, "value": "2"}]
    for broker_id in (2, 9):
        wanted = [{"resource_type": 4, "resource_name": str(broker_id), "configs": changed}]
        cluster.call_each("IncrementalAlterConfigs", 1, f"of {broker_id}", resources=wanted, validate_only=True)
        settings = [{"name": "log.cleaner.threads", "value": "2"}]
        replaced = [{"resource_type": 4, "resource_name": str(broker_id), "configs": settings}]
        cluster.call_each("AlterConfigs", 2, f"of {broker_id}", resources=replaced, validate_only=True)
