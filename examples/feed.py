"""Feeds recorded data into topics with confluent-kafka: for the flights demo, the tour and the uses.

Owns that a topic is created with what recorded data need (no retention by time: it is long past; records of the future,
which close what is not over yet), that keys go to the partitions where Java's clients put them, and that every record
is acknowledged, or the feed fails.  Owns no data.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import NewTopic

from pybroker.pipeline.records import Record, as_bytes
from pybroker.pipeline.topics.admin_logins import admin_client
from pybroker.pipeline.topics.client_log import with_client_log

STREAM_PARTITIONS = 2
# By Kafka's default a record may be an hour ahead.
STREAM_CONFIG = {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**63 - 1)}
TABLE_CONFIG = {"cleanup.policy": "compact"}

# A person at a prompt should learn in seconds that no broker is there.
REACHED_WITHIN_S = 10.0
TIMEOUT_S = 60.0
POLL_EVERY_RECORDS = 2_000
OF_THE_KEY = -1  # librdkafka's sign for the partition that the partitioner chooses
QUEUE_FULL_WAIT_S = 0.1
FLUSH_WAIT_S = 1.0

PRODUCER_SETTINGS: dict[str, Any] = {
    "compression.type": "lz4",
    "linger.ms": 20,
    "enable.idempotence": True,
    "partitioner": "murmur2_random",
    "delivery.timeout.ms": int(TIMEOUT_S * 1_000),
    # Records that wait to be sent or acknowledged, as many bytes as Java's producers hold.
    "queue.buffering.max.kbytes": 32 * 1_024,
    "delivery.report.only.error": True,
}


class FeedFailed(RuntimeError):
    """A topic could not be created, or a broker did not take all records."""


class TopicExists(FeedFailed):
    """A topic that is to be created is there already."""


class Produced(NamedTuple):
    """What a topic holds: ``records``, and ``ends``, one for each partition."""

    records: int
    ends: int

    @property
    def total(self) -> int:
        """How many a reader reads."""
        return self.records + self.ends


def create_topics(
    bootstrap: str,
    streams: Iterable[str],
    tables: Iterable[str],
    *,
    stream_partitions: int = STREAM_PARTITIONS,
    table_partitions: int = 1,
) -> None:
    """Create topics; raises `TopicExists` where one is there already, `FeedFailed` for any other reason."""
    wanted = [NewTopic(name, stream_partitions, config=STREAM_CONFIG) for name in streams]
    wanted += [NewTopic(name, table_partitions, config=TABLE_CONFIG) for name in tables]
    try:
        admin = admin_client({"bootstrap.servers": bootstrap}, REACHED_WITHIN_S)
    except KafkaException as error:
        raise FeedFailed(f"no broker answers at {bootstrap}: {reason_of(error)}") from None
    for name, created in admin.create_topics(wanted).items():
        try:
            created.result(TIMEOUT_S)
        except KafkaException as error:
            is_there = error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
            raise (TopicExists if is_there else FeedFailed)(f"topic {name}: {reason_of(error)}") from None


def produce(
    bootstrap: str,
    topic: str,
    records: Iterable[Record],
    *,
    end: Record | None = None,
    on_progress: Callable[[int], None] = lambda count: None,
) -> Produced:
    """Produce all records, then ``end`` to every partition.  Raises `FeedFailed`.

    Records have timestamps, and go to the partitions of their keys, without headers.  ``end`` leaves when every record
    is acknowledged, so that it overtakes none.  ``on_progress`` is called now and then with the number of records
    handed over since its last call.
    """
    feed = _Feed(bootstrap, topic)
    count = 0
    for count, record in enumerate(records, 1):
        feed.send(record)
        if count % POLL_EVERY_RECORDS == 0:
            feed.poll(0)
            on_progress(POLL_EVERY_RECORDS)
    feed.finish()
    partitions = feed.partitions() if end is not None else ()
    for partition in partitions:
        assert end is not None
        feed.send(end, partition)
    feed.finish()
    on_progress(count % POLL_EVERY_RECORDS + len(partitions))
    return Produced(count, len(partitions))


def reason_of(error: KafkaException) -> str:
    """What librdkafka says of an error, in one line."""
    told: str = error.args[0].str()
    return told


class _Feed:
    """One producer's records of a topic; each call raises `FeedFailed` once one of them was not taken."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._failures: list[KafkaError] = []
        self._topic = topic
        own = {"bootstrap.servers": bootstrap, "on_delivery": _failures_to(self._failures)}
        self._producer = Producer(with_client_log({**PRODUCER_SETTINGS, **own}))

    def send(self, record: Record, partition: int = OF_THE_KEY) -> None:
        """Hand a record over; waits while too many are on their way."""
        key, value, timestamp_ms = as_bytes(record.key), as_bytes(record.value), record.timestamp_ms
        while True:
            try:
                self._producer.produce(self._topic, value, key, partition, timestamp=timestamp_ms)
            except BufferError:
                self.poll(QUEUE_FULL_WAIT_S)
            except KafkaException as error:
                raise self._failed(reason_of(error)) from None
            else:
                return

    def poll(self, timeout_s: float) -> None:
        """Hear what has become of records."""
        self._producer.poll(timeout_s)
        self._raise_first()

    def finish(self) -> None:
        """Wait until every record is acknowledged; librdkafka gives each up after `TIMEOUT_S`."""
        while self._producer.flush(FLUSH_WAIT_S):
            self._raise_first()
        self._raise_first()

    def partitions(self) -> list[int]:
        """Those of the topic."""
        try:
            found = self._producer.list_topics(self._topic, timeout=TIMEOUT_S).topics[self._topic]
        except KafkaException as error:
            raise self._failed(reason_of(error)) from None
        if found.error is not None:
            raise self._failed(found.error.str())
        return sorted(found.partitions)

    def _raise_first(self) -> None:
        if self._failures:
            raise self._failed(self._failures[0].str())

    def _failed(self, reason: str) -> FeedFailed:
        return FeedFailed(f"not all records of {self._topic} were taken: {reason}")


def _failures_to(failures: list[KafkaError]) -> Callable[[KafkaError | None, object], None]:
    """A callback that holds no producer, which would keep itself by it."""

    def hear(error: KafkaError | None, message: object) -> None:
        if error is not None:
            failures.append(error)

    return hear
