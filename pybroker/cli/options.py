"""Options that every client command takes, declared once."""

from __future__ import annotations

from typing import Annotated

import typer

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

ClientProperties = Annotated[
    list[str],
    typer.Option(
        "-X",
        metavar="KEY=VALUE",
        help="A client setting by its Kafka name, e.g. -X security.protocol=SSL.",
        default_factory=list,
        show_default=False,
    ),
]

Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
