"""The demo from end to end: produce the flights, run the job (crashing it half way), read the results, check them.

Owns the order of things and what people see of it. Everything that a run writes, but the topics of a broker that is
not its own, is gone when it ends.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from examples import feed
from examples.flights import check, dataset
from examples.flights.delays import Results, total
from examples.flights.events import flight_events, produce
from examples.flights.failures import RunFailed
from examples.flights.job_options import LOCAL_MASTER, JobOptions
from examples.flights.processes import JobProcess, given_or_own_broker
from examples.flights.results import LatestResults, end_offsets, read_results
from examples.flights.table import delay_table

DIFFERENCES_SHOWN = 10


class DemoOptions(NamedTuple):
    """What a run does. Without a `bootstrap` it starts a broker of its own; `crash_half_way` kills Spark once."""

    bootstrap: str | None = None
    months: int = 12
    flights_topic: str = "flights"
    delays_topic: str = "flight-delays"
    partitions: int = 4
    consumers: int = 2
    micro_batches: int = 8
    crash_half_way: bool = True
    master: str = LOCAL_MASTER


class DemoOutcome(NamedTuple):
    """What a run found: the results, as a table too, the records it took to carry them, and Spark's starts."""

    results: Results
    table: Table
    result_records: int
    job_runs: int


class DemoFailed(RunFailed):
    """The stream's results are not those of the batch, or a topic stands in the way."""


def run(options: DemoOptions, console: Console) -> DemoOutcome:
    """Runs the demo, shows its progress and its results, and checks them; raises `DemoFailed`."""
    started_at = monotonic()
    with tempfile.TemporaryDirectory(prefix="pybroker-flights-") as directory:
        work_dir = Path(directory)
        with given_or_own_broker(options.bootstrap, work_dir) as bootstrap:
            console.print(f"The broker is at {bootstrap}.")
            outcome = _stream(bootstrap, options, work_dir, console)
    console.print(outcome.table)
    console.print(
        f"{total(outcome.results.values()).flights:,} flights in {len(outcome.results):,} results "
        f"({outcome.result_records:,} records, runs of Spark: {outcome.job_runs}): "
        f"the topic and the Parquet files equal the same aggregation done in batch. {monotonic() - started_at:.0f} s."
    )
    return outcome


def _stream(bootstrap: str, options: DemoOptions, work_dir: Path, console: Console) -> DemoOutcome:
    create_topics(bootstrap, options)
    with _progress(console) as progress:
        records = _produce(bootstrap, options, progress)
        job = job_options(bootstrap, options, records, work_dir)
        parquet, job_runs = _run_job(job, records, options.crash_half_way, work_dir, progress)
        latest = _read(bootstrap, options, progress)
    results = latest.results()
    _check(results, parquet, check.aggregate(dataset.rows(options.months)))
    table = delay_table(results, dataset.airline_names())
    return DemoOutcome(results, table, latest.records_read, job_runs)


def create_topics(bootstrap: str, options: DemoOptions) -> None:
    """Creates the topics for flights and for results; raises `DemoFailed` where one exists.

    The last result of a key wins, so that a compacted topic is the place for them.
    """
    try:
        feed.create_topics(
            bootstrap,
            [options.flights_topic],
            [options.delays_topic],
            stream_partitions=options.partitions,
            table_partitions=options.consumers,
        )
    except feed.TopicExists as error:
        raise DemoFailed("a topic of the demo exists: delete it, or choose other names") from error


def _produce(bootstrap: str, options: DemoOptions, progress: Progress) -> int:
    """Produces the stream; returns its number of records."""
    events = flight_events(dataset.rows(options.months))
    produced = progress.add_task("Produce the flights", total=len(events) + options.partitions)
    return produce(bootstrap, options.flights_topic, events, _advancer(progress, produced))


def job_options(bootstrap: str, options: DemoOptions, records: int, work_dir: Path) -> JobOptions:
    """The job that takes a stream of so many records in the demo's number of micro-batches."""
    return JobOptions(
        bootstrap=bootstrap,
        flights_topic=options.flights_topic,
        delays_topic=options.delays_topic,
        parquet_dir=work_dir / "parquet",
        checkpoint_dir=work_dir / "checkpoint",
        batch_records_max=-(-records // options.micro_batches),
        master=options.master,
    )


def _run_job(
    options: JobOptions, records: int, crash_half_way: bool, work_dir: Path, progress: Progress
) -> tuple[dict[str, Any], int]:
    """Runs the job to its end; returns what it found in its Parquet files, and how often it was started."""
    aggregated = progress.add_task("Aggregate them (Spark)", total=records)
    if crash_half_way:
        with JobProcess(options, work_dir) as job:
            # The next micro-batch is under way when one is told: the kill hits it in flight.
            for line in job.lines():
                _follow(line, progress, aggregated)
                if line["progress"]["records_read"] >= records // 2:
                    break
        progress.console.print("Spark was killed half way, and starts again from its checkpoint.")
    with JobProcess(options, work_dir) as job:
        for line in job.lines():
            _follow(line, progress, aggregated)
    return line["parquet"], 1 + crash_half_way


def _follow(line: dict[str, Any], progress: Progress, task: TaskID) -> None:
    """Shows one line of what the job tells; raises `DemoFailed` if it dropped a flight."""
    if batch := line.get("progress"):
        progress.update(task, completed=batch["records_read"])
        if batch["late_rows"] or batch["unreadable_rows"]:
            raise DemoFailed(f"flights came later than the watermark allows, or were unreadable: {batch}")


def _read(bootstrap: str, options: DemoOptions, progress: Progress) -> LatestResults:
    ends = end_offsets(bootstrap, options.delays_topic)
    read = progress.add_task("Read the results (consumer group)", total=sum(ends.values()))
    group_id = f"{options.delays_topic}-table"
    return read_results(bootstrap, ends, group_id, options.consumers, _advancer(progress, read))


def _check(results: Results, parquet: dict[str, Any], expected: Results) -> None:
    differences = list(check.differences(results, expected))
    if differences:
        shown = "\n".join(differences[:DIFFERENCES_SHOWN])
        raise DemoFailed(f"{len(differences)} results are not those of the batch:\n{shown}")
    parquet_expected = {"rows": len(expected), "cells": len(expected), **total(expected.values())._asdict()}
    if parquet != parquet_expected:
        raise DemoFailed(f"the Parquet files hold {parquet}, the batch {parquet_expected}")


def _progress(console: Console) -> Progress:
    description = TextColumn("{task.description:<34}")
    return Progress(description, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console)


def _advancer(progress: Progress, task: TaskID) -> Callable[[int], None]:
    return lambda count: progress.advance(task, count)
