"""Rows as the source file has them, for tests that do not need the file."""

from examples.flights.dataset import Row

ON_TIME = {
    "year": "2013",
    "month": "1",
    "day": "1",
    "dep_delay": "2",
    "arr_delay": "11",
    "carrier": "UA",
    "flight": "1545",
    "tailnum": "N14228",
    "origin": "EWR",
    "dest": "IAH",
    "minute": "15",
    "time_hour": "2013-01-01T10:00:00Z",
}
CANCELLED = {**ON_TIME, "dep_delay": "NA", "arr_delay": "NA", "tailnum": "NA"}


def row(**cells: str) -> Row:
    """United's 1545, which left at 05:15 on New Year's morning, with some cells replaced."""
    return {**ON_TIME, **cells}
