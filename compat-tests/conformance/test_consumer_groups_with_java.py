"""Kafka's own Java consumer with ``group.protocol=consumer`` (KIP-848), and its tools for such groups."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Producer
from harness.apache_kafka import (
    CONSOLE_CONSUMER,
    CONSUMER_GROUP_COMMAND,
    GROUPS_COMMAND,
    VERIFIABLE_CONSUMER,
    run_kafka_tool,
)
from harness.waiting import PATIENCE_S

from conformance.broker_under_test import BrokerUnderTest

TOOL_TIMEOUT_S = 90

pytestmark = pytest.mark.jvm


def run(broker: BrokerUnderTest, main_class: str, *arguments: str) -> str:
    done = run_kafka_tool(
        main_class, "--bootstrap-server", broker.bootstrap, *arguments, timeout_s=TOOL_TIMEOUT_S, check=True
    )
    return done.stdout


def test_java_consumers_read_commit_and_leave(broker: BrokerUnderTest, fresh_topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(200):
        producer.produce(fresh_topic, str(number).encode())
    assert producer.flush(PATIENCE_S) == 0
    group = f"java-{fresh_topic}"
    consuming = ("--topic", fresh_topic, "--group-id", group, "--max-messages", "200", "--reset-policy", "earliest")
    consumed = run(broker, VERIFIABLE_CONSUMER, *consuming, "--group-protocol", "consumer")
    events = [json.loads(line) for line in consumed.splitlines() if line.startswith("{")]
    assert sum(event["count"] for event in events if event["name"] == "records_consumed") == 200
    assert all(event["success"] for event in events if event["name"] == "offsets_committed")
    listed = run(broker, GROUPS_COMMAND, "--list", "--group-type", "consumer")
    assert [line.split()[:3] for line in listed.splitlines() if line.startswith(group)] == [
        [group, "Consumer", "consumer"]
    ]
    described = run(broker, CONSUMER_GROUP_COMMAND, "--describe", "--group", group, "--offsets")
    (row,) = [line.split() for line in described.splitlines() if fresh_topic in line and line.startswith(group)]
    assert row[1:6] == [fresh_topic, "0", "200", "200", "0"]
    state = run(broker, CONSUMER_GROUP_COMMAND, "--describe", "--group", group, "--state", "--verbose")
    assert "Empty" in state


def test_java_console_consumer_subscribes_by_regular_expression(broker: BrokerUnderTest, fresh_topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(fresh_topic, b"value")
    assert producer.flush(PATIENCE_S) == 0
    settings = ("group.protocol=consumer", "auto.offset.reset=earliest", f"group.id=regex-{fresh_topic}")
    properties = [part for setting in settings for part in ("--command-property", setting)]
    printed = run(broker, CONSOLE_CONSUMER, "--include", f"{fresh_topic[:-2]}.*", "--max-messages", "1", *properties)
    assert printed.split() == ["value"]
