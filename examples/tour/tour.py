"""The tour from end to end, and what people see of it.

Owns the order of chapters, the processes (a broker, PostgreSQL, Spark) and the folder that is left: the report, the
plot and the Parquet files.  All else that a run writes, but the topics of a broker that is not its own, is gone when it
ends.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
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

from examples.flights import demo
from examples.flights.processes import given_or_own_broker
from examples.tour import chapters
from examples.tour.chapters import BY_WEATHER, HOURS, ShowDone, Stage
from examples.tour.picture import AIRPORTS, DARK, DATE, KINDS, TIME_ZONE, draw, period
from examples.tour.postgres import DRIVER_JAR, own_postgres
from examples.tour.report import Chapter, Picture, write_report
from pybroker.pipeline.spark_session import end_session, session, short_lived

MASTER = "local[2,4]"  # a task that fails is tried again
# Spark's default for instants is a form that Parquet has given up, and that says nothing of their time zone.
PARQUET_SETTINGS = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
REPORT, PICTURE, FLIGHTS = "report.html", "delays.png", "flights"
DESCRIBED = "Mean delays by day, by month and hour, by day and hour of one month, and by weather"
UNUSUAL_SHOWN = 5

FIRST = "1. Delays per airline and day, and Spark killed half way (the flights demo)"
TOPICS = "2. Flights, weather, planes and airports become topics"


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
    report: list[Chapter] = []
    with tempfile.TemporaryDirectory(prefix="pybroker-tour-") as directory:
        work_dir = Path(directory)
        with given_or_own_broker(options.bootstrap, work_dir) as bootstrap:
            if options.first_chapter:
                console.rule(FIRST)
                done = demo.run(demo.DemoOptions(bootstrap, options.months, master=options.master), console)
                report.append(Chapter(FIRST, [], [done.table]))
            _run_on(bootstrap, options, work_dir, console, report)
    console.print(f"The tour took {monotonic() - began:.0f} s.")


def _run_on(bootstrap: str, options: TourOptions, work_dir: Path, console: Console, report: list[Chapter]) -> None:
    console.rule(TOPICS)
    with _Shown(console) as shown:
        counts = chapters.fill_topics(bootstrap, options.months, shown)
    report.append(Chapter(TOPICS, [f"{topic}: {count.records:,} records." for topic, count in counts.items()]))
    with own_postgres() as postgres, _spark(options.master, work_dir / "spark.log") as spark:

        def stage(shown: _Shown) -> Stage:
            return Stage(spark, bootstrap, postgres, work_dir, options.months, shown)

        def chapter(title: str, run: Callable[[Stage], str]) -> None:
            console.rule(title)
            with _Shown(console) as shown:
                said = run(stage(shown))
            console.print(said, markup=False)
            report.append(Chapter(title, [said]))

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
            tables = leave(stage(shown), options.output_dir, report)
        for table in tables:
            console.print(table)
        console.print(
            f"See {options.output_dir / REPORT}, and {options.output_dir / PICTURE} alone; "
            f"the enriched flights are in {options.output_dir / FLIGHTS}."
        )


def _table(title: str, left: Sequence[str], right: Sequence[str]) -> Table:
    table = Table(title=title, box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in left:
        table.add_column(name, no_wrap=True)
    for name in right:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def unusual_table(hours: pd.DataFrame) -> Table:
    """The most unusual hours."""
    columns = ("Flights", "Mean delay\nminutes", "Usual\nminutes", "Standard\ndeviations")
    table = _table("The most unusual hours", ("From", "Hour in New York"), columns)
    for row in hours[hours["unusual"]].nlargest(UNUSUAL_SHOWN, "deviations").itertuples():
        delay = row.delay_sum_minutes / row.departed
        at = row.hour_start.tz_convert(TIME_ZONE)
        cells = (f"{row.departed}", f"{delay:z.0f}", f"{row.usual_minutes:z.0f}", f"{row.deviations:z.1f}")
        table.add_row(AIRPORTS[row.origin], f"{at:%a {DATE}, %H:%M}", *cells)
    return table


def weather_table(by_weather: pd.DataFrame) -> Table:
    """Flights and mean delays by kind of weather."""
    minutes = (f"{name}\nminutes" for name in AIRPORTS.values())
    table = _table("Delays by the weather of the hour", ("Weather",), ("Flights", *minutes))
    for kind in KINDS:
        of_kind = by_weather[by_weather["weather"] == kind].set_index("origin")
        if len(of_kind):
            means = (of_kind["delay_sum_minutes"] / of_kind["departed"]).reindex(list(AIRPORTS))
            cells = ("" if pd.isna(mean) else f"{mean:z.1f}" for mean in means)
            table.add_row(kind, f"{of_kind['flights'].sum():,}", *cells)
    return table


def leave(stage: Stage, output_dir: Path, report: Sequence[Chapter]) -> list[Table]:
    """Leave report, plot and Parquet files, in place of those of an earlier run; returns the last chapter's tables."""
    hours, by_weather = stage.table(HOURS), stage.table(BY_WEATHER)
    output_dir.mkdir(parents=True, exist_ok=True)
    picture = Picture(output_dir / PICTURE, stage.work_dir / PICTURE, DESCRIBED)
    draw(hours, by_weather, picture.light)
    draw(hours, by_weather, picture.dark, DARK)
    tables = [unusual_table(hours), weather_table(by_weather)]
    title = f"Departures from New York, {period(hours['hour_start'].dt.tz_convert(TIME_ZONE))}"
    last = Chapter("6. Unusual hours, and the weather", [], tables)
    write_report(output_dir / REPORT, title, [*report, last], picture)
    if (output_dir / FLIGHTS / "_spark_metadata").exists():
        shutil.rmtree(output_dir / FLIGHTS)
    shutil.move(stage.work_dir / FLIGHTS, output_dir / FLIGHTS)
    return tables


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
        doing = TextColumn("{task.fields[doing]}")
        columns = (description, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), doing)
        self._progress = Progress(*columns, console=console)

    def __enter__(self) -> "_Shown":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def bar(self, what: str, total: int) -> ShowDone:
        """See `chapters.Shown`."""
        task = self._progress.add_task(what, total=total, doing="")
        return lambda done, doing="": self._progress.update(task, completed=min(done, total), doing=doing)

    def say(self, line: str) -> None:
        """See `chapters.Shown`."""
        self._progress.console.print(line, markup=False)
