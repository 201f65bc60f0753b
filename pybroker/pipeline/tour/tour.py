"""The tour from end to end, and what people see of it.

Owns the order of chapters, the processes (a broker, PostgreSQL, Spark) and the folder that is left: the plot and the
Parquet files.  All else that a run writes, but the topics of a broker that is not its own, is gone when it ends.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import NamedTuple

import pandas as pd
from pyspark.sql import SparkSession
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from pybroker.pipeline.flights import demo
from pybroker.pipeline.flights.processes import given_or_own_broker
from pybroker.pipeline.spark_session import end_session, session, short_lived
from pybroker.pipeline.tour import chapters
from pybroker.pipeline.tour.chapters import BY_WEATHER, HOURS, Stage
from pybroker.pipeline.tour.picture import TIME_ZONE, draw
from pybroker.pipeline.tour.postgres import DRIVER_JAR, own_postgres

MASTER = "local[2,4]"  # a task that fails is tried again
# Spark's default for instants is a form that Parquet has given up, and that says nothing of their time zone.
PARQUET_SETTINGS = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
PICTURE, FLIGHTS = "delays.png", "flights"
UNUSUAL_SHOWN = 5


class TourOptions(NamedTuple):
    """What a run does; without a ``bootstrap`` it starts a broker of its own."""

    bootstrap: str | None = None
    months: int = 12
    output_dir: Path = Path("tour-output")
    first_chapter: bool = True
    outage: bool = True
    master: str = MASTER


def run(options: TourOptions, console: Console) -> None:
    """Run all chapters; raises what stopped one."""
    began = monotonic()
    with tempfile.TemporaryDirectory(prefix="pybroker-tour-") as directory:
        work_dir = Path(directory)
        with given_or_own_broker(options.bootstrap, work_dir) as bootstrap:
            if options.first_chapter:
                console.rule("1. Delays per airline and day, and Spark killed half way (the flights demo)")
                demo.run(demo.DemoOptions(bootstrap, options.months, master=options.master), console)
            _run_on(bootstrap, options, work_dir, console)
    console.print(f"The tour took {monotonic() - began:.0f} s.")


def _run_on(bootstrap: str, options: TourOptions, work_dir: Path, console: Console) -> None:
    console.rule("2. Flights, weather, planes and airports become topics")
    with _Shown(console) as shown:
        counts = chapters.fill_topics(bootstrap, options.months, shown)
    with own_postgres() as postgres, _spark(options.master, work_dir / "spark.log") as spark:

        def chapter(title: str, run: Callable[[Stage], str]) -> None:
            console.rule(title)
            with _Shown(console) as shown:
                said = run(Stage(spark, bootstrap, postgres, work_dir, options.months, shown))
            console.print(said, markup=False)

        chapter(
            "3. Each flight with its plane, its destination and the weather of its hour",
            lambda stage: chapters.enrich(stage, counts),
        )
        chapter("4. Into Parquet and PostgreSQL", lambda stage: chapters.keep(stage, counts))
        chapter(
            "5. Unusual hours, and the database stopped half way",
            lambda stage: chapters.watch(stage, counts, with_outage=options.outage),
        )
        console.rule("6. A picture")
        with _Shown(console) as shown:
            stage = Stage(spark, bootstrap, postgres, work_dir, options.months, shown)
            unusual = leave(stage, options.output_dir)
        console.print(unusual)
        console.print(
            f"See {options.output_dir / PICTURE}; the enriched flights are in {options.output_dir / FLIGHTS}."
        )


def unusual_table(hours: pd.DataFrame) -> Table:
    """The most unusual hours."""
    table = Table(title="The most unusual hours", box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in ("From", "Hour in New York"):
        table.add_column(name, no_wrap=True)
    for name in ("Departed", "Mean delay", "Usual", "Deviations"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in hours[hours["unusual"]].nlargest(UNUSUAL_SHOWN, "deviations").itertuples():
        delay = row.delay_sum_minutes / row.departed
        at = row.hour_start.tz_convert(TIME_ZONE)
        cells = (f"{row.departed}", f"{delay:.0f}", f"{row.usual_minutes:.0f}", f"{row.deviations:.1f}")
        table.add_row(row.origin, f"{at:%a %-d %b, %H:%M}", *cells)
    return table


def leave(stage: Stage, output_dir: Path) -> Table:
    """Leave the plot and the Parquet files, in place of those of an earlier run; returns the most unusual hours."""
    hours, by_weather = stage.table(HOURS), stage.table(BY_WEATHER)
    output_dir.mkdir(parents=True, exist_ok=True)
    draw(hours, by_weather, output_dir / PICTURE)
    if (output_dir / FLIGHTS / "_spark_metadata").exists():
        shutil.rmtree(output_dir / FLIGHTS)
    shutil.move(stage.work_dir / FLIGHTS, output_dir / FLIGHTS)
    return unusual_table(hours)


@contextmanager
def _spark(master: str, log_path: Path) -> Iterator[SparkSession]:
    """A session whose JVM writes its log to a file, instead of into the bars."""
    with _stderr_to(log_path):
        settings = {**short_lived(master), **PARQUET_SETTINGS}
        spark = session("tour", master=master, settings=settings, packages=[DRIVER_JAR])
    try:
        yield spark
    finally:
        end_session(spark)


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """What is started meanwhile has a file as its standard error, for as long as it runs."""
    ours = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)


class _Shown:
    """Bars and lines of one chapter."""

    def __init__(self, console: Console) -> None:
        description = TextColumn("{task.description:<34}")
        columns = (description, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=console)

    def __enter__(self) -> "_Shown":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def bar(self, what: str, total: int) -> Callable[[int], None]:
        """See `chapters.Shown`."""
        task = self._progress.add_task(what, total=total)
        return lambda done: self._progress.update(task, completed=min(done, total))

    def say(self, line: str) -> None:
        """See `chapters.Shown`."""
        self._progress.console.print(line, markup=False)
