"""Kafka's own tools against a pybroker with two log dirs: kafka-reassign-partitions and kafka-log-dirs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.apache_kafka import LOG_DIRS_COMMAND, REASSIGN_PARTITIONS_COMMAND, run_kafka_tool
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from pybroker.testing import Broker

pytestmark = pytest.mark.jvm

TOPIC = "moved"
TOOL_TIMEOUT_S = 90
RECORDS, RECORD_BYTES = 100, 20_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(data_dir=f"{tmp_path / 'a'},{tmp_path / 'b'}") as broker:
        broker.create_topic(TOPIC)
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
        for _ in range(RECORDS):
            producer.send(TOPIC, bytes(RECORD_BYTES), partition=0)
        producer.flush()
        producer.close()
        yield broker


@pytest.fixture
def tool(broker: Broker) -> Callable[..., str]:
    def run(main_class: str, *arguments: str) -> str:
        done = run_kafka_tool(main_class, "--bootstrap-server", broker.bootstrap, *arguments, timeout_s=TOOL_TIMEOUT_S)
        return done.stdout

    return run


def test_reassign_partitions_moves_a_replica_to_another_log_dir(
    broker: Broker, tool: Callable[..., str], tmp_path: Path
) -> None:
    def described() -> dict[str, list[dict[str, Any]]]:
        printed = tool(LOG_DIRS_COMMAND, "--describe", "--topic-list", TOPIC)
        (document,) = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
        return {Path(each["logDir"]).name: each["partitions"] for each in document["brokers"][0]["logDirs"]}

    (source,) = [name for name, partitions in described().items() if partitions]
    target = tmp_path / ("b" if source == "a" else "a")
    wanted = {"topic": TOPIC, "partition": 0, "replicas": [1], "log_dirs": [str(target)]}
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
    file = ("--reassignment-json-file", str(plan))

    begun = tool(REASSIGN_PARTITIONS_COMMAND, "--execute", *file, "--replica-alter-log-dirs-throttle", "20000")
    assert "Successfully started moving log directory" in begun, begun
    assert "is still in progress" in tool(REASSIGN_PARTITIONS_COMMAND, "--verify", "--preserve-throttles", *file)
    (current,), (future,) = described()[source], described()[target.name]
    assert (current["isFuture"], future["isFuture"]) == (False, True)
    assert future["offsetLag"] > 0

    faster = ("--additional", "--replica-alter-log-dirs-throttle", "1000000000")
    tool(REASSIGN_PARTITIONS_COMMAND, "--execute", *file, *faster)
    deadline = time.monotonic() + TOOL_TIMEOUT_S
    while "is still in progress" in (verified := tool(REASSIGN_PARTITIONS_COMMAND, "--verify", *file)):
        assert time.monotonic() < deadline, verified
    assert "completed successfully" in verified, verified
    partitions = described()
    assert (partitions[source], [each["isFuture"] for each in partitions[target.name]]) == ([], [False])
    assert consumed(broker) == RECORDS


def consumed(broker: Broker) -> int:
    """How many records may be read."""
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(TOPIC, 0)])
    found = 0
    while found < RECORDS and (polled := consumer.poll(timeout_ms=20_000)):
        found += sum(map(len, polled.values()))
    consumer.close()
    return found
