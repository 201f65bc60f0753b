"""The table of flights in PostgreSQL: a row for each departure from New York, in the order of the schedule.

Owns the table's columns, and how the source file's cells become them.  A delay that is null is of a flight that was
cancelled, or never arrived.
"""

import csv
import io
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta

from examples.flights import dataset
from examples.flights.dataset import NOT_AVAILABLE, Row

FIRST_DAY = date(2013, 1, 1)
DAYS_MAX = 365

CREATE = """\
CREATE TABLE flights (
  id bigint PRIMARY KEY,
  scheduled timestamptz NOT NULL,
  hour int NOT NULL,
  origin text NOT NULL,
  destination text NOT NULL,
  carrier text NOT NULL,
  flight int NOT NULL,
  departure_delay int,
  arrival_delay int
)"""
COPY = "COPY flights FROM STDIN WITH (FORMAT csv)"

Cells = tuple[str, ...]


def rows(days: int) -> list[Cells]:
    """The flights of the year's first days, with an ``id`` that grows with the schedule."""
    behind = FIRST_DAY + timedelta(days=days)
    last_month = (behind - timedelta(days=1)).month
    found = [row for row in dataset.rows(last_month) if _day(row) < behind]
    found.sort(key=lambda row: (_scheduled(row), row["carrier"], int(row["flight"])))
    return [(str(number), *_cells(row)) for number, row in enumerate(found, 1)]


def as_csv(rows: Sequence[Cells]) -> str:
    """Rows as `COPY` reads them; an empty cell is null."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _cells(row: Row) -> Iterator[str]:
    yield _scheduled(row).isoformat()
    for name in ("hour", "origin", "dest", "carrier", "flight", "dep_delay", "arr_delay"):
        yield "" if row[name] == NOT_AVAILABLE else row[name]


def _day(row: Row) -> date:
    return date(int(row["year"]), int(row["month"]), int(row["day"]))


def _scheduled(row: Row) -> datetime:
    return datetime.fromisoformat(row["time_hour"]) + timedelta(minutes=int(row["minute"]))
