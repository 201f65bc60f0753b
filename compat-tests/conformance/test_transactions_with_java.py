"""Transactions of Kafka's Java client, and Kafka's tools that look at them, against pybroker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness.apache_kafka import DUMP_LOG_SEGMENTS, TRANSACTIONS_COMMAND, run_kafka_tool

from conformance.adapter import Client, ConsumerOptions, ProducerOptions, poll_until
from conformance.all_clients import CLIENTS
from conformance.broker_under_test import BrokerUnderTest
from conformance.conftest import MakeTopic

MESSAGE_COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
TOOL_TIMEOUT_S = 120

pytestmark = pytest.mark.jvm

Tool = Callable[..., str]


@pytest.fixture
def tool(broker: BrokerUnderTest) -> Tool:
    """Runs TransactionsCommand against the run's broker; returns what it printed, word by word and line by line."""

    def run(*arguments: str) -> str:
        bootstrap = ("--bootstrap-server", broker.bootstrap)
        return run_kafka_tool(TRANSACTIONS_COMMAND, *bootstrap, *arguments, timeout_s=TOOL_TIMEOUT_S).stdout

    return run


@pytest.fixture
def python(broker: BrokerUnderTest) -> Iterator[Client]:
    """Any client that is quicker to start."""
    made = CLIENTS["kafka-python"](broker.bootstrap)
    yield made
    made.close()


def test_consume_transform_produce_copies_each_record_once(
    broker: BrokerUnderTest, python: Client, make_topic: MakeTopic
) -> None:
    """In the second protocol, with a random one of three transactions aborted."""
    source, copy = make_topic(), make_topic()
    producer = python.producer()
    values = [b"%d" % number for number in range(100)]
    for value in values:
        producer.send(source, value, partition=0)
    assert len(producer.flush()) == len(values)
    run_kafka_tool(
        MESSAGE_COPIER,
        "--broker-list", broker.bootstrap,
        "--input-topic", source,
        "--input-partition", "0",
        "--output-topic", copy,
        "--max-messages", str(len(values)),
        "--consumer-group", f"{source}-copiers",
        "--transaction-size", "7",
        "--transactional-id", f"{source}-copier",
        "--enable-random-aborts",
        "--use-group-metadata",
        timeout_s=TOOL_TIMEOUT_S,
    )  # fmt: skip
    consumer = python.consumer(ConsumerOptions(isolation="read_committed"))
    consumer.assign([(copy, 0)])
    records = poll_until([consumer], lambda so_far: bool(so_far) and so_far[-1].value == values[-1])
    assert [record.value for record in records] == values
    assert python.admin().group_offsets(f"{source}-copiers") == {(source, 0): len(values)}


def test_transactions_command_and_dump_log(tool: Tool, data_dir: Path, python: Client, make_topic: MakeTopic) -> None:
    topic = make_topic()
    producer = python.producer(ProducerOptions(transactional_id=topic))
    assert producer.begin() == 0
    producer.send(topic, b"v", partition=0)
    assert [delivery.error for delivery in producer.flush()] == [0]
    (listed,) = [line.split() for line in tool("list").splitlines() if line.startswith(topic)]
    assert listed[-1] == "Ongoing"
    described = tool("describe", "--transactional-id", topic)
    assert "Ongoing" in described
    assert f"{topic}-0" in described
    assert listed[2] in tool("describe-producers", "--topic", topic, "--partition", "0").split()
    tool("forceTerminateTransaction", "--transactionalId", topic)
    assert producer.commit() != 0
    assert "Empty" in tool("describe", "--transactional-id", topic)
    dumped = dump_of_transaction_state(data_dir)
    lines = [line for line in dumped.splitlines() if f'"transactionalId":"{topic}"' in line]
    statuses = [line.split('"transactionStatus":')[1].split(",")[0].strip('"') for line in lines]
    # The last is of the tool, which begins next.
    assert statuses == ["Empty", "Ongoing", "PrepareAbort", "CompleteAbort", "Empty"], dumped


def test_transactions_command_ends_a_transaction_in_one_partition(
    tool: Tool, python: Client, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    producer = python.producer(ProducerOptions(transactional_id=topic))
    assert producer.begin() == 0
    producer.send(topic, b"v", partition=0)
    assert [delivery.error for delivery in producer.flush()] == [0]
    reader = python.consumer(ConsumerOptions(isolation="read_committed"))
    assert reader.beginning_and_end((topic, 0))[1] == 0
    tool("abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
    assert reader.beginning_and_end((topic, 0))[1] == 2


def dump_of_transaction_state(data_dir: Path) -> str:
    files = ",".join(str(log) for log in sorted(data_dir.glob("__transaction_state-*/*.log")))
    arguments = ("--files", files, "--transaction-log-decoder")
    return run_kafka_tool(DUMP_LOG_SEGMENTS, *arguments, timeout_s=TOOL_TIMEOUT_S).stdout
