"""What a topic has, to its end, read committed; asked by librdkafka."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from time import monotonic
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient
from harness.waiting import PATIENCE_S

from pybroker.security.client_access import ClientAccess


class Record(NamedTuple):
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[Sequence[str | bytes | None], ...]


def records_of(access: ClientAccess, topic: str) -> list[Record]:
    """All committed records of partition 0, in their order.  ``AssertionError`` where the end does not come."""
    settings: dict[str, Any] = {
        **access.settings("confluent-kafka"),
        "group.id": "reads-all",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
    }
    found: list[Record] = []
    deadline = monotonic() + PATIENCE_S
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        while True:
            assert monotonic() < deadline, f"the end of {topic} does not come, after {len(found)} records"
            message = consumer.poll(1.0)
            if message is None:
                continue
            if (error := message.error()) is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    return found
                assert error.retriable() or error.code() < 0, error
                continue
            headers = tuple(message.headers() or ())
            found.append(Record(message.key(), message.value(), message.timestamp()[1], headers))


def leader_of(access: ClientAccess, topic: str) -> int:
    """The broker that leads partition 0."""
    admin = AdminClient(access.settings("confluent-kafka"))
    leader: int = admin.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions[0].leader
    return leader


def topic_names(access: ClientAccess) -> set[str]:
    """All topics that the user sees."""
    admin = AdminClient(access.settings("confluent-kafka"))
    return set(admin.list_topics(timeout=PATIENCE_S).topics)
