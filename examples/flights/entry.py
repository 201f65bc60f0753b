"""Makes a command of a demo's main function: one that says in one line what stopped it.

Owns what is expected to; anything else is a fault, and shows its traceback.
"""

import sys
from collections.abc import Callable
from functools import wraps

import typer
from confluent_kafka import KafkaException

from examples.feed import FeedFailed
from examples.flights.failures import RunFailed
from pybroker.pipeline.jars import JarsMissing

EXPECTED = FeedFailed, FileNotFoundError, JarsMissing, KafkaException, RunFailed


def command_of(main: Callable[..., None], name: str) -> typer.Typer:
    """The command, which ends with exit status 1 and ``The <name> failed: ...`` on standard error."""

    @wraps(main)
    def run(*arguments: object, **options: object) -> None:
        try:
            main(*arguments, **options)
        except EXPECTED as error:
            sys.exit(f"The {name} failed: {error}")

    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(run)
    return app
