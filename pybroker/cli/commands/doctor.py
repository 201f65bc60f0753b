"""``pybroker doctor``: what is wrong between this machine and a cluster, and on a broker's own machine.

Owns: the command, which checks it runs, what it prints, and its exit status: 1 where a check failed, 0 with warnings.
The checks are ``cluster_checks``' and ``host_checks``'.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from pybroker.cli.commands.cluster_checks import INSIDE, REACHED, Searches, cluster_findings, skipped
from pybroker.cli.connection.admin_client import AdminClient, admin_client, heeded_settings
from pybroker.cli.connection.client_settings import ClientOptions, parse_addresses
from pybroker.cli.requests.hanging_transactions import find_hanging
from pybroker.cli.requests.internal_topics import too_few_brokers
from pybroker.cli.serve.host_checks import host_findings
from pybroker.cli.terminal.failure import CommandFailed, ExitCode, describe_error, is_expected
from pybroker.cli.terminal.findings import Finding, Status
from pybroker.cli.terminal.options import DEFAULT_BOOTSTRAP, Bootstrap, ClientProperties, CommandConfig, Json, repeated
from pybroker.cli.terminal.output import Output, visible
from pybroker_protocol.errors import ErrorCode

T = TypeVar("T")

_MAX_TIMEOUT_MS = 15 * 60_000  # transaction.max.timeout.ms by default


def hanging_partitions(options: ClientOptions) -> tuple[list[str], int]:
    """Where a transaction hangs, of what this user may see, and how many partitions could not be looked at;
    ``CommandFailed``.
    """
    found, failed = asked(options, lambda client: find_hanging(client, None, _MAX_TIMEOUT_MS))
    # A topic that was deleted since it was listed hides nothing.
    unseen = sum(code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for code in failed.values())
    return [str(each.partition) for each in found], unseen


def asked(options: ClientOptions, search: Callable[[AdminClient], T]) -> T:
    """What a client finds; ``CommandFailed`` for all that may go wrong."""
    try:
        with admin_client(options) as client:
            return search(client)
    except Exception as error:
        if not is_expected(error):
            raise
        raise CommandFailed(describe_error(error)) from error


def doctor(
    *,
    address: Annotated[
        str | None,
        typer.Argument(metavar="[HOST:PORT]", help="The broker to check; otherwise the first of --bootstrap."),
    ] = None,
    data_dirs: Annotated[
        list[Path], repeated("--data-dir", metavar="DIR", help="Check this data directory, and its machine, instead.")
    ],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    properties: ClientProperties,
    as_json: Json = False,
) -> None:
    """Check the way to a cluster and its state, one line per check; exits with 1 where one failed."""
    found = [host_findings(data_dir) for data_dir in data_dirs]
    if address is not None or not data_dirs:
        found.append(_of_cluster(ClientOptions(bootstrap if address is None else address, properties, command_config)))
    if _show(chain.from_iterable(found), Output(as_json=as_json)):
        raise typer.Exit(ExitCode.FAILED)


def _of_cluster(options: ClientOptions) -> Iterator[Finding]:
    """Wrong use ends the command at once; all else becomes findings."""
    (first, *_) = parse_addresses(options.bootstrap)
    try:
        _, access = heeded_settings(options)
    except (CommandFailed, OSError) as error:
        failed = Finding("settings", Status.FAILED, describe_error(error), "correct -X or the file of --command-config")
        return chain([failed], skipped((*REACHED, *INSIDE), failed.check))
    searches = Searches(lambda: hanging_partitions(options), lambda: asked(options, too_few_brokers))
    return cluster_findings(first, access, searches)


def _show(findings: Iterable[Finding], output: Output) -> bool:
    """A line for each as it comes, or one document; whether one failed.

    On a terminal it is no table, whose cells are too long for one.
    """
    document: list[dict[str, str | None]] = []
    for each in findings:
        document.append({"check": each.check, "status": each.status, "message": each.message, "advice": _advice(each)})
        if output.as_json:
            continue
        if output.is_terminal:
            advice = f". {advice[0].upper()}{advice[1:]}." if (advice := _advice(each)) else ""
            output.sentence(visible(f"{each.status:<8}{each.check}: {each.message}{advice}"), indent=8)
        else:
            heading = [] if document[1:] else [("CHECK", "STATUS", "FOUND", "WHAT TO DO")]
            output.rows([*heading, list(document[-1].values())])
        output.flush()
    if output.as_json:
        output.json(document)
    return any(each["status"] == Status.FAILED for each in document)


def _advice(finding: Finding) -> str | None:
    return None if finding.status is Status.OK else finding.advice or None
