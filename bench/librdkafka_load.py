"""librdkafka's producer and consumer through confluent-kafka, as fast as they go.

``python -m bench.librdkafka_load``; takes its job as JSON on stdin and prints its outcome as JSON.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from dataclasses import asdict, dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer

CONSUME_MESSAGES = 10_000
POLL_EVERY = 1_000
TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Job:
    """Produce or consume ``records`` of ``record_bytes`` each."""

    bootstrap: str
    topic: str
    kind: str
    records: int
    record_bytes: int = 1000


@dataclass(frozen=True, slots=True)
class Outcome:
    """How long it took, from the first record to the last acknowledgement or record."""

    records: int
    seconds: float


class DeliveryCount:
    """Counts acknowledgements; an error ends the run."""

    def __init__(self) -> None:
        self.delivered = 0

    def __call__(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            raise RuntimeError(str(error))
        self.delivered += 1


def produce(job: Job) -> Outcome:
    """Produce with acks=all and, unlike librdkafka's default, a linger that fills batches."""
    producer = Producer(
        {
            "bootstrap.servers": job.bootstrap,
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 1_000_000,
        }
    )
    value = bytes((index * 131 + 7) % 251 for index in range(job.record_bytes))
    count = DeliveryCount()
    started = time.perf_counter()
    for number in range(job.records):
        while True:
            try:
                producer.produce(job.topic, value, on_delivery=count)
                break
            except BufferError:
                producer.poll(0.1)
        if number % POLL_EVERY == 0:
            producer.poll(0)
    producer.flush(TIMEOUT_S)
    if count.delivered != job.records:
        raise RuntimeError(f"{count.delivered} of {job.records} records were delivered")
    return Outcome(job.records, time.perf_counter() - started)


def consume(job: Job) -> Outcome:
    """Consume from the beginning, in a group of its own, with librdkafka's defaults but for one.

    By default librdkafka stops fetching for a whole second whenever its queue is full, so that a broker which fills
    the queue faster is read more slowly.
    """
    config: dict[str, Any] = {
        "bootstrap.servers": job.bootstrap,
        "group.id": f"bench-{uuid.uuid4().hex[:8]}",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.queue.backoff.ms": 2,
    }
    consumer = Consumer(config)
    consumer.subscribe([job.topic])
    received = 0
    deadline = time.perf_counter() + TIMEOUT_S
    started = 0.0
    while received < job.records:
        messages = consumer.consume(CONSUME_MESSAGES, timeout=0.5)
        for message in messages:
            if message.error():
                raise RuntimeError(str(message.error()))
        if messages and not started:
            # Joining the group is not what is measured; the first batch is given away.
            started = time.perf_counter()
            first = len(messages)
        received += len(messages)
        if time.perf_counter() > deadline:
            raise RuntimeError(f"{received} of {job.records} records came within {TIMEOUT_S:.0f} s")
    seconds = time.perf_counter() - started
    consumer.close()
    return Outcome(received - first, seconds)


if __name__ == "__main__":
    the_job = Job(**json.load(sys.stdin))
    json.dump(asdict(produce(the_job) if the_job.kind == "produce" else consume(the_job)), sys.stdout)
