"""What Spark's parts read: topics of equal records, and of JSON events in the order of their time."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

from bench.wire import Client, record_batch
from examples.feed import produce
from pybroker.pipeline.records import Record

PARTITIONS = 4
RECORDS = 5_000_000
RECORD_BYTES = 200
WARMUP_RECORDS = 400_000
BATCH_RECORDS = 500

DEVICES = 100
EVENTS_PER_MS = 1
BEGIN_MS = 1_735_689_600_000  # the first minute of 2025
MINUTE_MS = 60_000


def fill(bootstrap: str, topic: str, records: int) -> None:
    """A topic of so many records of ``RECORD_BYTES``, the same number in each partition."""
    batch = record_batch(BATCH_RECORDS, RECORD_BYTES)
    with Client(bootstrap) as client:
        client.create_topic(topic, PARTITIONS)
        for _ in range(records // (PARTITIONS * BATCH_RECORDS)):
            client.produce(topic, dict.fromkeys(range(PARTITIONS), batch))


def fill_events(bootstrap: str, topic: str, records: int) -> None:
    """A topic of so many events as JSON, keyed by device; retention would take them away, which are old, in minutes."""
    with Client(bootstrap) as client:
        client.create_topic(topic, PARTITIONS, {"retention.ms": "-1"})
    produce(bootstrap, topic, events(records))


def events(records: int) -> Iterator[Record]:
    """Events of ``DEVICES`` devices in turn, ``EVENTS_PER_MS`` a millisecond."""
    for number in range(records):
        device, at_ms = f"device-{number % DEVICES}", BEGIN_MS + number // EVENTS_PER_MS
        value = f'{{"device": "{device}", "at_ms": {at_ms}, "reading": {number % 977 / 10}}}'
        yield Record(device.encode(), value.encode(), at_ms)


def readings_by_minute(records: int, lateness_ms: int) -> Counter[str]:
    """Device@minute and its number of events, of the minutes that are over when all events have been seen."""
    found = Counter(
        f"device-{number % DEVICES}@{(BEGIN_MS + number // EVENTS_PER_MS) // MINUTE_MS * MINUTE_MS}"
        for number in range(records)
    )
    watermark_ms = BEGIN_MS + (records - 1) // EVENTS_PER_MS - lateness_ms
    return Counter({key: count for key, count in found.items() if int(key.split("@")[1]) + MINUTE_MS <= watermark_ms})


def written_readings(values: list[tuple[str, str]]) -> Counter[str]:
    """The same of keys and values that a window wrote; what is there twice counts twice."""
    found: Counter[str] = Counter()
    for key, value in values:
        found[key] += json.loads(value)["readings"]
    return found
