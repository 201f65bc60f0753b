"""The main job on real input, through a broker and Spark, and its crash half way. Starts JVMs.

Needs what `scripts/spark-setup` installs; without it these tests fail, and do not skip.
"""

import os
from collections.abc import Iterator
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pybroker.pipeline.flights import dataset
from pybroker.pipeline.flights.check import aggregate, differences
from pybroker.pipeline.flights.delays import total
from pybroker.pipeline.flights.demo import DemoFailed, DemoOptions, create_topics, job_options, run
from pybroker.pipeline.flights.events import flight_events, produce
from pybroker.pipeline.flights.job_options import JobOptions
from pybroker.pipeline.flights.processes import JobProcess, own_broker
from pybroker.pipeline.flights.results import end_offsets, read_results

pytestmark = pytest.mark.jvm


@pytest.fixture
def bootstrap(tmp_path: Path) -> Iterator[str]:
    with own_broker(tmp_path / "data", tmp_path / "broker.log") as address:
        yield address


def run_job(options: JobOptions, log_path: Path) -> dict[str, Any]:
    """Runs the job to its end; returns what its Parquet files hold."""
    with JobProcess(options, log_path) as job:
        return next(line["parquet"] for line in job.lines() if "parquet" in line)


def crash_job(options: JobOptions, log_path: Path, after_batches: int) -> None:
    with JobProcess(options, log_path) as job:
        told = list(islice(job.lines(), after_batches))
    assert len(told) == after_batches


def test_the_source_has_every_flight_of_the_year() -> None:
    assert sum(1 for _ in dataset.rows()) == dataset.FLIGHTS_TOTAL


def test_demo_finds_what_the_batch_finds_though_spark_is_killed_half_way() -> None:
    shown = StringIO()
    outcome = run(DemoOptions(months=1), Console(file=shown, width=80))
    assert outcome.results == aggregate(dataset.rows(months=1))
    assert outcome.job_runs == 2
    assert "JetBlue Airways" in shown.getvalue()


def test_results_written_twice_by_a_crash_before_the_commit_count_once(bootstrap: str, tmp_path: Path) -> None:
    """The crash that an at-least-once sink is about: a micro-batch is in the topic, but not yet in the checkpoint."""
    rows = list(dataset.rows(months=2))
    options = DemoOptions(bootstrap, months=2)
    create_topics(options)
    job = job_options(options, len(rows), tmp_path)
    produce(bootstrap, options.flights_topic, flight_events(rows), lambda count: None)
    crash_job(job, tmp_path / "spark.log", after_batches=4)
    newest_commit = max(int(name) for name in os.listdir(job.checkpoint_dir / "commits") if name.isdecimal())
    (job.checkpoint_dir / "commits" / str(newest_commit)).unlink()

    parquet = run_job(job, tmp_path / "spark.log")

    latest = read_results(bootstrap, end_offsets(bootstrap, options.delays_topic), "table", 2, lambda count: None)
    expected = aggregate(rows)
    assert list(differences(latest.results(), expected)) == []
    assert latest.records_read > len(expected)
    assert parquet == {"rows": len(expected), "cells": len(expected), **total(expected.values())._asdict()}


def test_demo_refuses_topics_that_exist(bootstrap: str) -> None:
    create_topics(DemoOptions(bootstrap))
    with pytest.raises(DemoFailed, match="exists"):
        run(DemoOptions(bootstrap), Console(file=StringIO()))
