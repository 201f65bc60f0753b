"""``pybroker doctor``: what is wrong between this machine and a cluster, and on a broker's own machine.

Owns: the command, which checks it runs, what it prints, and its exit status: 1 where a check failed, 0 with warnings.
The checks are ``cluster_checks``' and ``host_checks``'.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from pybroker.cli.client_settings import ClientOptions, parse_addresses
from pybroker.cli.cluster_checks import cluster_findings
from pybroker.cli.connection import admin_client, heeded_settings, retried
from pybroker.cli.failure import CommandFailed, ExitCode, describe_error, is_expected
from pybroker.cli.findings import Finding, Status
from pybroker.cli.hanging_transactions import find_hanging
from pybroker.cli.host_checks import host_findings
from pybroker.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, ClientProperties, CommandConfig, Json, repeated
from pybroker.cli.output import Output, visible
from pybroker.cli.partition_leaders import find_leaders

_MAX_TIMEOUT_MS = 15 * 60_000  # transaction.max.timeout.ms by default


def hanging_partitions(options: ClientOptions) -> Iterator[str]:
    """Where a transaction hangs, of what this user may see; ``CommandFailed``."""
    try:
        with admin_client(options) as client:
            leaders = retried(lambda: find_leaders(client, None))
            found, _ = find_hanging(client, leaders, _MAX_TIMEOUT_MS)
    except Exception as error:
        if not is_expected(error):
            raise
        raise CommandFailed(describe_error(error)) from error
    yield from (str(each.partition) for each in found)


def doctor(
    *,
    address: Annotated[
        str | None,
        typer.Argument(metavar="[HOST:PORT]", help="The broker to look at; otherwise the first of --bootstrap."),
    ] = None,
    data_dirs: Annotated[
        list[Path], repeated("--data-dir", metavar="DIR", help="Look at this broker's directory and machine instead.")
    ],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    properties: ClientProperties,
    as_json: Json = False,
) -> None:
    """Check the way to a cluster and its state, one line per check; exits with 1 where one failed."""
    findings: list[Finding] = []
    for data_dir in data_dirs:
        findings += host_findings(data_dir)
    if address is not None or not data_dirs:
        options = ClientOptions(bootstrap if address is None else address, properties, command_config)
        (first, *_) = parse_addresses(options.bootstrap)
        _, access = heeded_settings(options)
        findings += cluster_findings(first, access, lambda: hanging_partitions(options))
    _show(findings, Output(as_json=as_json))
    if any(each.status is Status.FAILED for each in findings):
        raise typer.Exit(ExitCode.FAILED)


def _show(findings: list[Finding], output: Output) -> None:
    """A line for each; on a terminal not as a table, whose cells are too long for one."""
    document = [
        {"check": each.check, "status": each.status, "message": each.message, "advice": _advice(each)}
        for each in findings
    ]
    if output.is_terminal and not output.as_json:
        for each in findings:
            advice = f". {advice[0].upper()}{advice[1:]}." if (advice := _advice(each)) else ""
            output.line(visible(f"{each.status:<8}{each.check}: {each.message}{advice}"))
        return
    output.result(document, ("CHECK", "STATUS", "FOUND", "WHAT TO DO"), [list(entry.values()) for entry in document])


def _advice(finding: Finding) -> str | None:
    return None if finding.status is Status.OK else finding.advice or None
