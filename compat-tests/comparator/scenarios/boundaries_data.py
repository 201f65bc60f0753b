"""The ends of every field of the data plane's requests, of Metadata's, and of what every client asks first."""

from __future__ import annotations

from typing import Any

from harness.batches import batch

from comparator.boundaries import vary
from comparator.broker import Broker
from comparator.encoding import Tree
from comparator.registry import scenario
from comparator.scenarios.fetch import prepare_log
from comparator.scenarios.produce import idempotent_producer

TIMEOUT_MS = 10_000


@scenario
def produce(broker: Broker) -> None:
    topic_id = broker.prepare_topic("ends-produce")

    def ordinary(_version: int, _name: str) -> Tree:
        data = {"name": "ends-produce", "topic_id": topic_id, "partition_data": [{"index": 0, "records": batch(b"v")}]}
        return {"transactional_id": None, "acks": -1, "timeout_ms": TIMEOUT_MS, "topic_data": [data]}

    left_out = {
        "acks: 0": "it has no reply; produce.acks_0_is_not_answered asks so",
        "*records: null": "produce.null_records_are_not_answered asks so",
        "topic_data*: twice": "it moves the offsets; produce.one_partition_twice asks so",
    }
    vary(broker, "Produce", ordinary, leave_out=left_out)


@scenario
def fetch(broker: Broker) -> None:
    topic_id = prepare_log(broker, "ends-fetch")

    def ordinary(_version: int, _name: str) -> Tree:
        partition = {"partition": 0, "fetch_offset": 3, "partition_max_bytes": 1 << 20}
        topics = [{"topic": "ends-fetch", "topic_id": topic_id, "partitions": [partition]}]
        forgotten = [{"topic": "ends-fetch", "topic_id": topic_id, "partitions": [0]}]
        limits = {"max_wait_ms": 20, "min_bytes": 1, "max_bytes": 1 << 20}
        return {**limits, "topics": topics, "forgotten_topics_data": forgotten}

    vary(broker, "Fetch", ordinary)


@scenario
def list_offsets(broker: Broker) -> None:
    prepare_log(broker, "ends-offsets")

    def ordinary(_version: int, _name: str) -> Tree:
        partitions = [{"partition_index": 0, "timestamp": -1}]
        topics = [{"name": "ends-offsets", "partitions": partitions}]
        return {"replica_id": -1, "topics": topics, "timeout_ms": TIMEOUT_MS}

    vary(broker, "ListOffsets", ordinary)


@scenario
def offset_for_leader_epoch(broker: Broker) -> None:
    prepare_log(broker, "ends-epochs")

    def ordinary(_version: int, _name: str) -> Tree:
        partitions = [{"partition": 0, "leader_epoch": 0}]
        return {"replica_id": -1, "topics": [{"topic": "ends-epochs", "partitions": partitions}]}

    vary(broker, "OffsetForLeaderEpoch", ordinary)


@scenario
def metadata(broker: Broker) -> None:
    broker.prepare_topic("ends-metadata", partitions=2)

    def ordinary(_version: int, _name: str) -> Tree:
        return {"topics": [{"name": "ends-metadata"}], "allow_auto_topic_creation": False}

    def of_this_scenario(reply: Tree) -> Tree:
        return {**reply, "topics": [topic for topic in reply["topics"] if _is_of(topic["name"], "ends-metadata")]}

    left_out = {"topics[0].name: unknown": "versions before 4 create it, and answer as soon or as late as they do"}
    vary(broker, "Metadata", ordinary, leave_out=left_out, narrow=of_this_scenario)


def _is_of(name: str | None, prefix: str) -> bool:
    """Whether a topic is the scenario's own, or none at all."""
    return not name or name.startswith(prefix)


@scenario
def describe_topic_partitions(broker: Broker) -> None:
    broker.prepare_topic("ends-partitions", partitions=2)

    def ordinary(_version: int, _name: str) -> Tree:
        cursor = {"topic_name": "ends-partitions", "partition_index": 1}
        return {"topics": [{"name": "ends-partitions"}], "response_partition_limit": 10, "cursor": cursor}

    def of_this_scenario(reply: Tree) -> Tree:
        return {**reply, "topics": [topic for topic in reply["topics"] if _is_of(topic["name"], "ends-partitions")]}

    left_out = {"topics: empty": "every topic that any scenario has left behind, up to the limit"}
    vary(broker, "DescribeTopicPartitions", ordinary, leave_out=left_out, narrow=of_this_scenario)


@scenario
def describe_cluster(broker: Broker) -> None:
    vary(broker, "DescribeCluster", lambda _version, _name: {})


@scenario
def api_versions(broker: Broker) -> None:
    def ordinary(_version: int, _name: str) -> Tree:
        return {"client_software_name": "comparator", "client_software_version": "1.0"}

    vary(broker, "ApiVersions", ordinary)


@scenario
def delete_records(broker: Broker) -> None:
    prepare_log(broker, "ends-trimmed")

    def ordinary(_version: int, _name: str) -> Tree:
        partitions = [{"partition_index": 0, "offset": 3}]
        return {"topics": [{"name": "ends-trimmed", "partitions": partitions}], "timeout_ms": TIMEOUT_MS}

    vary(broker, "DeleteRecords", ordinary)


@scenario
def describe_producers(broker: Broker) -> None:
    broker.prepare_topic("ends-producers")
    producer_id, epoch = idempotent_producer(broker)
    records = batch(b"v", producer_id=producer_id, producer_epoch=epoch, base_sequence=0)
    data = [{"name": "ends-producers", "partition_data": [{"index": 0, "records": records}]}]
    broker.quietly("Produce", 9, acks=-1, timeout_ms=TIMEOUT_MS, topic_data=data)

    def ordinary(_version: int, _name: str) -> Tree:
        return {"topics": [{"name": "ends-producers", "partition_indexes": [0]}]}

    vary(broker, "DescribeProducers", ordinary)


@scenario
def describe_log_dirs(broker: Broker) -> None:
    prepare_log(broker, "ends-sized")

    def ordinary(_version: int, _name: str) -> Tree:
        return {"topics": [{"topic": "ends-sized", "partitions": [0]}]}

    def of_this_scenario(reply: Tree) -> Tree:
        def narrowed(directory: dict[str, Any]) -> dict[str, Any]:
            return {**directory, "topics": [each for each in directory["topics"] if each["name"] == "ends-sized"]}

        return {**reply, "results": [narrowed(directory) for directory in reply["results"]]}

    vary(broker, "DescribeLogDirs", ordinary, narrow=of_this_scenario)


@scenario
def telemetry(broker: Broker) -> None:
    def subscribed() -> Tree:
        return broker.quietly("GetTelemetrySubscriptions", 0)

    def ordinary(_version: int, _name: str) -> Tree:
        known = subscribed()
        fields = {"client_instance_id": known["client_instance_id"], "subscription_id": known["subscription_id"]}
        return {**fields, "terminating": False, "compression_type": 0, "metrics": b""}

    vary(broker, "GetTelemetrySubscriptions", lambda _version, _name: {})
    vary(broker, "PushTelemetry", ordinary)
