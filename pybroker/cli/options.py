"""Options that every client command takes, declared once, and the forms that options share."""

from __future__ import annotations

from typing import Annotated, Any

import typer


def repeated(*names: str, help: str, metavar: str | None = None) -> Any:
    """An option that may be given more than once, for ``Annotated[list[str], …]``; a list without it is empty."""
    return typer.Option(*names, metavar=metavar, help=help, default_factory=list, show_default=False)


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
        help="A file with Kafka's client settings, passwords for one.",
    ),
]

ClientProperties = Annotated[
    list[str],
    repeated("-X", metavar="KEY=VALUE", help="A client setting by its Kafka name, e.g. -X security.protocol=SSL."),
]

Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
