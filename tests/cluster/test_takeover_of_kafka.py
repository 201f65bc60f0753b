"""pybroker on the data directory of a real Apache Kafka, stopped cleanly and killed."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from harness.apache_kafka import CLUSTER_ID, CONFIG_COMMAND, ApacheKafka, run_kafka_tool
from harness.pybroker_cluster import PybrokerCluster
from harness.pybroker_process import PybrokerProcess
from harness.waiting import PATIENCE_S, wait_until
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from pybroker.cluster.store import store_codec
from pybroker.cluster.store.sqlite.sqlite_store import FILE_NAME
from pybroker_protocol.data_records import decode_metadata_record
from pybroker_protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from pybroker_protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from pybroker_protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from pybroker_protocol.messages.delete_topics import DeleteTopicsRequest
from pybroker_protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from pybroker_protocol.messages.describe_cluster import DescribeClusterRequest
from pybroker_protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pybroker_protocol.messages.init_producer_id import InitProducerIdRequest
from pybroker_protocol.messages.metadata import MetadataRequest
from tests.broker.wire_client import WireClient

pytestmark = pytest.mark.jvm

# Kafka preallocates its indexes; small ones keep the directory small.
PROPERTIES = {"offsets.topic.num.partitions": "3", "log.index.size.max.bytes": "4096"}
RECORDS = 200
TOPIC_RESOURCE = 2


def topic(name: str, partitions: int, **configs: str) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        assignments=[],
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


def use(kafka: ApacheKafka) -> None:
    """Topics that stay, change and go; records, a group's offsets, a quota, idempotent producers."""
    with WireClient((kafka.host, kafka.port)) as wire:
        topics = [topic("kept", 3, retention_ms="-1"), topic("grown", 1), topic("gone", 1)]
        wire.ask(CreateTopicsRequest(topics=topics, timeout_ms=10_000, validate_only=False), 7)
        growth = CreatePartitionsTopic(name="grown", count=2, assignments=None)
        wire.ask(CreatePartitionsRequest(topics=[growth], timeout_ms=10_000, validate_only=False), 3)
        wire.ask(DeleteTopicsRequest(topics=[], topic_names=["gone"], timeout_ms=10_000), 5)
    with KafkaProducer(bootstrap_servers=kafka.bootstrap) as producer:
        for number in range(RECORDS):
            producer.send("kept", b"%d" % number, partition=number % 3)
        producer.flush(PATIENCE_S)
    with KafkaConsumer("kept", bootstrap_servers=kafka.bootstrap, group_id="g", auto_offset_reset="earliest") as reader:
        read_all(reader)
        reader.commit()
    quota = ["--alter", "--add-config", "producer_byte_rate=1024", "--entity-type", "clients", "--entity-name", "c"]
    run_kafka_tool(CONFIG_COMMAND, "--bootstrap-server", kafka.bootstrap, *quota)


def read_all(consumer: KafkaConsumer) -> set[bytes]:
    seen: set[bytes] = set()
    for _ in range(60):
        for records in consumer.poll(500).values():
            seen.update(record.value for record in records)
        if len(seen) == RECORDS:
            break
    return seen


def described(wire: WireClient) -> dict[str, Any]:
    """What clients see of the cluster, as far as a takeover must keep it."""
    request = MetadataRequest(topics=None, include_cluster_authorized_operations=False)
    metadata = wire.ask(request, 12)
    cluster = wire.ask(DescribeClusterRequest(include_cluster_authorized_operations=False), 1)
    resource = DescribeConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name="kept", configuration_keys=["retention.ms"]
    )
    configs = wire.ask(DescribeConfigsRequest(resources=[resource], include_synonyms=False), 4)
    return {
        "cluster": (cluster.cluster_id, [broker.broker_id for broker in cluster.brokers]),
        "topics": {
            each.name: (each.topic_id, [(row.partition_index, row.leader_id) for row in each.partitions])
            for each in metadata.topics
        },
        "retention.ms": [(entry.value, entry.config_source) for entry in configs.results[0].configs],
        "quotas": [
            ([(part.entity_type, part.entity_name) for part in entry.entity], entry.values)
            for entry in wire.ask(DescribeClientQuotasRequest(components=[], strict=False), 1).entries
        ],
    }


def producer_id(wire: WireClient) -> int:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    allocated: int = wire.ask(request, 4).producer_id
    return allocated


@pytest.mark.parametrize("end", ["clean", "killed"])
def test_cluster_of_kafka_goes_on_as_it_was(tmp_path: Path, end: str) -> None:
    kafka = ApacheKafka(tmp_path, properties=PROPERTIES, heap_mb=256)
    kafka.start()
    try:
        use(kafka)
        with WireClient((kafka.host, kafka.port)) as wire:
            before, last_producer_id = described(wire), producer_id(wire)
        if end == "clean":
            kafka.stop()
    finally:
        kafka.kill()
    metadata_log = next((tmp_path / "data" / "__cluster_metadata-0").glob("*.log"))
    log_before = metadata_log.read_bytes()

    broker = PybrokerProcess(tmp_path)
    broker.start()
    try:
        with WireClient((broker.host, broker.port)) as wire:
            assert described(wire) == before
            assert producer_id(wire) > last_producer_id
        partitions = [TopicPartition("kept", index) for index in range(3)]
        with KafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign(partitions)
            assert read_all(consumer) == {b"%d" % number for number in range(RECORDS)}
        with KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id="g") as member:
            assert sum(member.committed(partition) or 0 for partition in partitions) == RECORDS
        with KafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
            assert producer.send("kept", b"more", partition=0).get(PATIENCE_S).offset == len(range(0, RECORDS, 3))
        broker.stop()
    finally:
        broker.kill()

    assert before["cluster"] == (CLUSTER_ID, [1])
    assert len(before["quotas"]) == 1
    assert metadata_log.read_bytes() == log_before
    assert "FeatureLevelRecord" in retained_kinds(tmp_path / "data" / FILE_NAME)


def test_broker_on_the_directory_of_kafka_is_joined_by_two_more(tmp_path: Path) -> None:
    """Its partitions get replicas on them, and outlive the broker that had them from Kafka."""
    cluster = PybrokerCluster(tmp_path / "cluster", {"pybroker.metadata.session.timeout.ms": "2000"})
    first = cluster.brokers[0]
    with ApacheKafka(first.directory, properties=PROPERTIES, heap_mb=256) as kafka:
        use(kafka)
        with WireClient((kafka.host, kafka.port)) as wire:
            before = described(wire)
    cluster.start_one(0)  # whoever is the first founds the cluster on what it has
    with cluster:
        with WireClient((first.host, first.port)) as wire:
            after = described(wire)
            assert after["topics"] == before["topics"]
            assert after["retention.ms"] == before["retention.ms"]
            assert after["cluster"] == (CLUSTER_ID, [1, 2, 3])
            replicate_everything(wire)
        cluster.kill(0)
        cluster.wait_until_known_dead()
        bootstrap = cluster.brokers[1].bootstrap
        partitions = [TopicPartition("kept", index) for index in range(3)]
        with KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign(partitions)
            assert read_all(consumer) == {b"%d" % number for number in range(RECORDS)}
        with KafkaConsumer(bootstrap_servers=bootstrap, group_id="g") as member:
            assert sum(member.committed(partition) or 0 for partition in partitions) == RECORDS
        with KafkaProducer(bootstrap_servers=bootstrap) as producer:
            assert producer.send("kept", b"more", partition=0).get(PATIENCE_S).offset == len(range(0, RECORDS, 3))


def replicate_everything(wire: WireClient) -> None:
    """A replica of each partition on each of three brokers, in sync when this returns."""

    def told() -> list[Any]:
        topics: list[Any] = wire.ask(MetadataRequest(topics=None), 9).topics
        return topics

    wanted = [
        ReassignableTopic(
            name=each.name,
            partitions=[
                ReassignablePartition(partition_index=row.partition_index, replicas=[1, 2, 3])
                for row in each.partitions
            ],
        )
        for each in told()
    ]
    moved = wire.ask(AlterPartitionReassignmentsRequest(topics=wanted), 0)
    assert {row.error_code for each in moved.responses for row in each.partitions} == {0}
    wait_until(
        lambda: all(sorted(row.isr_nodes) == [1, 2, 3] for each in told() for row in each.partitions),
        "replicas in sync on all brokers",
    )


def retained_kinds(store: Path) -> set[str]:
    connection = sqlite3.connect(store)
    rows = connection.execute("SELECT value FROM entries WHERE key LIKE ?", (store_codec.RETAINED + "%",)).fetchall()
    connection.close()
    return {type(decode_metadata_record(value)[0]).__name__ for (value,) in rows}


def test_log_dir_of_kafka_that_is_left_out_keeps_its_partitions_offline(tmp_path: Path) -> None:
    first, second = tmp_path / "data", tmp_path / "second"
    kafka = ApacheKafka(tmp_path, {"log.dirs": f"{first},{second}", "metadata.log.dir": str(first)}, heap_mb=256)
    kafka.start()
    try:
        with WireClient((kafka.host, kafka.port)) as wire:
            wire.ask(CreateTopicsRequest(topics=[topic("t", 2)], timeout_ms=10_000, validate_only=False), 7)
        with KafkaProducer(bootstrap_servers=kafka.bootstrap) as producer:
            assert [producer.send("t", b"v", partition=index).get(PATIENCE_S).offset for index in range(2)] == [0, 0]
        kafka.stop()
    finally:
        kafka.kill()
    lost = [int(path.name[-1]) for path in second.glob("t-?")]
    assert len(lost) == 1
    for log_dirs, online in ((str(first), {0, 1} - set(lost)), (f"{first},{second}", {0, 1})):
        broker = PybrokerProcess(tmp_path)
        broker.data_directory = Path(log_dirs)
        broker.start()
        try:
            with WireClient((broker.host, broker.port)) as wire:
                (found,) = wire.ask(MetadataRequest(topics=None), 9).topics
                assert {row.partition_index for row in found.partitions if row.leader_id == 1} == online
                ends = [
                    wire.fetch("t", 0, partition=index).responses[0].partitions[0].high_watermark for index in (0, 1)
                ]
                assert ends == [1 if index in online else -1 for index in (0, 1)]
            broker.stop()
        finally:
            broker.kill()
