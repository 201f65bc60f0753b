"""The results' arithmetic, their JSON, and the batch check."""

import json
from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.flights.check import aggregate, differences
from examples.flights.delays import (
    Cell,
    Delays,
    cell_from_json,
    delays_from_json,
    delays_of_one,
    total,
)

from .flight_rows import CANCELLED, row

NEW_YEAR_AT_NEWARK = Cell(date(2013, 1, 1), "UA", "EWR")
DELAY = st.none() | st.integers(-60, 1500)


def test_a_flight_is_late_from_fifteen_minutes_on() -> None:
    assert [delays_of_one(delay, 0).late for delay in (14, 15, None)] == [0, 1, 0]


def test_a_cancelled_flight_counts_in_no_delay() -> None:
    assert total([delays_of_one(20, 10), delays_of_one(None, None)]) == Delays(2, 1, 1, 20, 20, 1, 10)


def test_a_diverted_flight_left_but_did_not_arrive() -> None:
    assert delays_of_one(-3, None) == Delays(1, 0, 0, -3, -3, 0, 0)


@given(st.lists(st.tuples(DELAY, DELAY)), st.integers(0, 10))
def test_a_total_does_not_depend_on_how_flights_were_grouped(flights: list[tuple[int, int]], cut: int) -> None:
    each = [delays_of_one(*flight) for flight in flights]
    assert total(each) == total(each[:cut]).merged(total(each[cut:]))


@pytest.mark.parametrize("utc_offset_hours", [-5, -4], ids=["standard time", "summer time"])
@pytest.mark.parametrize("clock", ["01:00", "12:00", "23:59"])
def test_a_window_is_a_new_york_calendar_day_in_winter_and_in_summer(utc_offset_hours: int, clock: str) -> None:
    new_york = timezone(timedelta(hours=utc_offset_hours))
    departure = datetime.fromisoformat(f"2013-03-10T{clock}").replace(tzinfo=new_york).astimezone(UTC)
    window_start = next(
        start
        for start in (datetime(2013, 3, day, 5, tzinfo=UTC) for day in range(8, 13))
        if start <= departure < start + timedelta(days=1)
    )
    key = json.dumps({"window_start": window_start.isoformat(), "carrier": "UA", "origin": "EWR"}).encode()
    assert cell_from_json(key) == Cell(date(2013, 3, 10), "UA", "EWR")


def test_spark_writes_a_null_maximum_by_leaving_it_out() -> None:
    value = b'{"flights": 2, "cancelled": 2, "carrier": "UA", "late": 0}'
    assert delays_from_json(value) == Delays(flights=2, cancelled=2)


def test_the_batch_counts_by_the_calendar_columns_of_the_file() -> None:
    rows = [row(), CANCELLED, row(origin="JFK"), row(day="2", dep_delay="120")]
    assert aggregate(rows) == {
        NEW_YEAR_AT_NEWARK: Delays(2, 1, 0, 2, 2, 1, 11),
        NEW_YEAR_AT_NEWARK._replace(origin="JFK"): Delays(1, 0, 0, 2, 2, 1, 11),
        NEW_YEAR_AT_NEWARK._replace(day=date(2013, 1, 2)): Delays(1, 0, 1, 120, 120, 1, 11),
    }


def test_differences_name_missing_wrong_and_surplus_cells() -> None:
    batch = aggregate([row(), row(origin="JFK")])
    at_newark, at_kennedy = sorted(batch)
    assert list(differences(batch, batch)) == []
    assert [line.split(":")[0] for line in differences({at_newark: Delays(flights=7)}, batch)] == [
        "2013-01-01 UA EWR",
        "2013-01-01 UA JFK",
    ]
    assert len(list(differences(batch, {at_kennedy: batch[at_kennedy]}))) == 1
