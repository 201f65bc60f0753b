"""Metrics: this machine's own, sampled from /proc for some seconds, as means and rates per second. Linux.

`python -m examples.uses.metrics --seconds 10`.  A gauge (memory, load) has its mean and its maximum in each
second; of a counter (processor time, context switches, pages) the rate counts, from its first to its last sample.  A
counter that is smaller than before was reset, and has no rate in that second.
"""

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer
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

SAMPLES, BY_SECOND = "metric-samples", "metrics-by-second"

PROC = Path("/proc")
SAMPLE_EVERY_S = 0.1
DIGITS = 2  # of means and rates, behind the point
ALLOWED_LATENESS = "10 seconds"
END_AFTER = timedelta(minutes=1)
CPU_COUNTERS = ("user", "nice", "system", "idle", "iowait")
MEMORY_GAUGES = ("MemAvailable", "Cached", "Dirty")


def samples(seconds: float, proc: Path = PROC) -> Iterator[Record]:
    """What /proc says, again and again, for so many seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        now = time.time()
        yield from (
            json_record(name, {"metric": name, "kind": kind, "value": value}, now)
            for name, kind, value in (*_counters(proc), *_gauges(proc))
        )
        time.sleep(SAMPLE_EVERY_S)


def _counters(proc: Path) -> Iterator[tuple[str, str, float]]:
    for line in (proc / "stat").read_text().splitlines():
        name, *cells = line.split()
        if name == "cpu":
            for state, ticks in zip(CPU_COUNTERS, cells, strict=False):
                yield f"cpu.{state}_ticks", "counter", float(ticks)
        elif name in ("ctxt", "processes"):
            yield name, "counter", float(cells[0])


def _gauges(proc: Path) -> Iterator[tuple[str, str, float]]:
    for line in (proc / "meminfo").read_text().splitlines():
        name, value, *_ = line.split()
        if name.rstrip(":") in MEMORY_GAUGES:
            yield f"memory.{name.rstrip(':')}_kb", "gauge", float(value)
    yield "load.1_minute", "gauge", float((proc / "loadavg").read_text().split()[0])


def summarize(topics: Topics) -> Outputs:
    """Per metric and second, once it is over: samples, and mean and maximum, or the rate per second."""
    found = readable(decode(topics.stream(SAMPLES), json_of("metric string, kind string, value double")))
    # In whole milliseconds: seconds since 1970 as a double are off by a quarter of a microsecond.
    value, time_ms = F.col("value.value"), F.unix_millis("timestamp")
    first, last = F.min_by(value, "timestamp"), F.max_by(value, "timestamp")
    span_s = (F.max(time_ms) - F.min(time_ms)) / 1000
    is_counter = F.first("value.kind") == "counter"
    seconds = (
        found.withWatermark("timestamp", ALLOWED_LATENESS)
        .groupBy(F.window("timestamp", "1 second").alias("window"), F.col("value.metric").alias("metric"))
        .agg(
            F.count(value).alias("samples"),
            F.when(~is_counter, F.avg(value)).alias("mean"),
            F.when(~is_counter, F.max(value)).alias("max"),
            F.when(is_counter & (last >= first) & (span_s > 0), (last - first) / span_s).alias("rate_per_s"),
        )
    )
    key = F.concat_ws("@", "metric", F.date_format("window.start", "yyyy-MM-dd'T'HH:mm:ss'Z'"))
    value = F.struct("samples", *(F.round(name, DIGITS).alias(name) for name in ("mean", "max", "rate_per_s")))
    at = F.col("window.start").alias("timestamp")
    return {BY_SECOND: seconds.select(key.alias("key"), F.to_json(value).alias("value"), at)}


USE = Use(summarize, SAMPLES, streams=(BY_SECOND,))


def main(
    seconds: Annotated[float, typer.Option(help="How long to sample.")] = 10.0,
    bootstrap: Bootstrap = None,
    master: Master = LOCAL_MASTER,
) -> None:
    """Sample this machine's /proc, and sum it up by the second."""
    records = list(samples(seconds))
    run(USE, records, bootstrap, Console(), end_after(records[-1], END_AFTER), master=master)


if __name__ == "__main__":
    command_of(main, "job")()
