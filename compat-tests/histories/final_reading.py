"""The end of a history: open transactions are over, partitions are read to their ends, committed offsets are asked for.

What is missing here was lost; so this waits for what it wants to see, and raises an error when it does not come.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaException, TopicPartition

from histories.clients import CALL_S, Failed, Names
from histories.history import Client, Journal
from histories.librdkafka_clients import call, common_settings
from pybroker.security.client_access import ClientAccess

PATIENCE_S = 90.0
AGAIN_S = 0.2


def end_transaction(access: ClientAccess, transactional_id: str) -> None:
    """A new producer of the id: what the last one left open is aborted, or seen through.  Raises ``Failed``."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        producer = confluent_kafka.Producer({"transactional.id": transactional_id, **common_settings(access)})
        try:
            call(producer.init_transactions, CALL_S)
        except Failed:
            if time.monotonic() > deadline:
                raise
        else:
            return


def read_to_the_end(
    access: ClientAccess, names: Names, isolation: str, journal: Journal, process: int
) -> dict[str, int]:
    """Read all partitions from their beginning to their end, which is returned; raises ``TimeoutError``."""
    client = Client("librdkafka", isolation=isolation)
    consumer = confluent_kafka.Consumer(
        {
            "group.id": "none",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            **common_settings(access),
        }
    )
    try:
        journal.record(process, "ok", "open", client._asdict())
        partitions = {key: TopicPartition(*names.partition(key), 0) for key in names.keys}
        deadline = time.monotonic() + PATIENCE_S
        ends = {key: _end(consumer, partition, deadline) for key, partition in partitions.items()}
        journal.record(process, "ok", "assign", names.keys)
        consumer.assign(list(partitions.values()))
        _read(consumer, names, ends, journal, process)
    finally:
        consumer.close()
    return ends


def _end(consumer: Any, partition: TopicPartition, deadline: float) -> int:
    """A partition's end; leaders may still move, and nobody but the caller asks again."""
    while True:
        try:
            return int(consumer.get_watermark_offsets(partition, timeout=CALL_S)[1])
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(AGAIN_S)


def _read(consumer: Any, names: Names, ends: Mapping[str, int], journal: Journal, process: int) -> None:
    unread = {key for key, end in ends.items() if end > 0}
    deadline = time.monotonic() + PATIENCE_S
    while unread:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{sorted(unread)} cannot be read to their ends {dict(ends)}")
        journal.record(process, "invoke", "poll")
        brought: dict[str, list[list[int]]] = {}
        for message in consumer.consume(500, 0.2):
            key = names.key(message.topic(), message.partition())
            if message.error() is None:
                brought.setdefault(key, []).append([message.offset(), int(message.value())])
            elif message.error().code() != confluent_kafka.KafkaError._PARTITION_EOF:
                raise KafkaException(message.error())
            elif message.offset() >= ends[key]:
                unread.discard(key)
        journal.record(process, "ok", "poll", list(brought.items()))


def committed_offsets(access: ClientAccess, names: Names, group: str, keys: Iterable[str]) -> dict[str, int]:
    """What a group has committed, by key, when nothing of it is pending any more; none is 0."""
    settings = {"group.id": group, "isolation.level": "read_committed", **common_settings(access)}
    consumer = confluent_kafka.Consumer(settings)
    try:
        found = consumer.committed([TopicPartition(*names.partition(key)) for key in keys], timeout=PATIENCE_S)
    finally:
        consumer.close()
    return {names.key(each.topic, each.partition): max(each.offset, 0) for each in found}
