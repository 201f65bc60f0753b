"""The demo's command line."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from examples.flights.demo import DemoOptions, run
from examples.flights.entry import command_of
from examples.flights.job_options import LOCAL_MASTER


def main(
    bootstrap: Annotated[str | None, typer.Option(help="HOST:PORT of a broker; default: one of its own.")] = None,
    months: Annotated[int, typer.Option(min=1, max=12, help="How much of the year 2013.")] = 12,
    flights_topic: Annotated[str, typer.Option(help="Topic for the flights; must not exist.")] = "flights",
    delays_topic: Annotated[str, typer.Option(help="Topic for the results; must not exist.")] = "flight-delays",
    partitions: Annotated[int, typer.Option(min=1, help="Partitions of the topic of flights.")] = 4,
    consumers: Annotated[int, typer.Option(min=1, help="Members of the group that reads the results.")] = 2,
    micro_batches: Annotated[int, typer.Option(min=2, help="How many micro-batches Spark takes the stream in.")] = 8,
    master: Annotated[str, typer.Option(help="Spark's master, such as spark://HOST:7077.")] = LOCAL_MASTER,
    crash: Annotated[bool, typer.Option(help="Kill Spark half way and start it again.")] = True,
) -> None:
    """A year of flights through a broker, Spark and back, checked against the same aggregation done in batch."""
    options = DemoOptions(
        bootstrap,
        months,
        flights_topic,
        delays_topic,
        partitions,
        consumers,
        micro_batches,
        crash_half_way=crash,
        master=master,
    )
    run(options, Console())


app = command_of(main, "demo")
