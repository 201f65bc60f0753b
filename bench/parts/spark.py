"""The demo's Spark job over the flights of 2013: a stream out of one topic, results into another, checked."""

from __future__ import annotations

import tempfile
import time
import uuid
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.contestants import Contestant
from bench.context import Context
from bench.parts.warmup import warm_up
from bench.wire import Client
from examples.flights import check, dataset
from examples.flights.delays import total
from examples.flights.demo import DemoOptions, create_topics, job_options
from examples.flights.events import flight_events, produce
from examples.flights.processes import JobProcess, ProcessFailed
from pybroker.pipeline.records import Record


def run(context: Context) -> None:
    """The same job on both brokers, in every round."""
    if find_spec("pyspark") is None:
        raise RuntimeError("Spark is not installed: run scripts/spark-setup")
    months = context.volume.flight_months
    expected = check.aggregate(dataset.rows(months))
    found = {"rows": len(expected), "cells": len(expected), **total(expected.values())._asdict()}
    events = flight_events(dataset.rows(months))
    with context.running() as brokers:
        warm_up(context, brokers)
        context.alternate(brokers, partial(measure, context, events, found))


def measure(context: Context, events: list[Record], expected: dict[str, Any], name: str, broker: Contestant) -> None:
    """One broker: produce the flights, then run the job over them, from the start of its process to its end."""
    flights, delays = (f"bench-{kind}-{uuid.uuid4().hex[:8]}" for kind in ("flights", "delays"))
    options = DemoOptions(broker.bootstrap, context.volume.flight_months, flights, delays)
    create_topics(broker.bootstrap, options)
    records = produce(broker.bootstrap, options.flights_topic, events, lambda count: None)
    with tempfile.TemporaryDirectory(dir=context.root) as directory:
        job_s, found = timed_job(broker, options, records, Path(directory))
    if found != expected:
        raise RuntimeError(f"the job found {found} through {name}, and not {expected}")
    with Client(broker.bootstrap) as client:
        for topic in (flights, delays):
            client.delete_topic(topic)
    context.add("job", "s", name, job_s)


def timed_job(broker: Contestant, options: DemoOptions, records: int, work_dir: Path) -> tuple[float, Any]:
    """Seconds that the job took, and what it found in its Parquet files."""
    job = job_options(broker.bootstrap, options, records, work_dir)
    started = time.perf_counter()
    try:
        with JobProcess(job, work_dir) as process:
            *_, last = process.lines()
    except ProcessFailed as failed:
        raise RuntimeError(str(failed)) from failed
    return time.perf_counter() - started, last["parquet"]
