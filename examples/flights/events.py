"""Flights as keyed Kafka records in the order of event time, and what ends their stream.

A record's timestamp is its event time (the scheduled departure, an instant); its key is the aircraft, so that one
aircraft's flights stay in order; its value is JSON. The source file knows no aircraft for a few flights, most of them
cancelled: those are keyed by their flight number.

The stream ends with one marker per partition, a record without a value, of which only the timestamp counts: it moves
the watermark past the last window, which would otherwise stay open for ever.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

from examples import feed
from examples.flights.dataset import NOT_AVAILABLE, Row, minutes
from examples.flights.delays import ALLOWED_LATENESS, WINDOW
from pybroker.pipeline.records import Record

END_MARKER_KEY = b"end-of-stream"


def flight_events(rows: Iterable[Row]) -> list[Record]:
    """The flights as records, by scheduled departure; flights of the same minute keep the order of the file."""
    events = [Record(_key(row), _value(row), _scheduled_departure_ms(row)) for row in rows]
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


def end_marker(last: Record) -> Record:
    """What closes the window of the last flight: beyond it by a window and by the allowed lateness."""
    return Record(END_MARKER_KEY, None, last.timestamp_ms + (WINDOW + ALLOWED_LATENESS) // timedelta(milliseconds=1))


def produce(bootstrap: str, topic: str, events: Sequence[Record], on_progress: Callable[[int], None]) -> int:
    """Produce all events, then an end marker to every partition; returns their number.  See `feed.produce`."""
    return feed.produce(bootstrap, topic, events, end=end_marker(events[-1]), on_progress=on_progress).total
