"""5 million JSON events through a keyed window into a topic: exactly once, and by Spark's own source and sink.

Both outputs are read back by a committed reader, and compared with what a count in plain Python says.
"""

from __future__ import annotations

import uuid
from functools import partial

from confluent_kafka import Consumer, TopicPartition

from bench.contestants import PYBROKER
from bench.context import Context
from bench.spark_load import CONNECTOR_FORMAT, FORMATS, PYBROKER_FORMAT, WINDOW, Job
from bench.spark_runs import alternate_formats, seconds_of
from bench.spark_topics import (
    MINUTE_MS,
    PARTITIONS,
    RECORDS,
    WARMUP_RECORDS,
    fill_events,
    readings_by_minute,
    written_readings,
)
from bench.wire import Client

READ_TIMEOUT_S = 30.0


def run(context: Context) -> None:
    """Fill a topic, then run the job by both formats in every round, each time into a topic of its own."""
    topic, warmup_topic = (f"bench-{kind}-{uuid.uuid4().hex[:8]}" for kind in ("events", "warm-up"))
    expected = readings_by_minute(RECORDS, MINUTE_MS)
    with context.running_one(PYBROKER) as broker:
        fill_events(broker.bootstrap, topic, RECORDS)
        fill_events(broker.bootstrap, warmup_topic, WARMUP_RECORDS)
        for formats in alternate_formats(context, FORMATS):
            rates = {}
            for name in formats:
                output, warmup_output = (
                    f"bench-{kind}-{uuid.uuid4().hex[:8]}" for kind in ("output", "warm-up-output")
                )
                with Client(broker.bootstrap) as client:
                    client.create_topic(output, PARTITIONS)
                    client.create_topic(warmup_output, PARTITIONS)
                job = Job(WINDOW, name, broker.bootstrap, topic, warmup_topic, output, warmup_output)
                rates[name] = RECORDS / seconds_of(job)
                if (found := written_readings(records_of(broker.bootstrap, output))) != expected:
                    raise RuntimeError(f"{name} wrote {found.total()} readings, and not {expected.total()}")
                context.add(f"window, {name}", "rows/s", PYBROKER, rates[name])
            context.add(
                "window, against the connector", "×", PYBROKER, rates[PYBROKER_FORMAT] / rates[CONNECTOR_FORMAT]
            )


def records_of(bootstrap: str, topic: str) -> list[tuple[str, str]]:
    """Keys and values of all committed records."""
    found: list[tuple[str, str]] = []
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
        left = PARTITIONS
        for message in iter(partial(consumer.poll, READ_TIMEOUT_S), None):
            if message.error() is not None:
                left -= 1
                if not left:
                    return found
            else:
                found.append(((message.key() or b"").decode(), (message.value() or b"").decode()))
        raise RuntimeError(f"{topic} was not read to its end in {READ_TIMEOUT_S:.0f} s")
    finally:
        consumer.close()
