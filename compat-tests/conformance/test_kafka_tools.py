"""Kafka's own Java command-line tools against the run's broker."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from harness.apache_kafka import (
    BROKER_API_VERSIONS_COMMAND,
    CLUSTER_TOOL,
    CONFIG_COMMAND,
    CONSOLE_CONSUMER,
    CONSOLE_PRODUCER,
    CONSUMER_GROUP_COMMAND,
    CONSUMER_PERFORMANCE,
    DELETE_RECORDS_COMMAND,
    DUMP_LOG_SEGMENTS,
    FEATURE_COMMAND,
    GET_OFFSET_SHELL,
    GROUPS_COMMAND,
    LEADER_ELECTION_COMMAND,
    LOG_DIRS_COMMAND,
    PRODUCER_PERFORMANCE,
    TOPIC_COMMAND,
    VERIFIABLE_CONSUMER,
    run_kafka_tool,
)
from harness.waiting import wait_until
from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition

from conformance.broker_under_test import BrokerUnderTest
from conformance.conftest import MakeTopic
from conformance.in_process.kafka_python_adapter import subscribe_knowing
from pybroker.apis import APIS

VERIFIABLE_PRODUCER = "org.apache.kafka.tools.VerifiableProducer"

# A tool's own patience, well under the test's.
TOOL_TIMEOUT_S = 90

pytestmark = pytest.mark.jvm

Tool = Callable[..., str]


@pytest.fixture
def tool(broker: BrokerUnderTest) -> Tool:
    """Runs a tool against the run's broker; returns what it printed."""

    def run(main_class: str, *arguments: str, standard_input: str | None = None, check: bool = True) -> str:
        done = run_kafka_tool(
            main_class,
            "--bootstrap-server",
            broker.bootstrap,
            *arguments,
            timeout_s=TOOL_TIMEOUT_S,
            standard_input=standard_input,
            check=check,
        )
        return done.stdout if check else done.stdout + done.stderr

    return run


@pytest.fixture
def producer(broker: BrokerUnderTest) -> Iterator[KafkaProducer]:
    made = KafkaProducer(bootstrap_servers=broker.bootstrap)
    yield made
    made.close()


def fill(producer: KafkaProducer, topic: str, count: int, partition: int = 0) -> None:
    for number in range(count):
        producer.send(topic, b"value-%d" % number, key=b"key-%d" % number, partition=partition)
    producer.flush()


def commit(broker: BrokerUnderTest, group: str, topic: str, offset: int) -> None:
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=group, enable_auto_commit=False)
    consumer.assign([TopicPartition(topic, 0)])
    consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(offset, "", -1)})
    consumer.close()


def test_topic_command(tool: Tool, name: str) -> None:
    created = tool(TOPIC_COMMAND, "--create", "--topic", name, "--partitions", "2", "--config", "retention.ms=86400000")
    assert f"Created topic {name}." in created
    assert name in tool(TOPIC_COMMAND, "--list").split()
    refused = tool(TOPIC_COMMAND, "--create", "--topic", name, check=False)
    assert f"Topic '{name}' already exists" in refused
    tool(TOPIC_COMMAND, "--alter", "--topic", name, "--partitions", "3")
    described = tool(TOPIC_COMMAND, "--describe", "--topic", name)
    assert "PartitionCount: 3" in described
    assert "retention.ms=86400000" in described
    assert len(re.findall(r"Leader: \d", described)) == 3
    tool(TOPIC_COMMAND, "--delete", "--topic", name)
    assert name not in tool(TOPIC_COMMAND, "--list").split()


def test_consumer_group_command(
    tool: Tool, broker: BrokerUnderTest, producer: KafkaProducer, fresh_topic: str, name: str
) -> None:
    fill(producer, fresh_topic, 10)
    commit(broker, name, fresh_topic, 4)
    group = ("--group", name)
    assert [name, "Empty"] in [line.split() for line in tool(CONSUMER_GROUP_COMMAND, "--list", "--state").splitlines()]
    assert _offsets_and_lag(tool(CONSUMER_GROUP_COMMAND, "--describe", *group), fresh_topic) == (4, 10, 6)
    reset = ("--reset-offsets", *group, "--topic", fresh_topic, "--to-earliest", "--execute")
    assert tool(CONSUMER_GROUP_COMMAND, *reset).splitlines()[-1].split()[:4] == [name, fresh_topic, "0", "0"]
    assert "was successful" in tool(CONSUMER_GROUP_COMMAND, "--delete", *group)
    assert name not in tool(GROUPS_COMMAND, "--list")


def test_consumer_group_command_on_a_group_with_a_member(
    tool: Tool, broker: BrokerUnderTest, producer: KafkaProducer, fresh_topic: str, name: str
) -> None:
    fill(producer, fresh_topic, 3)
    group = ("--group", name)
    reset = ("--reset-offsets", *group, "--topic", fresh_topic, "--shift-by", "-2")
    with member(broker, name, fresh_topic) as consumer:
        members = tool(CONSUMER_GROUP_COMMAND, "--describe", *group, "--members", "--verbose")
        (row,) = [line.split() for line in members.splitlines() if line.startswith(name)]
        assert row[3:5] == [f"{name}-member", "1"]
        assert f"{fresh_topic}(0)" in row or f"{fresh_topic}:0" in row, row
        assert "inactive" in tool(CONSUMER_GROUP_COMMAND, *reset, "--execute", check=False)
        consumer.commit({TopicPartition(fresh_topic, 0): OffsetAndMetadata(3, "", -1)})
    planned = tool(CONSUMER_GROUP_COMMAND, *reset, "--dry-run").splitlines()[-1].split()
    assert planned[:4] == [name, fresh_topic, "0", "1"]
    assert committed(broker, name, fresh_topic) == 3
    assert "Successful" in tool(CONSUMER_GROUP_COMMAND, "--delete-offsets", *group, "--topic", fresh_topic)
    assert committed(broker, name, fresh_topic) is None


@contextmanager
def member(broker: BrokerUnderTest, group: str, topic: str) -> Iterator[KafkaConsumer]:
    """A consumer with the whole topic, which heartbeats by itself while the test is busy with something else."""
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        group_id=group,
        client_id=f"{group}-member",
        enable_auto_commit=False,
        max_poll_interval_ms=10 * 60_000,
    )
    try:
        subscribe_knowing(consumer, topic)

        def has_it() -> bool:
            consumer.poll(100)
            return bool(consumer.assignment())

        wait_until(has_it, f"the assignment of {topic}", TOOL_TIMEOUT_S)
        yield consumer
    finally:
        consumer.close()


def committed(broker: BrokerUnderTest, group: str, topic: str) -> int | None:
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=group, enable_auto_commit=False)
    offset: int | None = consumer.committed(TopicPartition(topic, 0))
    consumer.close()
    return offset


def _offsets_and_lag(described: str, topic: str) -> tuple[int, int, int]:
    """Committed offset, log end offset and lag of the topic's first partition."""
    (row,) = [line.split() for line in described.splitlines() if f" {topic} " in line]
    at = row.index(topic)
    committed, end, lag = row[at + 2 : at + 5]
    return int(committed), int(end), int(lag)


def test_config_command(tool: Tool, fresh_topic: str) -> None:
    topic = ("--entity-type", "topics", "--entity-name", fresh_topic)
    tool(CONFIG_COMMAND, "--alter", *topic, "--add-config", "retention.ms=1234567,cleanup.policy=[compact,delete]")
    described = tool(CONFIG_COMMAND, "--describe", *topic)
    assert "retention.ms=1234567" in described
    assert "cleanup.policy=compact,delete" in described
    tool(CONFIG_COMMAND, "--alter", *topic, "--delete-config", "retention.ms")
    assert "retention.ms=1234567" not in tool(CONFIG_COMMAND, "--describe", *topic)


def test_config_command_on_brokers(tool: Tool) -> None:
    default = ("--entity-type", "brokers", "--entity-default")
    tool(CONFIG_COMMAND, "--alter", *default, "--add-config", "log.cleaner.threads=2")
    assert "log.cleaner.threads=2" in tool(CONFIG_COMMAND, "--describe", *default)
    tool(CONFIG_COMMAND, "--alter", *default, "--delete-config", "log.cleaner.threads")
    everything = tool(CONFIG_COMMAND, "--describe", "--entity-type", "brokers", "--entity-name", "1", "--all")
    assert "num.partitions=" in everything


def test_config_command_on_groups(tool: Tool, name: str) -> None:
    group = ("--entity-type", "groups", "--entity-name", name)
    tool(CONFIG_COMMAND, "--alter", *group, "--add-config", "consumer.session.timeout.ms=50000")
    assert "consumer.session.timeout.ms=50000" in tool(CONFIG_COMMAND, "--describe", *group)


def test_console_producer_and_consumer(tool: Tool, fresh_topic: str) -> None:
    lines = [f"h:{number},i:\tkey-{number}\tvälue {number}" for number in range(20)]
    producing = (
        "--topic",
        fresh_topic,
        "--reader-property",
        "parse.key=true",
        "--reader-property",
        "parse.headers=true",
    )
    tool(CONSOLE_PRODUCER, *producing, "--compression-codec", "lz4", standard_input="\n".join(lines) + "\n")
    consuming = ("--topic", fresh_topic, "--from-beginning", "--max-messages", "20", "--timeout-ms", "20000")
    shown = [part for what in ("key", "headers") for part in ("--formatter-property", f"print.{what}=true")]
    consumed = tool(CONSOLE_CONSUMER, *consuming, *shown)
    assert consumed.splitlines() == lines


def test_verifiable_producer_and_consumer(tool: Tool, fresh_topic: str, name: str) -> None:
    produced = tool(VERIFIABLE_PRODUCER, "--topic", fresh_topic, "--max-messages", "200")
    events = [json.loads(line) for line in produced.splitlines() if line.startswith("{")]
    assert sum(event["name"] == "producer_send_success" for event in events) == 200
    consuming = ("--topic", fresh_topic, "--group-id", name, "--max-messages", "200", "--reset-policy", "earliest")
    consumed = tool(VERIFIABLE_CONSUMER, *consuming)
    events = [json.loads(line) for line in consumed.splitlines() if line.startswith("{")]
    assert sum(event["count"] for event in events if event["name"] == "records_consumed") == 200
    assert all(event["success"] for event in events if event["name"] == "offsets_committed")


def test_performance_tools(tool: Tool, broker: BrokerUnderTest, fresh_topic: str) -> None:
    producing = ("--topic", fresh_topic, "--num-records", "500", "--record-size", "100", "--throughput", "-1")
    assert "500 records sent" in tool(PRODUCER_PERFORMANCE, *producing)
    consumed = tool(CONSUMER_PERFORMANCE, "--topic", fresh_topic, "--num-records", "500", "--hide-header")
    megabytes, records = (consumed.splitlines()[-1].split(", ")[column] for column in (2, 4))
    assert int(records) == 500
    assert float(megabytes) == pytest.approx(500 * 100 / 2**20, abs=1e-3)


def test_delete_records_and_offset_shell(
    tool: Tool, producer: KafkaProducer, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(3)
    for partition in range(3):
        fill(producer, topic, 10, partition)
    wanted = tmp_path / "offsets.json"
    partitions = [{"topic": topic, "partition": partition, "offset": offset} for partition, offset in ((0, 4), (1, -1))]
    wanted.write_text(json.dumps({"partitions": partitions, "version": 1}))
    deleted = tool(DELETE_RECORDS_COMMAND, "--offset-json-file", str(wanted))
    assert "low_watermark: 4" in deleted
    assert "low_watermark: 10" in deleted
    earliest = tool(GET_OFFSET_SHELL, "--topic", topic, "--time", "earliest")
    latest = tool(GET_OFFSET_SHELL, "--topic", topic, "--time", "latest")
    assert earliest.split() == [f"{topic}:0:4", f"{topic}:1:10", f"{topic}:2:0"]
    assert latest.split() == [f"{topic}:{partition}:10" for partition in range(3)]


@pytest.mark.usefixtures("data_dir")
def test_log_dirs_command(tool: Tool, broker: BrokerUnderTest, producer: KafkaProducer, fresh_topic: str) -> None:
    fill(producer, fresh_topic, 10)
    printed = tool(LOG_DIRS_COMMAND, "--describe", "--topic-list", fresh_topic)
    (document,) = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    log_dirs = [log_dir for told in document["brokers"] for log_dir in told["logDirs"]]
    assert {log_dir["logDir"] for log_dir in log_dirs} == set(map(str, broker.data_dirs))
    for log_dir in log_dirs:
        assert log_dir["error"] is None
        (partition,) = log_dir["partitions"]
        assert partition["partition"] == f"{fresh_topic}-0"
        assert partition["size"] > 0


def test_dump_log_segments_of_a_live_directory(data_dir: Path, producer: KafkaProducer, fresh_topic: str) -> None:
    fill(producer, fresh_topic, 10)
    log = data_dir / f"{fresh_topic}-0" / "00000000000000000000.log"
    dumped = run_kafka_tool(DUMP_LOG_SEGMENTS, "--print-data-log", "--deep-iteration", "--files", str(log)).stdout
    assert all(f"payload: value-{number}" in dumped for number in range(10))
    assert "isvalid: true" in dumped


def test_dump_log_segments_finds_the_indexes_of_a_sealed_segment_right(
    data_dir: Path, producer: KafkaProducer, make_topic: MakeTopic
) -> None:
    topic = make_topic(segment_bytes=str(1 << 20))
    for number in range(12):
        producer.send(topic, bytes(100_000), partition=0, timestamp_ms=int(time.time() * 1000) + number)
        producer.flush()
    index = data_dir / f"{topic}-0" / "00000000000000000000.index"
    files = f"{index},{index.with_suffix('.timeindex')}"
    dumped = run_kafka_tool(DUMP_LOG_SEGMENTS, "--files", files, timeout_s=TOOL_TIMEOUT_S).stdout
    assert "ismatch" not in dumped
    assert re.findall(r"^offset: (\d+) position: ", dumped, re.MULTILINE) == [str(number) for number in range(1, 10)]
    assert re.findall(r"^timestamp: \d+ offset: (\d+)$", dumped, re.MULTILINE)[-1] == "9"


def test_dump_log_segments_decodes_committed_offsets(
    data_dir: Path, broker: BrokerUnderTest, fresh_topic: str, name: str
) -> None:
    commit(broker, name, fresh_topic, 4)
    files = ",".join(str(log) for log in sorted(data_dir.glob("__consumer_offsets-*/*.log")))
    dumped = run_kafka_tool(DUMP_LOG_SEGMENTS, "--offsets-decoder", "--files", files, timeout_s=TOOL_TIMEOUT_S).stdout
    (line,) = [line for line in dumped.splitlines() if f'"group":"{name}"' in line and '"offset":' in line]
    assert f'"topic":"{fresh_topic}"' in line
    assert '"offset":4' in line


def test_leader_election_command(tool: Tool, make_topic: MakeTopic, tmp_path: Path) -> None:
    """One broker leads whatever it can lead: there is nothing to elect, and that is said of each partition."""
    topic = make_topic(2)
    wanted = tmp_path / "partitions.json"
    wanted.write_text(json.dumps({"partitions": [{"topic": topic, "partition": index} for index in (1, 2)]}))
    elected = tool(
        LEADER_ELECTION_COMMAND, "--election-type", "preferred", "--path-to-json-file", str(wanted), check=False
    )
    assert f"Valid replica already elected for partitions {topic}-1" in elected
    assert f"Error completing leader election (PREFERRED) for partition: {topic}-2" in elected
    assert "UnknownTopicOrPartitionException" in elected
    assert tool(LEADER_ELECTION_COMMAND, "--election-type", "unclean", "--all-topic-partitions") == ""


def test_cluster_tools(tool: Tool, broker: BrokerUnderTest) -> None:
    versions = tool(BROKER_API_VERSIONS_COMMAND)
    for host, port in broker.addresses:
        assert f"{host}:{port} (id: " in versions
    unlike = [api.name for api in APIS if f"{api.name}({api.key})" not in versions]
    assert not unlike, versions
    found = run_kafka_tool(CLUSTER_TOOL, "list-endpoints", "--bootstrap-server", broker.bootstrap)
    assert all(str(port) in found.stdout for _, port in broker.addresses)
    found = run_kafka_tool(CLUSTER_TOOL, "cluster-id", "--bootstrap-server", broker.bootstrap)
    assert found.stdout.startswith("Cluster ID: ")


def test_feature_command(tool: Tool) -> None:
    described = tool(FEATURE_COMMAND, "describe")
    (level,) = re.findall(r"Feature: metadata\.version\s.*FinalizedVersionLevel: (\S+)", described)
    assert level == "4.4-IV2"  # 33
