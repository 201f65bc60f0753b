"""The topics of a run: filled, and read as committed readers see them."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

READ_WITHIN_S = 120.0

Records = Counter[tuple[bytes | None, bytes | None]]


def create(bootstrap: str, name: str, partitions: int) -> None:
    """A new topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions)])[name].result(30)


def fill(bootstrap: str, name: str, count: int) -> Records:
    """Write ``count`` records, some of them alike, some without a value; what a job shall make of them."""
    producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 1_000_000, "linger.ms": 20})
    expected: Records = Counter()
    for number in range(count):
        key = b"k%d" % (number % 97)
        value = None if number % 1_000 == 0 else b"value %060d" % (number - number % 50 if number % 50 < 2 else number)
        producer.produce(name, value, key)
        expected[key, None if value is None else value.upper()] += 1
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0
    return expected


def committed_end(bootstrap: str, name: str, partitions: int) -> int:
    """The sum of the last stable offsets of a topic: it grows when a task commits."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    latest: Any = OffsetSpec.latest
    asked = {TopicPartition(name, partition): latest() for partition in range(partitions)}
    found = admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED).values()
    return sum(int(each.result(30).offset) for each in found)


def lacking(found: Records, expected: Records, mode: str) -> tuple[int, int]:
    """How many records are there too often, and how many are not there.

    Of an ``update`` each count of a key may be there once, and its last must be: which ones come before depends on
    where micro-batches end.
    """
    if mode == "append":
        return (found - expected).total(), (expected - found).total()
    totals: Counter[bytes | None] = Counter()
    for (key, _), count in expected.items():
        totals[key] += count
    last = {(key, b"%d" % count) for key, count in totals.items()}
    too_often = found.total() - len(found)
    impossible = sum(int(value or 0) > totals[key] for key, value in found)
    return too_often + impossible, len(last - found.keys())


def committed(bootstrap: str, name: str) -> Records:
    """What a reader of committed records finds, from the beginning to the end."""
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": "exactly-once",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    consumer = Consumer(settings)
    partitions = set(consumer.list_topics(name, 30).topics[name].partitions)
    consumer.assign([TopicPartition(name, partition, 0) for partition in partitions])
    found: Records = Counter()
    deadline = time.monotonic() + READ_WITHIN_S
    while partitions:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{name} could not be read to its end")
        for message in consumer.consume(10_000, 1):
            if (error := message.error()) is None:
                found[message.key(), message.value()] += 1
            elif error.code() == KafkaError._PARTITION_EOF:
                partitions.discard(message.partition())
    consumer.close()
    return found
