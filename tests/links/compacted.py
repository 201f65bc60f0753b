"""Compacted topics of tests of cluster links: writing by keys, waiting until a log is compacted, and what it says.

A table is what a consumer has that reads a topic from its begin: the last value of each key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from harness.waiting import PATIENCE_S, wait_until

from pybroker.testing import Broker, Cluster
from tests.links.linked import HasBootstrap, brokers_of, stored

TOPIC = "orders"
# A broker whose cleaner looks often; a topic is not due before ``compact``, and with each segment then.
CLEANING: dict[str, str | int | float] = {"log.cleaner.backoff.ms": 20, "log.initial.task.delay.ms": 20}
_NEVER, _ALWAYS = "1.0", "0.0001"
SMALL_SEGMENTS = {"internal.segment.bytes": "1000"}
COMPACTED: dict[str, str | int | float] = {
    **SMALL_SEGMENTS,
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": _NEVER,
    "delete.retention.ms": "0",
}

Pair = tuple[bytes, bytes | None]
Record = tuple[int, bytes, bytes | None]


def write(side: HasBootstrap, pairs: Iterable[Pair], **settings: Any) -> None:
    """Write records one by one, each in a batch of its own."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    producer = Producer({"bootstrap.servers": side.bootstrap, "linger.ms": 0, **given})
    failures: list[KafkaError | None] = []
    for key, value in pairs:
        producer.produce(TOPIC, value, key, partition=0, on_delivery=lambda error, _: failures.append(error))
        assert producer.flush(PATIENCE_S) == 0
    assert not any(failures)


def numbered(keys: str, first: int, count: int) -> list[Pair]:
    """So many records of these keys in turn, with rising numbers as their values."""
    return [(keys[number % len(keys)].encode(), b"%d" % number) for number in range(first, first + count)]


def read(side: HasBootstrap, isolation: str = "read_uncommitted") -> list[Record]:
    """Offset, key and value of all that a consumer reads from the begin on."""
    consumer = Consumer(
        {
            "bootstrap.servers": side.bootstrap,
            "group.id": "reads",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": isolation,
        }
    )
    low, _ = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), PATIENCE_S)
    consumer.assign([TopicPartition(TOPIC, 0, low)])
    records: list[Record] = []
    while True:
        message = consumer.poll(PATIENCE_S)
        assert message is not None, "nothing comes any more"
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            consumer.close()
            return records
        records.append((message.offset() or 0, message.key() or b"", message.value()))


def table_of(records: Iterable[Record]) -> dict[bytes, tuple[int, bytes]]:
    """The last value of each key, with its offset; keys whose last record is a tombstone are not there."""
    last = {key: (offset, value) for offset, key, value in records}
    return {key: (offset, value) for key, (offset, value) in last.items() if value is not None}


def compact(side: Broker | Cluster, is_done: Callable[[dict[int, bytes]], bool], *, in_rounds: bool = False) -> None:
    """Have the log of the leader cleaned until its batches are so; then nothing is cleaned any more.

    What a round only marks goes ``in_rounds``: each needs something that is dirty, which is written for it.
    """

    def is_cleaned() -> bool:
        found = stored(side, TOPIC, 0)
        # While a round puts its segments in place, batches lack that come again.
        is_at_rest = not any(is_cleaning(broker) for broker in brokers_of(side))
        done = is_at_rest and stored(side, TOPIC, 0) == found and is_done(found)
        if in_rounds and not done:
            write(side, [(b"round", b"r" * 600)])
        return done

    set_topic(side, min_cleanable_dirty_ratio=_ALWAYS)
    wait_until(is_cleaned, "the log to be cleaned")
    set_topic(side, min_cleanable_dirty_ratio=_NEVER)
    wait_until(lambda: not any(is_cleaning(broker) for broker in brokers_of(side)), "the end of the last round")


def is_cleaning(broker: Broker) -> bool:
    cleaner = broker._running().services.logs._log_cleaner
    return cleaner is not None and bool(cleaner._rounds)


def without(*offsets: int) -> Callable[[dict[int, bytes]], bool]:
    """Whether the batches at these offsets are gone."""
    return lambda batches: not {*offsets} & {*batches}


def set_topic(side: HasBootstrap, **settings: str) -> None:
    """Set settings of the topic, with ``_`` for ``.``."""
    entries = [
        ConfigEntry(name.replace("_", "."), text, incremental_operation=AlterConfigOpType.SET)
        for name, text in settings.items()
    ]
    admin = AdminClient({"bootstrap.servers": side.bootstrap})
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=entries)
    (future,) = admin.incremental_alter_configs([resource]).values()
    future.result(PATIENCE_S)
