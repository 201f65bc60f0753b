"""The vocabulary of the results, shared by the streaming job, the consumer and the batch check. Pure.

Time zones: a flight's event time is its *scheduled departure as an instant* (UTC); the source file gives it as
`time_hour`. A window is one day that begins at 05:00 UTC, midnight in New York's standard time. In summer that is
01:00 on New York's clocks, and as nothing is scheduled to leave between midnight and one, each window holds exactly
the flights of one New York calendar day. The batch check proves it: it counts by the file's own calendar columns.
"""

import json
from collections.abc import Iterable, Mapping
from datetime import date, datetime, timedelta
from typing import NamedTuple

WINDOW = timedelta(days=1)
WINDOW_OFFSET = timedelta(hours=5)

# Spark reads the same share of every partition per micro-batch, and its watermark follows the furthest of them. As the
# traffic has seasons, equal shares drift apart by up to four days of event time; what is later than this is dropped.
ALLOWED_LATENESS = timedelta(days=7)

# The United States' Department of Transportation calls a flight late from fifteen minutes on.
LATE_FROM_MINUTES = 15


class Cell(NamedTuple):
    """What a result is about: a New York calendar day, a carrier code, and the airport of departure."""

    day: date
    carrier: str
    origin: str


class Delays(NamedTuple):
    """Counts and sums over the flights of a cell. All are integers, so that two ways to add them up can be equal.

    `cancelled` flights never left and count in none of the delays; `departure_delay_max_minutes` is None where all were
    cancelled. `arrived` are those whose delay on arrival is known: neither cancelled nor diverted.
    """

    flights: int = 0
    cancelled: int = 0
    late: int = 0
    departure_delay_sum_minutes: int = 0
    departure_delay_max_minutes: int | None = None
    arrived: int = 0
    arrival_delay_sum_minutes: int = 0

    def merged(self, other: "Delays") -> "Delays":
        """The delays over the flights of both."""
        maxima = (self.departure_delay_max_minutes, other.departure_delay_max_minutes)
        return Delays(
            self.flights + other.flights,
            self.cancelled + other.cancelled,
            self.late + other.late,
            self.departure_delay_sum_minutes + other.departure_delay_sum_minutes,
            max((each for each in maxima if each is not None), default=None),
            self.arrived + other.arrived,
            self.arrival_delay_sum_minutes + other.arrival_delay_sum_minutes,
        )


Results = Mapping[Cell, Delays]


def delays_of_one(departure_delay_minutes: int | None, arrival_delay_minutes: int | None) -> Delays:
    """The delays of a single flight."""
    return Delays(
        flights=1,
        cancelled=int(departure_delay_minutes is None),
        late=int(departure_delay_minutes is not None and departure_delay_minutes >= LATE_FROM_MINUTES),
        departure_delay_sum_minutes=departure_delay_minutes or 0,
        departure_delay_max_minutes=departure_delay_minutes,
        arrived=int(arrival_delay_minutes is not None),
        arrival_delay_sum_minutes=arrival_delay_minutes or 0,
    )


def total(delays: Iterable[Delays]) -> Delays:
    """The delays over all flights of all of them."""
    result = Delays()
    for each in delays:
        result = result.merged(each)
    return result


def cell_from_json(key: bytes) -> Cell:
    """Reads a result record's key, `{"window_start": "2013-01-01T05:00:00Z", "carrier": "UA", "origin": "EWR"}`."""
    fields = json.loads(key)
    window_start = datetime.fromisoformat(fields["window_start"])
    return Cell((window_start - WINDOW_OFFSET).date(), fields["carrier"], fields["origin"])


def delays_from_json(value: bytes) -> Delays:
    """Reads a result record's value; a field that is absent keeps its default, as Spark leaves nulls out."""
    fields = json.loads(value)
    return Delays(**{name: fields[name] for name in Delays._fields if name in fields})
