"""Transactions of a stock client (librdkafka) over a whole broker: produce, offsets, fencing, time-outs, restarts."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from harness.broker_probe import free_port
from harness.waiting import PATIENCE_S, wait_until

from pybroker.testing import Broker

_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
        "group.initial.rebalance.delay.ms": "0",
    }
    with Broker(settings) as running:
        yield running


@pytest.fixture
def topic(broker: Broker) -> str:
    name = f"t{next(_numbers)}"
    broker.create_topic(name, partitions=2)
    return name


def producer_of(broker: Broker, transactional_id: str, **settings: Any) -> Producer:
    """A producer that has begun under the id."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id, "linger.ms": 0, **given}
    )
    producer.init_transactions(PATIENCE_S)
    return producer


def produce(producer: Producer, topic: str, *values: str, partition: int = 0) -> None:
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(PATIENCE_S) == 0


def consumer_of(broker: Broker, group: str, topic: str, isolation: str = "read_committed") -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
        }
    )
    consumer.subscribe([topic])
    return consumer


def read_to_the_end(broker: Broker, topic: str, isolation: str = "read_committed") -> list[str]:
    """Every value that a consumer is given, partition by partition."""
    consumer = consumer_of(broker, f"reader-{next(_numbers)}", topic, isolation)
    found: dict[int, list[str]] = {}
    ended: set[int] = set()
    deadline = time.monotonic() + PATIENCE_S
    try:
        while len(ended) < 2:
            assert time.monotonic() < deadline
            message = consumer.poll(0.2)
            if message is None:
                continue
            partition, error, value = message.partition(), message.error(), message.value()
            assert partition is not None
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF
                ended.add(partition)
            else:
                assert value is not None
                ended.discard(partition)
                found.setdefault(partition, []).append(value.decode())
    finally:
        consumer.close()
    return [value for at in sorted(found) for value in found[at]]


def error_of(action: Callable[[], object]) -> KafkaError:
    with pytest.raises(KafkaException) as raised:
        action()
    error: KafkaError = raised.value.args[0]
    return error


def test_committed_transactions_are_read_and_aborted_ones_are_not(broker: Broker, topic: str) -> None:
    producer = producer_of(broker, topic)
    for number in range(6):
        producer.begin_transaction()
        produce(producer, topic, f"{number}a", f"{number}b", partition=number % 2)
        if number % 3 == 2:
            producer.abort_transaction(PATIENCE_S)
        else:
            producer.commit_transaction(PATIENCE_S)
    assert read_to_the_end(broker, topic) == ["0a", "0b", "4a", "4b", "1a", "1b", "3a", "3b"]
    everything = read_to_the_end(broker, topic, "read_uncommitted")
    assert everything == ["0a", "0b", "2a", "2b", "4a", "4b", "1a", "1b", "3a", "3b", "5a", "5b"]


def test_an_open_transaction_is_not_read_and_holds_back_what_is_behind_it(broker: Broker, topic: str) -> None:
    first, second = producer_of(broker, f"{topic}-1"), producer_of(broker, f"{topic}-2")
    first.begin_transaction()
    produce(first, topic, "open")
    second.begin_transaction()
    produce(second, topic, "behind")
    second.commit_transaction(PATIENCE_S)
    assert read_to_the_end(broker, topic) == []
    first.commit_transaction(PATIENCE_S)
    assert read_to_the_end(broker, topic) == ["open", "behind"]


def test_a_transaction_over_many_partitions_is_committed_in_all_of_them(broker: Broker, topic: str) -> None:
    producer = producer_of(broker, topic)
    producer.begin_transaction()
    for partition in (0, 1):
        produce(producer, topic, f"p{partition}", partition=partition)
    assert read_to_the_end(broker, topic) == []
    producer.commit_transaction(PATIENCE_S)
    assert read_to_the_end(broker, topic) == ["p0", "p1"]


def test_a_second_producer_with_the_id_fences_the_first_and_aborts_its_transaction(broker: Broker, topic: str) -> None:
    first = producer_of(broker, topic)
    first.begin_transaction()
    produce(first, topic, "fenced")
    second = producer_of(broker, topic)
    first.produce(topic, "too late", partition=0)
    error = error_of(lambda: first.commit_transaction(PATIENCE_S))
    assert error.code() in {KafkaError._FENCED, KafkaError.PRODUCER_FENCED}
    assert error.fatal()
    second.begin_transaction()
    produce(second, topic, "second")
    second.commit_transaction(PATIENCE_S)
    assert read_to_the_end(broker, topic) == ["second"]


def test_a_producer_that_takes_too_long_is_fenced_and_its_transaction_aborted(broker: Broker, topic: str) -> None:
    slow = producer_of(broker, topic, transaction_timeout_ms=1_000, message_timeout_ms=1_000)
    slow.begin_transaction()
    produce(slow, topic, "slow")
    watched = producer_of(broker, f"{topic}-witness")
    watched.begin_transaction()
    produce(watched, topic, "witness")
    watched.commit_transaction(PATIENCE_S)
    wait_until(lambda: read_to_the_end(broker, topic) == ["witness"], "the slow transaction to be aborted")
    assert error_of(lambda: slow.commit_transaction(PATIENCE_S)).fatal()


def test_a_timeout_longer_than_the_brokers_is_refused(broker: Broker, topic: str) -> None:
    error = error_of(lambda: producer_of(broker, topic, transaction_timeout_ms=900_001))
    assert error.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT


def test_offsets_that_are_sent_to_a_transaction_are_committed_with_it(broker: Broker, topic: str) -> None:
    producer = producer_of(broker, topic)
    consumer = consumer_of(broker, topic, topic)
    mine = [TopicPartition(topic, 0)]
    wait_until(lambda: consumer.poll(0.05) is None and len(consumer.assignment()) == 2, "an assignment")
    producer.begin_transaction()
    producer.send_offsets_to_transaction([TopicPartition(topic, 0, 7)], consumer.consumer_group_metadata(), PATIENCE_S)
    producer.abort_transaction(PATIENCE_S)
    assert consumer.committed(mine, PATIENCE_S)[0].offset < 0
    producer.begin_transaction()
    producer.send_offsets_to_transaction([TopicPartition(topic, 0, 8)], consumer.consumer_group_metadata(), PATIENCE_S)
    producer.commit_transaction(PATIENCE_S)
    assert consumer.committed(mine, PATIENCE_S)[0].offset == 8
    consumer.close()


def test_consume_transform_produce_gives_each_record_one_result(broker: Broker, topic: str) -> None:
    """With an abort after each third record, and the transformer replaced by another after half of them."""
    count, results = 30, f"{topic}-results"
    broker.create_topic(results, partitions=2)
    source = producer_of(broker, f"{topic}-source")
    source.begin_transaction()
    produce(source, topic, *(str(number) for number in range(count)))
    source.commit_transaction(PATIENCE_S)
    attempts = itertools.count(1)
    for last in (count // 2, count):
        transform_up_to(broker, topic, results, last, attempts)
    assert read_to_the_end(broker, results) == [f"result {number}" for number in range(count)]


def transform_up_to(broker: Broker, topic: str, results: str, last: int, attempts: Iterator[int]) -> None:
    """Transform records until offset ``last``; ends without closing anything, as a process that is killed does."""
    producer = producer_of(broker, f"{topic}-transformer")
    consumer = consumer_of(broker, f"{topic}-transformers", topic)
    deadline = time.monotonic() + PATIENCE_S
    offset = 0
    while offset < last:
        assert time.monotonic() < deadline
        message = consumer.poll(0.2)
        if message is None or message.error() is not None:
            continue
        value, read_at = message.value(), message.offset()
        assert value is not None
        assert read_at is not None
        if read_at >= last:
            continue
        producer.begin_transaction()
        producer.produce(results, f"result {value.decode()}", partition=0)
        offset = read_at + 1
        producer.send_offsets_to_transaction(
            [TopicPartition(topic, 0, offset)], consumer.consumer_group_metadata(), PATIENCE_S
        )
        if next(attempts) % 3 == 0:
            producer.abort_transaction(PATIENCE_S)
            consumer.seek(TopicPartition(topic, 0, read_at))
            offset = read_at
        else:
            producer.commit_transaction(PATIENCE_S)
    if last % 2:
        producer.begin_transaction()
        produce(producer, results, "never seen")
    consumer.close()


def test_a_transaction_goes_on_after_the_broker_was_restarted(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    first = Broker(data_dir=tmp_path, listen=address).start()
    first.create_topic("t", partitions=2)
    producer = producer_of(first, "x")
    producer.begin_transaction()
    produce(producer, "t", "before")
    first.stop()
    with Broker(data_dir=tmp_path, listen=address) as second:
        produce(producer, "t", "after", partition=1)
        producer.commit_transaction(PATIENCE_S)
        assert read_to_the_end(second, "t") == ["before", "after"]
        assert producer_of(second, "x") is not None
