"""The tour's command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from examples.flights.entry import command_of
from examples.tour.tour import MASTER, TourOptions, run


def main(
    bootstrap: Annotated[str | None, typer.Option(help="HOST:PORT of a broker; default: one of its own.")] = None,
    months: Annotated[int, typer.Option(min=1, max=12, help="How much of the year 2013.")] = 12,
    output: Annotated[Path, typer.Option(help="Folder for the plot and the Parquet files.")] = Path("tour-output"),
    first_chapter: Annotated[bool, typer.Option(help="Begin with the flights demo.")] = True,
    outage: Annotated[bool, typer.Option(help="Stop the database half way and start it again.")] = True,
    master: Annotated[str, typer.Option(help="Spark's master, such as spark://HOST:7077.")] = MASTER,
) -> None:
    """Flights, weather, planes and airports through a broker and Spark into PostgreSQL, Parquet and a picture."""
    run(TourOptions(bootstrap, months, output, first_chapter, outage, master), Console())


app = command_of(main, "tour")
