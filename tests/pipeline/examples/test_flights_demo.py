"""The main job on real input, through a broker and Spark, and its crash half way. Starts JVMs.

Needs what `scripts/spark-setup` installs; without it these tests fail, and do not skip.
"""

from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from examples.flights import dataset
from examples.flights.check import aggregate, differences
from examples.flights.delays import total
from examples.flights.demo import DemoFailed, DemoOptions, create_topics, job_options, run
from examples.flights.events import flight_events, produce
from examples.flights.job_options import JobOptions
from examples.flights.processes import JobProcess, own_broker
from examples.flights.results import LatestResults, end_offsets, read_results

pytestmark = pytest.mark.jvm(needs="spark")


@pytest.fixture
def bootstrap(tmp_path: Path) -> Iterator[str]:
    with own_broker(tmp_path / "data", tmp_path / "broker.log") as address:
        yield address


def run_job(options: JobOptions, work_dir: Path) -> list[dict[str, Any]]:
    """Runs the job to its end; returns what it told."""
    with JobProcess(options, work_dir) as job:
        return list(job.lines())


def read_latest(bootstrap: str, options: DemoOptions) -> LatestResults:
    ends = end_offsets(bootstrap, options.delays_topic)
    return read_results(bootstrap, ends, "readers", options.consumers, lambda count: None)


def crash_job(options: JobOptions, work_dir: Path, after_batches: int) -> None:
    with JobProcess(options, work_dir) as job:
        told = list(islice(job.lines(), after_batches))
    assert len(told) == after_batches


def undo_last_commit(checkpoint_dir: Path) -> None:
    """Takes a checkpoint back to the moment when its last micro-batch had written its results, and no more."""
    last = max(int(path.name) for path in (checkpoint_dir / "commits").iterdir() if path.name.isdecimal())
    for undone in (checkpoint_dir / "commits" / str(last), checkpoint_dir / "offsets" / str(last + 1)):
        undone.unlink(missing_ok=True)
        undone.with_name(f".{undone.name}.crc").unlink(missing_ok=True)


def test_the_source_has_every_flight_of_the_year() -> None:
    assert sum(1 for _ in dataset.rows()) == dataset.FLIGHTS_TOTAL


def test_demo_finds_what_the_batch_finds_though_spark_is_killed_half_way() -> None:
    shown = StringIO()
    outcome = run(DemoOptions(months=1, micro_batches=4), Console(file=shown, width=80))
    assert outcome.results == aggregate(dataset.rows(months=1))
    assert outcome.job_runs == 2
    assert "JetBlue Airways" in shown.getvalue()


def test_results_written_twice_by_a_crash_before_the_commit_count_once(bootstrap: str, tmp_path: Path) -> None:
    """The crash that an at-least-once sink is about: a micro-batch is in the topic, but not yet in the checkpoint."""
    rows = list(dataset.rows(months=1))
    options = DemoOptions(months=1, micro_batches=6)
    create_topics(bootstrap, options)
    job = job_options(bootstrap, options, len(rows), tmp_path)
    produce(bootstrap, options.flights_topic, flight_events(rows), lambda count: None)
    crash_job(job, tmp_path, after_batches=4)
    undo_last_commit(job.checkpoint_dir)

    *_, told = run_job(job, tmp_path)

    latest = read_latest(bootstrap, options)
    expected = aggregate(rows)
    assert list(differences(latest.results(), expected)) == []
    assert latest.records_read > len(expected)
    assert told["parquet"] == {"rows": len(expected), "cells": len(expected), **total(expected.values())._asdict()}


def test_an_unreadable_event_is_reported_and_spoils_no_result(bootstrap: str, tmp_path: Path) -> None:
    events = flight_events(islice(dataset.rows(months=1), 1000))
    options = DemoOptions(micro_batches=2)
    create_topics(bootstrap, options)
    garbage = [
        replace(event, value=value) for event, value in zip(events, (b"{not JSON", b'{"carrier": "UA"}'), strict=False)
    ]
    in_order = sorted(events + garbage, key=lambda event: event.timestamp_ms)
    produce(bootstrap, options.flights_topic, in_order, lambda count: None)

    told = run_job(job_options(bootstrap, options, len(events), tmp_path), tmp_path)

    assert sum(line["progress"]["unreadable_rows"] for line in told if "progress" in line) == len(garbage)
    assert read_latest(bootstrap, options).results() == aggregate(islice(dataset.rows(months=1), 1000))


def test_demo_refuses_topics_that_exist(bootstrap: str) -> None:
    create_topics(bootstrap, DemoOptions())
    with pytest.raises(DemoFailed, match="exists"):
        run(DemoOptions(bootstrap), Console(file=StringIO()))
