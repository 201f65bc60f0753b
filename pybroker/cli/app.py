"""The client commands put together: names, help, and what a failure becomes.

Owns: the tree of commands and the one place where an exception turns into a line on stderr and an exit code.
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Annotated

import typer

from pybroker.cli import (
    acls,
    brokers,
    certs,
    cluster,
    configs,
    consume,
    dump_log,
    groups,
    partitions,
    produce,
    quotas,
    tenants,
    tokens,
    topics,
    transactions,
    users,
)
from pybroker.cli.failure import ExitCode, OutputClosed, describe_error, is_expected
from pybroker.cli.output import remark
from pybroker.cli.standard_streams import open_closed_streams, silence_stdout

app = typer.Typer(
    name="pybroker",
    help="A Kafka broker in Python, and the tools to talk to any Kafka cluster.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def show_version(wanted: bool) -> None:
    """Print the installed version and end."""
    if wanted:
        from importlib.metadata import version

        print(f"pybroker {version('pybroker')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show the client library's log on stderr.")] = False,
) -> None:
    """A Kafka broker in Python, and the tools to talk to any Kafka cluster."""
    # The library warns about every retry; a person at a prompt wants the outcome.
    logging.basicConfig(level=logging.INFO if verbose else logging.CRITICAL, stream=sys.stderr)


@app.command(
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
def serve(context: typer.Context) -> None:
    """Run a broker: --listen HOST:PORT --data-dir DIR (see `pybroker serve --help`)."""
    from pybroker.cli.serve import run_serve

    raise typer.Exit(run_serve(context.args))


app.add_typer(topics.app, name="topics")
app.add_typer(partitions.app, name="partitions")
app.command(name="produce")(produce.produce)
app.command(name="consume")(consume.consume)
app.add_typer(groups.app, name="groups")
app.add_typer(transactions.app, name="transactions")
app.add_typer(brokers.app, name="brokers")
app.add_typer(quotas.app, name="quotas")
app.add_typer(acls.app, name="acls")
app.add_typer(users.app, name="users")
app.add_typer(tokens.app, name="tokens")
app.add_typer(configs.app, name="configs")
app.command(name="certs")(certs.certs)
app.add_typer(tenants.app, name="tenants")
app.add_typer(cluster.app, name="cluster")
app.command(name="dump-log")(dump_log.dump_log)


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    """End like Ctrl-C does, so that a consumer leaves its group and a producer closes."""
    raise SystemExit(ExitCode.TERMINATED)


def is_text(argument: str) -> bool:
    """Whether an argument can be sent as Kafka's strings are, which are UTF-8."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        return False
    return True


def _run(arguments: Sequence[str]) -> int:
    """Run the command; typer ends each with ``SystemExit``, a good one too."""
    try:
        app(args=list(arguments), prog_name="pybroker")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else ExitCode.OK
    return ExitCode.OK


def run_client(arguments: Sequence[str]) -> int:
    """Run one client command and return its exit code; no exception of a command leaves this function."""
    open_closed_streams()
    # Names of files may be any bytes; everything else goes to a broker or is compared with text.
    if strange := next((text for text in arguments if not is_text(text) and not os.path.exists(text)), None):
        remark(f"pybroker: not UTF-8: {strange!r}")
        return ExitCode.MISUSED
    signal.signal(signal.SIGTERM, _terminate)
    try:
        exit_code = _run(arguments)
        sys.stdout.flush()
    except (OutputClosed, BrokenPipeError):
        silence_stdout()
        exit_code = ExitCode.OK
    except KeyboardInterrupt:
        exit_code = ExitCode.INTERRUPTED
    except Exception as error:
        if not is_expected(error):
            raise
        remark(f"pybroker: {describe_error(error)}")
        if isinstance(error, OSError) and error.errno in {errno.EBADF, errno.ENOSPC}:
            silence_stdout()
        exit_code = ExitCode.FAILED
    return exit_code
