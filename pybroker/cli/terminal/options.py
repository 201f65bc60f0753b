"""Options that every client command takes, declared once, and the forms and errors that options share."""

from __future__ import annotations

from typing import Annotated, Any

import typer


def repeated(*names: str, help: str, metavar: str | None = None, default: str | None = None) -> Any:
    """An option that may be given more than once, for ``Annotated[list[str], …]``; a list without it is empty.

    ``default`` says what holds without it, where that is worth a word.
    """
    return typer.Option(*names, metavar=metavar, help=help, default_factory=list, show_default=default or False)


def misused(message: str) -> Exception:
    """A usage error of options as they stand together, or are missing.  ``typer.BadParameter`` is of one value."""
    usage_error: Any = typer.BadParameter.__base__  # click's UsageError, which typer itself does not name
    error: Exception = usage_error(message)
    return error


# Counts and numbers of partitions are of 32 bits in the protocol.
INT32_MAX = 2**31 - 1

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="PYBROKER_BOOTSTRAP",
        metavar="HOST:PORT,…",
        help="Brokers to ask for the rest of the cluster.",
    ),
]

CommandConfig = Annotated[
    str | None,
    typer.Option(
        "--command-config",
        envvar="PYBROKER_COMMAND_CONFIG",
        metavar="FILE",
        help="A file of Kafka's client settings (client.properties); the place for passwords.",
    ),
]

ClientProperties = Annotated[
    list[str],
    repeated(
        "-X",
        metavar="KEY=VALUE",
        help="A client setting by librdkafka's name: security.protocol=SSL, ssl.ca.location=FILE, sasl.username=NAME",
    ),
]

Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
