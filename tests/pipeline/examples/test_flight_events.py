"""Flights become records: their time, key, value and order."""

import json
from datetime import UTC, datetime, timedelta

from examples.flights.delays import ALLOWED_LATENESS, WINDOW, WINDOW_OFFSET
from examples.flights.events import end_marker, flight_events
from pybroker.pipeline.records import Record

from .flight_rows import CANCELLED, row


def milliseconds(*instant: int) -> int:
    return int(datetime(*instant, tzinfo=UTC).timestamp() * 1000)  # type: ignore[misc, arg-type]


def test_timestamp_is_the_scheduled_departure_as_an_instant() -> None:
    (winter,) = flight_events([row()])
    assert winter.timestamp_ms == milliseconds(2013, 1, 1, 10, 15)


def test_events_come_in_the_order_of_scheduled_departure() -> None:
    rows = [row(minute="30"), row(time_hour="2013-01-01T09:00:00Z"), row(minute="5")]
    times = [event.timestamp_ms for event in flight_events(rows)]
    assert times == [milliseconds(2013, 1, 1, *time) for time in ((9, 15), (10, 5), (10, 30))]


def test_flights_of_the_same_minute_keep_the_order_of_the_file() -> None:
    events = flight_events([row(tailnum="N2"), row(tailnum="N1")])
    assert [event.key for event in events] == [b"N2", b"N1"]


def test_the_key_is_the_aircraft_or_the_flight_number_where_that_is_unknown() -> None:
    assert [event.key for event in flight_events([row(), CANCELLED])] == [b"N14228", b"UA1545"]


def test_the_value_is_json_with_null_for_what_is_unknown() -> None:
    flown, cancelled = (json.loads(event.value) for event in flight_events([row(dep_delay="-2"), CANCELLED]))
    assert flown == {
        "carrier": "UA",
        "flight": 1545,
        "origin": "EWR",
        "destination": "IAH",
        "departure_delay_minutes": -2,
        "arrival_delay_minutes": 11,
    }
    assert cancelled == {**flown, "departure_delay_minutes": None, "arrival_delay_minutes": None}


def test_the_end_marker_moves_the_watermark_past_the_window_of_the_last_flight() -> None:
    last = datetime(2013, 12, 31, 5, 0, tzinfo=UTC)
    marker = datetime.fromtimestamp(end_marker(Record(timestamp=last)).timestamp_ms / 1000, UTC)
    window_end = datetime(2013, 12, 31, tzinfo=UTC) + WINDOW_OFFSET + WINDOW
    assert marker - ALLOWED_LATENESS >= window_end
    assert marker - last < timedelta(days=30)
