"""A steady load on many topics through librdkafka: ``python -m check_it_yourself.shape_load JOB``.

One producer sends records in turn to all topics, at a rate that it holds by the clock, and one consumer reads all of
them.  A record is due at a moment, from which its latencies are counted: a stall is counted for each record that it
holds up, and not for one.  Prints an ``Outcome`` as JSON.
"""

from __future__ import annotations

import json
import struct
import sys
import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from confluent_kafka import Consumer, KafkaError, Message, Producer

PATIENCE_S = 60.0
MOMENT = struct.Struct(">d")
MESSAGES = 1_000
# The moment of the first record of each topic, for which librdkafka looks the topic up: it is not counted.
NOT_COUNTED = 0.0


@dataclass(frozen=True, slots=True)
class Job:
    """Send ``records`` of ``record_bytes`` to the topics, ``rate`` a second."""

    bootstrap: str
    topics: Sequence[str]
    records: int
    rate: int
    record_bytes: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """The 99th percentiles from when a record was due: to its acknowledgement, and to the consumer."""

    publish_p99_ms: float
    end_to_end_p99_ms: float


@dataclass
class Latencies:
    """Seconds, one for each record that arrived; ``lost`` says why the first one did not."""

    seconds: list[float] = field(default_factory=list)
    lost: str | None = None

    def note(self, value: bytes | None) -> None:
        """A record has come that carries the moment at which it was due."""
        (due,) = MOMENT.unpack_from(value or b"")
        if due != NOT_COUNTED:
            self.seconds.append(time.perf_counter() - due)

    def acknowledged(self, error: KafkaError | None, message: Message) -> None:
        """librdkafka's report of a delivery."""
        if error is None:
            self.note(message.value())
        else:
            self.lost = self.lost or str(error)


def p99_ms(seconds: Sequence[float]) -> float:
    """The 99th percentile in ms, by the nearest rank."""
    return 1000 * sorted(seconds)[min(len(seconds) - 1, int(len(seconds) * 0.99))]


def produce(job: Job, latencies: Latencies) -> None:
    """Send one to each topic, then all that count, each when it is due, and wait for their acknowledgements."""
    producer = Producer({"bootstrap.servers": job.bootstrap, "acks": "all", "linger.ms": 1})
    padding = bytes(job.record_bytes - MOMENT.size)
    for topic in job.topics:
        producer.produce(topic, MOMENT.pack(NOT_COUNTED) + padding, on_delivery=latencies.acknowledged)
    producer.flush(PATIENCE_S)
    begun = time.perf_counter()
    for number in range(job.records):
        due = begun + number / job.rate
        while (left := due - time.perf_counter()) > 0:
            producer.poll(left)
        producer.produce(
            job.topics[number % len(job.topics)], MOMENT.pack(due) + padding, on_delivery=latencies.acknowledged
        )
    producer.flush(PATIENCE_S)


def consume(consumer: Consumer, records: int, latencies: Latencies) -> None:
    """Take so many, unless none comes for a while."""
    while len(latencies.seconds) < records:
        messages = consumer.consume(1, PATIENCE_S) + consumer.consume(MESSAGES, 0)
        if not messages:
            return
        for message in messages:
            if message.error() is not None:
                latencies.lost = latencies.lost or str(message.error())
                return
            latencies.note(message.value())


def assigned_consumer(job: Job) -> Consumer:
    """A consumer that has been assigned all partitions: the load begins when it listens, and not before."""
    consumer = Consumer(
        {
            "bootstrap.servers": job.bootstrap,
            "group.id": uuid.uuid4().hex,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 100,
        }
    )
    assigned = threading.Event()
    consumer.subscribe(list(job.topics), on_assign=lambda *_: assigned.set())
    deadline = time.monotonic() + PATIENCE_S
    while not assigned.is_set():
        consumer.poll(0.1)
        if time.monotonic() > deadline:
            raise TimeoutError("the consumer was assigned no partitions")
    return consumer


def run(job: Job) -> Outcome:
    """Do the job; raises ``RuntimeError`` where a record was not acknowledged or did not arrive."""
    published, arrived = Latencies(), Latencies()
    consumer = assigned_consumer(job)
    reading = threading.Thread(target=consume, args=(consumer, job.records, arrived))
    reading.start()
    produce(job, published)
    reading.join()
    consumer.close()
    for what, latencies in (("acknowledged", published), ("consumed", arrived)):
        if latencies.lost or len(latencies.seconds) != job.records:
            raise RuntimeError(f"{len(latencies.seconds)} of {job.records} records were {what}; {latencies.lost or ''}")
    return Outcome(p99_ms(published.seconds), p99_ms(arrived.seconds))


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asdict(run(Job(**json.loads(sys.argv[1]))))) + "\n")
