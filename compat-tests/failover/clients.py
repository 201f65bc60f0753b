"""A producer or a consumer as a process: ``python -m failover.clients ROLE LIBRARY BOOTSTRAP TOPIC PARTITIONS``.

Owns: what is written and read, and the lines that tell of it (``events``).  The clients have their libraries' default
settings, but for acks=all where that is not the default, idempotence where the name says so, and for reading from the
beginning.  ``write`` sends a small record every few milliseconds, to each partition in turn; ``read`` is a group's only
member, and commits besides by itself.  Both end at SIGTERM; ``write`` first waits for what it sent.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from failover.events import ACKNOWLEDGED, COMMITTED, FAILED, READ, Event

GROUP: Final = "failover"
SEND_EVERY_S: Final = 0.005
COMMIT_EVERY_S: Final = 0.05
LAST_ANSWERS_S: Final = 30.0

_stopping = False


def stop(*_: object) -> None:
    """SIGTERM: come to an end."""
    global _stopping  # noqa: PLW0603 - a process has one
    _stopping = True


def tell(kind: str, partition: int = -1, value: int = -1) -> None:
    sys.stdout.write(Event(kind, time.monotonic_ns(), partition, value).line())
    sys.stdout.flush()


def write_librdkafka(bootstrap: str, topic: str, partitions: int) -> None:
    import confluent_kafka

    send_all(confluent_kafka.Producer({"bootstrap.servers": bootstrap, "acks": "all"}), topic, partitions)


def write_idempotently(bootstrap: str, topic: str, partitions: int) -> None:
    """As fast as a pipeline of requests is never empty, so that a broker dies in the middle of one."""
    import confluent_kafka

    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    send_all(producer, topic, partitions, SEND_EVERY_S / 5)


def send_all(producer: Any, topic: str, partitions: int, every_s: float = SEND_EVERY_S) -> None:
    def told(partition: int, value: int) -> Callable[[Any, Any], None]:
        return lambda error, _: tell(FAILED if error else ACKNOWLEDGED, partition, value)

    def send(partition: int, value: int) -> None:
        producer.produce(topic, b"%d" % value, partition=partition, on_delivery=told(partition, value))

    write_steadily(partitions, send, producer.poll, every_s)
    producer.flush(LAST_ANSWERS_S)


def write_kafka_python(bootstrap: str, topic: str, partitions: int) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=bootstrap.split(","), acks="all")

    def send(partition: int, value: int) -> None:
        sent = producer.send(topic, b"%d" % value, partition=partition)
        sent.add_callback(lambda _: tell(ACKNOWLEDGED, partition, value))
        sent.add_errback(lambda _: tell(FAILED, partition, value))

    write_steadily(partitions, send, time.sleep)
    producer.flush(LAST_ANSWERS_S)


def write_steadily(
    partitions: int,
    send: Callable[[int, int], None],
    pause: Callable[[float], Any],
    every_s: float = SEND_EVERY_S,
) -> None:
    """Send the values from 0 on until SIGTERM; ``pause(seconds)`` lets the library work."""
    value = 0
    due = time.monotonic()
    while not _stopping:
        send(value % partitions, value)
        value += 1
        due += every_s
        while (left := due - time.monotonic()) > 0:
            pause(left)


def read_librdkafka(bootstrap: str, topic: str, _: int) -> None:
    import confluent_kafka

    def committed(error: object, __: object) -> None:
        if error is None:
            tell(COMMITTED)

    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "on_commit": committed,
        }
    )
    consumer.subscribe([topic])
    next_commit = 0.0
    has_new = False
    while not _stopping:
        message: Any = consumer.poll(0.05)
        if message is not None and message.error() is None:
            tell(READ, message.partition(), int(message.value()))
            has_new = True
        if has_new and time.monotonic() >= next_commit:
            consumer.commit(asynchronous=True)
            next_commit, has_new = time.monotonic() + COMMIT_EVERY_S, False
    consumer.close()


def read_kafka_python(bootstrap: str, topic: str, _: int) -> None:
    from kafka import KafkaConsumer

    def committed(__: object, answer: object) -> None:
        if not isinstance(answer, Exception):
            tell(COMMITTED)

    servers = bootstrap.split(",")
    consumer = KafkaConsumer(topic, bootstrap_servers=servers, group_id=GROUP, auto_offset_reset="earliest")
    next_commit = 0.0
    while not _stopping:
        batches = consumer.poll(timeout_ms=50)
        for partition, messages in batches.items():
            for message in messages:
                tell(READ, partition.partition, int(message.value))
        if batches and time.monotonic() >= next_commit:
            consumer.commit_async(callback=committed)
            next_commit = time.monotonic() + COMMIT_EVERY_S
    consumer.close()


ROLES: Final[dict[tuple[str, str], Callable[[str, str, int], None]]] = {
    ("write", "librdkafka"): write_librdkafka,
    ("write", "librdkafka-idempotent"): write_idempotently,
    ("write", "kafka-python"): write_kafka_python,
    ("read", "librdkafka"): read_librdkafka,
    ("read", "librdkafka-idempotent"): read_librdkafka,
    ("read", "kafka-python"): read_kafka_python,
}
LIBRARIES: Final = tuple(sorted({library for _, library in ROLES}))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, stop)
    _, role, library, bootstrap, topic, partitions = sys.argv
    ROLES[role, library](bootstrap, topic, int(partitions))
