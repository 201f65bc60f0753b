"""``pybroker sql``: questions to topics in SQL, at a prompt, from a file or from the command line.

Owns the options, and the ports that ``pybroker.sql`` wants: the cluster, what is changed there, the supervisor of
standing queries, and where results go.
"""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pybroker.cli.commands.connect import DEFAULT_URL, Login, Url
from pybroker.cli.connection.admin_client import admin_client
from pybroker.cli.connection.client_settings import ClientOptions
from pybroker.cli.requests.sql_changes import TopicChanges
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

if TYPE_CHECKING:
    from pybroker.connectors.rest.rest_client import RestClient
    from pybroker.sql.relations.cluster_port import Changes, Written
    from pybroker.sql.session import Session

# Without a name in the usage line: it is there to say how a statement is given.
Statement = Annotated[list[str] | None, typer.Argument(hidden=True, metavar="")]
Execute = Annotated[list[str], repeated("--execute", "-e", metavar="SQL", help="Statements to run, and then to end.")]
File = Annotated[
    Path | None, typer.Option("--file", "-f", metavar="FILE", help="A file of statements to run, and then to end.")
]
Csv = Annotated[bool, typer.Option("--csv", help="Print rows as CSV.")]
Misfits = Annotated[
    str,
    typer.Option(
        "--misfits",
        metavar="skip|stop",
        help="A record that does not fit its topic's schema is left out and counted (skip), or ends the query (stop).",
    ),
]
Memory = Annotated[
    str, typer.Option("--memory", metavar="SIZE", help="The memory of a query, as 512MB; beyond it is the disk.")
]

Declarations = Annotated[
    str, typer.Option("--declarations", metavar="TOPIC", help="The topic that keeps what CREATE declares.")
]
Registry = Annotated[
    str | None,
    typer.Option(
        "--schema-registry",
        metavar="URL",
        envvar="PYBROKER_SCHEMA_REGISTRY",
        help="The schema registry of values in Avro, Protobuf and JSON_SR.",
    ),
]


def sql(
    statement: Statement = None,
    *,
    execute: Execute,
    file: File = None,
    csv: Csv = False,
    misfits: Misfits = "skip",
    memory: Memory = "1GB",
    url: Url = DEFAULT_URL,
    login: Login = None,
    declarations: Declarations = "sql-declarations",
    schema_registry: Registry = None,
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

    CREATE … AS SELECT and INSERT INTO … SELECT run on, in the supervisor at --url (pybroker connect serve).
    """
    if misfits not in ("skip", "stop"):
        raise typer.BadParameter(f"--misfits must be skip or stop, not {misfits!r}")
    if statement:
        raise misused(f"a statement is given by --execute (-e), as -e {shlex.quote(' '.join(statement))}")
    if csv and as_json:
        raise misused("give --json or --csv")
    if execute and file is not None:
        raise misused("give --execute or --file")
    texts = _texts(execute, file)
    settings = _Settings(memory, csv, as_json, misfits == "stop", url, login, declarations, schema_registry)
    try:
        with without_pandas():
            _run(texts, ClientOptions(bootstrap, properties, command_config), settings)
    except ModuleNotFoundError as error:
        raise CommandFailed(f"`pybroker sql` needs {error.name}: {how_to_install('sql')}") from error


@dataclass(frozen=True, slots=True)
class _Settings:
    memory: str
    csv: bool
    as_json: bool
    stops: bool
    url: str
    login: Path | None
    declarations: str
    registry: str | None


_LOOK_S = 0.2  # how often Ctrl-C is looked for


class _Supervisor:
    """The supervisor at an address, which is asked for the first time when a statement needs it."""

    def __init__(self, settings: _Settings, changes: Changes) -> None:
        self._settings = settings
        self._changes = changes
        self._client: RestClient | None = None
        self.is_interrupted: Callable[[], bool] = lambda: False

    def ask(self, method: str, *path: str, body: Any = None, **query: str | Sequence[str]) -> Any:
        """The document of the reply; ``SqlError``."""
        from pybroker.connectors.rest.rest_client import NoAnswer, ReplyRefused
        from pybroker.sql.sql_errors import SqlError

        try:
            if self._client is None:
                self._client = self._checked()
            return self._client.ask(method, *path, body=body, **query)
        except NoAnswer as error:
            raise SqlError(
                f"standing queries need a supervisor, and {error}: `pybroker connect serve` is one, and --url names it"
            ) from error
        except ReplyRefused as error:
            raise SqlError(f"the supervisor at {self._settings.url}: {error}") from error

    def _checked(self) -> RestClient:
        """One of another cluster would read other topics."""
        from pybroker.connectors.rest.rest_client import ReplyRefused, RestClient

        client = RestClient(self._settings.url, self._settings.login, on_wait=remark, pause=self._pause)
        if client.ask("GET").get("kafka_cluster_id") != self._changes.cluster_id():
            raise ReplyRefused("it works for another cluster; --url names the one of this cluster")
        return client

    def _pause(self, seconds: float) -> None:
        """Wait, until Ctrl-C; ``Interrupted``."""
        from pybroker.sql.sql_errors import Interrupted

        ends_s = time.monotonic() + seconds
        while (left_s := ends_s - time.monotonic()) > 0:
            if self.is_interrupted():
                raise Interrupted
            time.sleep(min(left_s, _LOOK_S))


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, until the first row."""
    with progress("records", total, prints=False) as bar:

        def show(done: int) -> None:
            if bar is not None:
                bar.update(bar.task_ids[0], completed=done)

        yield show


def _write(options: ClientOptions, topic: str, records: Sequence[Written]) -> None:
    """Send records, and wait until all are acknowledged."""
    # For INSERT alone: a question is not to wait for them.
    from pybroker.cli.commands.produce import Sender, client_settings, settled
    from pybroker.cli.connection.data_clients import producer
    from pybroker.cli.records.record_format import NewRecord

    client, _ = producer(options, client_settings("all", "none"))
    sender = Sender(client, topic, None)
    with settled(sender):
        for each in records:
            sender.send(NewRecord(each.value, each.key, timestamp_ms=each.timestamp_ms))
        sender.finish()


def _is_interrupted(session: Session) -> bool:
    return session.is_interrupted()


def _texts(execute: list[str], file: Path | None) -> list[str] | None:
    """The statements; None for those that are to be typed."""
    if execute:
        return execute
    try:
        if file is not None:
            return [file.read_text(encoding="utf-8-sig")]
        return None if sys.stdin.isatty() else [sys.stdin.read()]
    except OSError as error:
        raise CommandFailed(f"--file {file}: {reason_of(error)}") from error
    except UnicodeDecodeError as error:
        raise CommandFailed(f"{file or 'standard input'} is no UTF-8") from error


def _run(texts: list[str] | None, options: ClientOptions, settings: _Settings) -> None:
    from pybroker.sql.interrupts import run_texts
    from pybroker.sql.parsing.statements import statements
    from pybroker.sql.questions.engine import Engine
    from pybroker.sql.questions.row_output import OutputForm
    from pybroker.sql.session import Session
    from pybroker.sql.sql_errors import SqlError

    def described(error: Exception) -> str | None:
        if isinstance(error, SqlError):
            return str(error)
        return describe_error(error) if is_expected(error) else None

    @contextmanager
    def connect() -> Iterator[TopicReader]:
        with admin_client(options) as own:
            yield TopicReader(own)

    form = OutputForm.CSV if settings.csv else OutputForm.JSON if settings.as_json else OutputForm.TABLE
    try:
        for text in texts or ():
            statements(text)  # a mistake is told before a broker is asked
        engine = Engine(settings.memory)
        try:
            with admin_client(options) as client:
                changes = TopicChanges(client, partial(_write, options))
                supervisor = _Supervisor(settings, changes)
                session = Session(
                    TopicReader(client),
                    connect,
                    engine,
                    Output(as_json=settings.as_json),
                    remark,
                    changes=changes,
                    supervisor=supervisor,
                    declarations=settings.declarations,
                    show_progress=_progress,
                    output=form,
                    stops_at_misfit=settings.stops,
                    registry=settings.registry,
                )
                # The session learns anew with each text how Ctrl-C is heard.
                supervisor.is_interrupted = partial(_is_interrupted, session)
                if texts is not None:
                    run_texts(session, texts)
                    return
                from pybroker.sql.prompt import converse

                converse(session, remark, described)
        finally:
            engine.close()
    except SqlError as error:
        raise CommandFailed(str(error)) from error
