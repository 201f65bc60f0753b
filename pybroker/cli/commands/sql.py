"""``pybroker sql``: questions to topics in SQL, at a prompt, from a file or from the command line.

Owns the options, and the ports that ``pybroker.sql`` wants: the cluster, and where results go.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from pybroker.cli.connection.admin_client import admin_client
from pybroker.cli.connection.client_settings import ClientOptions
from pybroker.cli.requests.topic_reader import TopicReader
from pybroker.cli.terminal.failure import CommandFailed, describe_error, is_expected, reason_of
from pybroker.cli.terminal.options import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    ClientProperties,
    CommandConfig,
    Json,
    misused,
    repeated,
)
from pybroker.cli.terminal.output import Output, progress, remark
from pybroker.extras import how_to_install
from pybroker.sql.unwanted_imports import without_pandas

Execute = Annotated[list[str], repeated("--execute", "-e", metavar="SQL", help="Statements to run, and then to end.")]
File = Annotated[
    Path | None, typer.Option("--file", "-f", metavar="FILE", help="A file of statements to run, and then to end.")
]
Csv = Annotated[bool, typer.Option("--csv", help="Print rows as CSV.")]
Misfits = Annotated[
    str,
    typer.Option(
        "--misfits", metavar="skip|stop", help="What a record does that does not fit its topic's schema: see below."
    ),
]
Memory = Annotated[
    str, typer.Option("--memory", metavar="SIZE", help="The memory of a query, as 512MB; beyond it is the disk.")
]


def sql(
    *,
    execute: Execute,
    file: File = None,
    csv: Csv = False,
    misfits: Misfits = "skip",
    memory: Memory = "1GB",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    properties: ClientProperties,
    as_json: Json = False,
) -> None:
    """Ask topics questions in SQL.

    Without --execute and --file it reads statements from a prompt, or from standard input that is no terminal. HELP;
    lists them.

    The schema of a topic is declared by CREATE STREAM, or inferred from samples: DESCRIBE shows it. A record that does
    not fit is left out and counted; with --misfits stop it ends the query.
    """
    if misfits not in ("skip", "stop"):
        raise typer.BadParameter(f"--misfits must be skip or stop, not {misfits!r}")
    if csv and as_json:
        raise misused("give --json or --csv")
    if execute and file is not None:
        raise misused("give --execute or --file")
    text = _text(execute, file)
    try:
        with without_pandas():
            _run(text, ClientOptions(bootstrap, properties, command_config), memory, csv, as_json, misfits == "stop")
    except ModuleNotFoundError as error:
        raise CommandFailed(f"`pybroker sql` needs {error.name}: {how_to_install('sql')}") from error


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, until the first row."""
    with progress("records", total, prints=False) as bar:

        def show(done: int) -> None:
            if bar is not None:
                bar.update(bar.task_ids[0], completed=done)

        yield show


def _write(options: ClientOptions, topic: str, records: Sequence[tuple[bytes | None, bytes | None]]) -> None:
    """Send records, and wait until all are acknowledged."""
    # For INSERT alone: a question is not to wait for them.
    from pybroker.cli.commands.produce import Sender, client_settings, settled
    from pybroker.cli.connection.data_clients import producer
    from pybroker.cli.records.record_format import NewRecord

    client, _ = producer(options, client_settings("all", "none"))
    sender = Sender(client, topic, None)
    with settled(sender):
        for key, value in records:
            sender.send(NewRecord(value, key))
        sender.finish()


def _text(execute: list[str], file: Path | None) -> str | None:
    """The statements; None for those that are to be typed."""
    if execute:
        return ";\n".join(execute)
    try:
        if file is not None:
            return file.read_text(encoding="utf-8")
        return None if sys.stdin.isatty() else sys.stdin.read()
    except OSError as error:
        raise CommandFailed(f"--file {file}: {reason_of(error)}") from error
    except UnicodeDecodeError as error:
        raise CommandFailed(f"{file or 'standard input'} is no UTF-8") from error


def _run(text: str | None, options: ClientOptions, memory: str, csv: bool, as_json: bool, stops: bool) -> None:
    from pybroker.sql.engine import Engine
    from pybroker.sql.interrupts import run_text
    from pybroker.sql.row_output import OutputForm
    from pybroker.sql.session import Session
    from pybroker.sql.sql_errors import SqlError
    from pybroker.sql.statements import statements

    def described(error: Exception) -> str | None:
        if isinstance(error, SqlError):
            return str(error)
        return describe_error(error) if is_expected(error) else None

    @contextmanager
    def connect() -> Iterator[TopicReader]:
        with admin_client(options) as own:
            yield TopicReader(own)

    form = OutputForm.CSV if csv else OutputForm.JSON if as_json else OutputForm.TABLE
    try:
        if text is not None:
            statements(text)  # a mistake is told before a broker is asked
        engine = Engine(memory)
        try:
            with connect() as cluster:
                session = Session(
                    cluster,
                    connect,
                    engine,
                    Output(as_json=as_json),
                    remark,
                    write=partial(_write, options),
                    show_progress=_progress,
                    output=form,
                    stops_at_misfit=stops,
                )
                if text is not None:
                    run_text(session, text)
                    return
                from pybroker.sql.prompt import converse

                converse(session, remark, described)
        finally:
            engine.close()
    except SqlError as error:
        raise CommandFailed(str(error)) from error
