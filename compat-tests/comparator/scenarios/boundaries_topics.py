"""The ends of every field of the requests that make, change and describe topics and settings."""

from __future__ import annotations

from comparator.boundaries import vary
from comparator.broker import Broker
from comparator.encoding import Tree
from comparator.registry import scenario

TIMEOUT_MS = 10_000
TOPIC, GROUP = 2, 32
A_MATTER_OF_TIMING = {"timeout_ms: *": "how far a controller gets in next to no time is a matter of timing"}


@scenario
def create_topics(broker: Broker) -> None:
    def ordinary(_version: int, name: str) -> Tree:
        configs = [{"name": "retention.ms", "value": "60000"}]
        topic = {"name": name, "num_partitions": 1, "replication_factor": 1, "configs": configs}
        return {"topics": [topic], "timeout_ms": TIMEOUT_MS, "validate_only": True}

    vary(broker, "CreateTopics", ordinary, leave_out=A_MATTER_OF_TIMING)


@scenario
def create_topics_where_they_should_lie(broker: Broker) -> None:
    def ordinary(_version: int, name: str) -> Tree:
        assignments = [{"partition_index": 0, "broker_ids": [1]}]
        topic = {"name": name, "num_partitions": -1, "replication_factor": -1, "assignments": assignments}
        return {"topics": [topic], "timeout_ms": TIMEOUT_MS, "validate_only": True}

    vary(broker, "CreateTopics", ordinary, label="assigned", leave_out=A_MATTER_OF_TIMING)


@scenario
def delete_topics(broker: Broker) -> None:
    def ordinary(version: int, name: str) -> Tree:
        topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
        broker.quietly("CreateTopics", 7, topics=[topic], timeout_ms=TIMEOUT_MS)
        return {"topics": [{"name": name}], "topic_names": [name], "timeout_ms": TIMEOUT_MS}

    vary(broker, "DeleteTopics", ordinary, leave_out=A_MATTER_OF_TIMING)


@scenario
def create_partitions(broker: Broker) -> None:
    broker.prepare_topic("ends-grow")
    memory = {"topics[0].count: max": "Kafka's controller lists every one of the partitions in its memory first"}

    def ordinary(assignments: Tree) -> Tree:
        topic = {"name": "ends-grow", "count": 2, "assignments": assignments}
        return {"topics": [topic], "timeout_ms": TIMEOUT_MS, "validate_only": True}

    left_out = {**A_MATTER_OF_TIMING, **memory, "validate_only: false": "the topic would grow"}
    vary(broker, "CreatePartitions", lambda _version, _name: ordinary(None), leave_out=left_out)
    vary(
        broker,
        "CreatePartitions",
        lambda _version, _name: ordinary([{"broker_ids": [1]}]),
        label="assigned",
        leave_out=left_out,
    )


@scenario
def describe_configs(broker: Broker) -> None:
    broker.prepare_topic("ends-described")

    def ordinary(_version: int, _name: str) -> Tree:
        resource = {"resource_type": TOPIC, "resource_name": "ends-described", "configuration_keys": ["retention.ms"]}
        return {"resources": [resource]}

    left_out = {"include_documentation: true": "the words are pybroker's own; configs.describe_documentation asks so"}
    vary(broker, "DescribeConfigs", ordinary, leave_out=left_out)


@scenario
def alter_configs(broker: Broker) -> None:
    broker.prepare_topic("ends-altered")

    def ordinary(_version: int, _name: str) -> Tree:
        configs = [{"name": "segment.ms", "value": "1000000"}]
        resource = {"resource_type": TOPIC, "resource_name": "ends-altered", "configs": configs}
        return {"resources": [resource], "validate_only": True}

    left_out = {"resources: twice": "Kafka never answers; configs.replacing_one_resource_twice asks so"}
    vary(broker, "AlterConfigs", ordinary, leave_out=left_out)


@scenario
def incremental_alter_configs(broker: Broker) -> None:
    broker.prepare_topic("ends-altered-again")

    def ordinary(_version: int, _name: str) -> Tree:
        configs = [{"name": "segment.ms", "config_operation": 0, "value": "1000000"}]
        resource = {"resource_type": TOPIC, "resource_name": "ends-altered-again", "configs": configs}
        return {"resources": [resource], "validate_only": True}

    vary(broker, "IncrementalAlterConfigs", ordinary)


@scenario
def list_config_resources(broker: Broker) -> None:
    broker.prepare_topic("ends-listed")

    def of_this_scenario(reply: Tree) -> Tree:
        found = [each for each in reply["config_resources"] if each["resource_name"] == "ends-listed"]
        return {**reply, "config_resources": found}

    vary(broker, "ListConfigResources", lambda _version, _name: {"resource_types": [TOPIC]}, narrow=of_this_scenario)


@scenario
def update_features(broker: Broker) -> None:
    def ordinary(_version: int, _name: str) -> Tree:
        update = {"feature": "group.version", "max_version_level": 1, "upgrade_type": 1, "allow_downgrade": False}
        return {"timeout_ms": TIMEOUT_MS, "feature_updates": [update], "validate_only": True}

    vary(broker, "UpdateFeatures", ordinary, leave_out=A_MATTER_OF_TIMING)


@scenario
def elect_leaders(broker: Broker) -> None:
    broker.prepare_topic("ends-elected")

    def ordinary(_version: int, _name: str) -> Tree:
        return {"topic_partitions": [{"topic": "ends-elected", "partitions": [0]}], "timeout_ms": TIMEOUT_MS}

    def of_this_scenario(reply: Tree) -> Tree:
        found = [each for each in reply["replica_election_results"] if each["topic"] == "ends-elected"]
        return {**reply, "replica_election_results": found}

    vary(broker, "ElectLeaders", ordinary, leave_out=A_MATTER_OF_TIMING, narrow=of_this_scenario)


@scenario
def alter_partition_reassignments(broker: Broker) -> None:
    broker.prepare_topic("ends-moved")

    def ordinary(_version: int, _name: str) -> Tree:
        partition = {"partition_index": 0, "replicas": [1]}
        return {"topics": [{"name": "ends-moved", "partitions": [partition]}], "timeout_ms": TIMEOUT_MS}

    vary(broker, "AlterPartitionReassignments", ordinary, leave_out=A_MATTER_OF_TIMING)


@scenario
def list_partition_reassignments(broker: Broker) -> None:
    broker.prepare_topic("ends-of-moved")

    def ordinary(_version: int, _name: str) -> Tree:
        return {"topics": [{"name": "ends-of-moved", "partition_indexes": [0]}], "timeout_ms": TIMEOUT_MS}

    vary(broker, "ListPartitionReassignments", ordinary, leave_out=A_MATTER_OF_TIMING)


@scenario
def alter_client_quotas(broker: Broker) -> None:
    def ordinary(_version: int, name: str) -> Tree:
        operations = [{"key": "producer_byte_rate", "value": 1000.0, "remove": False}]
        entity = [{"entity_type": "client-id", "entity_name": name}]
        return {"entries": [{"entity": entity, "ops": operations}], "validate_only": True}

    vary(broker, "AlterClientQuotas", ordinary, leave_out={"validate_only: false": "the quota would stay"})


@scenario
def describe_client_quotas(broker: Broker) -> None:
    def ordinary(_version: int, name: str) -> Tree:
        return {"components": [{"entity_type": "client-id", "match_type": 0, "match": name}], "strict": True}

    vary(broker, "DescribeClientQuotas", ordinary, in_vain=("components[0].entity_type: longest",))
