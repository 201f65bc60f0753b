"""``pybroker logdirs``: the log dirs of brokers, their free space, and the replicas that lie there.

Owns: the shapes that this command prints.  Counterpart: kafka-log-dirs.sh.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from pybroker.cli.connection.admin_command import Session, admin_command
from pybroker.cli.connection.retries import is_passing, is_passing_with_brokers, retried
from pybroker.cli.requests.log_requests import LogDirectory, log_directories
from pybroker.cli.requests.wire_requests import brokers
from pybroker.cli.terminal.error_names import refused, show
from pybroker.cli.terminal.failure import describe_error_code
from pybroker.cli.terminal.options import INT32_MAX, repeated
from pybroker.cli.terminal.output import Row, show_size

app = typer.Typer(help="Show the log dirs of brokers: their size, and their free space.", no_args_is_help=True)


@admin_command(app, "describe")
def describe(
    session: Session,
    *,
    broker_ids: Annotated[
        list[str], repeated("--broker", metavar="ID", help="Show the log dirs of this broker alone.")
    ],
    topics: Annotated[
        list[str], repeated("--topic", "-t", metavar="TOPIC", help="Count the replicas of this topic alone.")
    ],
    replicas: Annotated[bool, typer.Option("--replicas", help="Show each replica, the largest first.")] = False,
) -> None:
    """Show the log dirs of all brokers that run: state, size, free space, and the bytes of the replicas in them."""
    if strange := [text for text in broker_ids if not text.isdecimal() or int(text) > INT32_MAX]:
        raise typer.BadParameter(f"--broker takes the id of a broker, not {strange[0]!r}")
    wanted = sorted(set(map(int, broker_ids)))
    with session.client() as client:
        # A broker that the user names may be none at all, and is not waited for.
        found, codes = retried(
            lambda: log_directories(client, wanted or brokers(client)),
            passes=is_passing if wanted else is_passing_with_brokers,
        )
    document = [_document(directory, set(topics)) for directory in found]
    failures = [refused(f"log dirs of broker {broker_id}", code) for broker_id, code in codes.items()]
    if replicas:
        columns: tuple[str, ...] = ("BROKER", "DIRECTORY", "TOPIC", "PARTITION", "SIZE", "LAG", "MOVING-IN")
        show(session.output, document, columns, _replicas(document), failures)
    else:
        columns = ("BROKER", "DIRECTORY", "STATE", "REPLICAS", "SIZE", "FREE", "TOTAL")
        show(session.output, document, columns, map(_row, document), failures)


def _document(directory: LogDirectory, topics: set[str]) -> dict[str, Any]:
    shown = [each for each in directory.replicas if not topics or each.topic in topics]
    return {
        "broker": directory.broker,
        "directory": directory.path,
        "error": describe_error_code(directory.error_code) if directory.error_code else None,
        "cordoned": directory.is_cordoned,
        "total_bytes": directory.total_bytes,
        "usable_bytes": directory.usable_bytes,
        "replica_bytes": sum(each.size for each in shown),
        "replicas": [each._asdict() for each in shown],
    }


def _row(entry: dict[str, Any]) -> Row:
    state = entry["error"] or ("cordoned" if entry["cordoned"] else "online")
    sizes = (show_size(entry[name]) for name in ("replica_bytes", "usable_bytes", "total_bytes"))
    return (entry["broker"], entry["directory"], state, len(entry["replicas"]), *sizes)


def _replicas(document: list[dict[str, Any]]) -> list[Row]:
    rows = [
        (
            entry["broker"],
            entry["directory"],
            *(each[name] for name in ("topic", "partition", "size", "lag", "is_future")),
        )
        for entry in document
        for each in entry["replicas"]
    ]
    rows.sort(key=lambda row: -row[4])
    return [(*row[:4], show_size(row[4]), *row[5:]) for row in rows]
