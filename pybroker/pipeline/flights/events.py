"""Flights as keyed Kafka records in the order of event time, and producing them with kafka-python.

A record's timestamp is its event time (the scheduled departure, an instant); its key is the aircraft, so that one
aircraft's flights stay in order; its value is JSON. The source file knows no aircraft for a few flights, most of them
cancelled: those are keyed by their flight number.

The stream ends with one marker per partition, a record without a value, of which only the timestamp counts: it moves
the watermark past the last window, which would otherwise stay open for ever.
"""

import json
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from kafka import KafkaProducer

from pybroker.pipeline.flights.dataset import NOT_AVAILABLE, Row, minutes
from pybroker.pipeline.flights.delays import ALLOWED_LATENESS, WINDOW

END_MARKER_KEY = b"end-of-stream"
PROGRESS_EVERY_RECORDS = 2_000


class FlightEvent(NamedTuple):
    """One record of the flights topic, before it has a partition. Timestamps are milliseconds since the epoch."""

    timestamp_ms: int
    key: bytes
    value: bytes


class ProduceFailed(RuntimeError):
    """The broker did not acknowledge every record."""


def flight_events(rows: Iterable[Row]) -> list[FlightEvent]:
    """The flights as records, by scheduled departure; flights of the same minute keep the order of the file."""
    events = [FlightEvent(_scheduled_departure_ms(row), _key(row), _value(row)) for row in rows]
    events.sort(key=lambda event: event.timestamp_ms)
    return events


def _scheduled_departure_ms(row: Row) -> int:
    hour = datetime.fromisoformat(row["time_hour"])
    return int((hour + timedelta(minutes=int(row["minute"]))).timestamp() * 1000)


def _key(row: Row) -> bytes:
    tail_number = row["tailnum"]
    return (row["carrier"] + row["flight"] if tail_number == NOT_AVAILABLE else tail_number).encode()


def _value(row: Row) -> bytes:
    event = {
        "carrier": row["carrier"],
        "flight": int(row["flight"]),
        "origin": row["origin"],
        "destination": row["dest"],
        "departure_delay_minutes": minutes(row["dep_delay"]),
        "arrival_delay_minutes": minutes(row["arr_delay"]),
    }
    return json.dumps(event, separators=(",", ":")).encode()


def end_marker_timestamp_ms(last_timestamp_ms: int) -> int:
    """An event time that closes the window of the last flight: beyond it by a window and by the allowed lateness."""
    return last_timestamp_ms + int((WINDOW + ALLOWED_LATENESS) / timedelta(milliseconds=1))


def produce(bootstrap: str, topic: str, events: list[FlightEvent], on_progress: Callable[[int], None]) -> int:
    """Produces all events, then an end marker to every partition; returns the number of records produced.

    The markers leave only when every event is acknowledged, so that none can overtake one. `on_progress` is called now
    and then with the number of records handed over since its last call. Raises `ProduceFailed`.
    """
    failures: list[BaseException] = []
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        client_id="flights",
        acks="all",
        compression_type="lz4",
        linger_ms=20,
        batch_size=128 * 1024,
    )
    try:
        for sent, event in enumerate(events, 1):
            future = producer.send(topic, event.value, event.key, timestamp_ms=event.timestamp_ms)
            future.add_errback(failures.append)
            if sent % PROGRESS_EVERY_RECORDS == 0:
                on_progress(PROGRESS_EVERY_RECORDS)
        producer.flush()
        _raise_first(failures)
        partitions = producer.partitions_for(topic)
        end_ms = end_marker_timestamp_ms(events[-1].timestamp_ms)
        for partition in sorted(partitions):
            marker = producer.send(topic, key=END_MARKER_KEY, partition=partition, timestamp_ms=end_ms)
            marker.add_errback(failures.append)
        producer.flush()
        _raise_first(failures)
    finally:
        producer.close()
    on_progress(len(events) % PROGRESS_EVERY_RECORDS + len(partitions))
    return len(events) + len(partitions)


def _raise_first(failures: list[BaseException]) -> None:
    if failures:
        raise ProduceFailed(f"{len(failures)} records were not acknowledged") from failures[0]
