"""The lake's command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from examples.flights.entry import command_of
from examples.lake.demo import MASTER, LakeOptions, run
from examples.lake.flights import DAYS_MAX


def main(
    bootstrap: Annotated[str | None, typer.Option(help="HOST:PORT of a broker; default: one of its own.")] = None,
    days: Annotated[int, typer.Option(min=1, max=DAYS_MAX, help="How many days of the year 2013.")] = 7,
    output: Annotated[Path, typer.Option(help="Folder for the lake and the chart.")] = Path("lake-output"),
    master: Annotated[str, typer.Option(help="Spark's master, such as local[4].")] = MASTER,
) -> None:
    """From a table of PostgreSQL to a topic, a standing query, a Parquet lake and a chart, with four answers."""
    run(LakeOptions(bootstrap, days, output, master), Console())


app = command_of(main, "lake demo")
