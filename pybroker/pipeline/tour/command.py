"""The tour's command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pybroker.pipeline.feed import FeedFailed
from pybroker.pipeline.flights.dataset import DatasetMissing
from pybroker.pipeline.flights.demo import DemoFailed
from pybroker.pipeline.flights.processes import ProcessFailed
from pybroker.pipeline.flights.results import ResultsNotRead
from pybroker.pipeline.jars import JarsMissing
from pybroker.pipeline.tour.chapters import ChapterFailed
from pybroker.pipeline.tour.postgres import PostgresFailed, PostgresMissing
from pybroker.pipeline.tour.tour import MASTER, TourOptions, run

FAILURES = (
    ChapterFailed,
    DatasetMissing,
    DemoFailed,
    FeedFailed,
    JarsMissing,
    PostgresFailed,
    PostgresMissing,
    ProcessFailed,
    ResultsNotRead,
)


def main(
    bootstrap: Annotated[str | None, typer.Option(help="HOST:PORT of a broker; default: one of its own.")] = None,
    months: Annotated[int, typer.Option(min=1, max=12, help="How much of the year 2013.")] = 12,
    output: Annotated[Path, typer.Option(help="Folder for the plot and the Parquet files.")] = Path("tour-output"),
    first_chapter: Annotated[bool, typer.Option(help="Begin with the flights demo.")] = True,
    outage: Annotated[bool, typer.Option(help="Stop the database half way and start it again.")] = True,
    master: Annotated[str, typer.Option(help="Spark's master, such as spark://HOST:7077.")] = MASTER,
) -> None:
    """Flights, weather, planes and airports through a broker and Spark into PostgreSQL, Parquet and a picture."""
    console = Console()
    try:
        run(TourOptions(bootstrap, months, output, first_chapter, outage, master), console)
    except FAILURES as error:
        console.print(f"The tour failed: {error}", style="red", markup=False)
        raise typer.Exit(1) from error


app = typer.Typer(pretty_exceptions_enable=False)
app.command()(main)
