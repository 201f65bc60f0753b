"""Feeds recorded data into topics with confluent-kafka: for the tour and the uses, which bring their own input.

Owns that a topic is created with what recorded data need (no retention by time: it is long past; records of the future,
which close what is not over yet), and that every record is acknowledged, or the feed fails.
"""

from collections.abc import Callable, Iterable

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from pybroker.pipeline.records import Record, as_bytes

STREAM_PARTITIONS = 2
# By Kafka's default a record may be an hour ahead.
STREAM_CONFIG = {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**63 - 1)}
TABLE_CONFIG = {"cleanup.policy": "compact"}

TIMEOUT_S = 60.0
POLL_EVERY_RECORDS = 2_000

# librdkafka's notices and worse.  What is less goes to standard error, too: where an event comes just as its client is
# let go of, it is said that it was not looked at.
LOG_LEVEL = 5


class ProduceFailed(RuntimeError):
    """A broker did not take all records."""


def create_topics(bootstrap: str, streams: Iterable[str], tables: Iterable[str]) -> None:
    """Create topics; raises `ProduceFailed` where one is there already."""
    wanted = [NewTopic(name, STREAM_PARTITIONS, config=STREAM_CONFIG) for name in streams]
    wanted += [NewTopic(name, 1, config=TABLE_CONFIG) for name in tables]
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": LOG_LEVEL})
    for name, created in admin.create_topics(wanted).items():
        try:
            created.result(TIMEOUT_S)
        except KafkaException as error:
            raise ProduceFailed(f"topic {name}: {error.args[0].str()}") from None


def produce(
    bootstrap: str,
    topic: str,
    records: Iterable[Record],
    *,
    end: Record | None = None,
    on_progress: Callable[[int], None] = lambda count: None,
) -> int:
    """Produce all records, then ``end`` to every partition; returns how many they were.  Raises `ProduceFailed`.

    Records have timestamps, and go to the partitions of their keys, without headers.
    """
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": "lz4",
            "linger.ms": 20,
            "enable.idempotence": True,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    count = 0
    for record in records:
        value, key = as_bytes(record.value), as_bytes(record.key)
        producer.produce(topic, value, key, timestamp=record.timestamp_ms, on_delivery=delivered)
        count += 1
        if count % POLL_EVERY_RECORDS == 0:
            producer.poll(0)
            on_progress(POLL_EVERY_RECORDS)
    unsent = producer.flush(TIMEOUT_S)
    partitions = producer.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions if end else ()
    for partition in partitions:
        assert end is not None
        value, key = as_bytes(end.value), as_bytes(end.key)
        producer.produce(topic, value, key, partition, timestamp=end.timestamp_ms, on_delivery=delivered)
    unsent += producer.flush(TIMEOUT_S)
    if unsent or failures:
        reason = failures[0].str() if failures else f"nothing was acknowledged for {TIMEOUT_S:.0f} s"
        raise ProduceFailed(f"{len(failures) + unsent} records of {topic} were not taken: {reason}")
    on_progress(count % POLL_EVERY_RECORDS + len(partitions))
    return count + len(partitions)
