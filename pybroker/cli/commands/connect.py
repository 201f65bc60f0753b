"""``pybroker connect``: connectors, and the supervisor that runs them; requests go over Kafka Connect's REST.

Owns the options, and what is printed.  Owns neither a connector nor the interface (``pybroker.connectors``).
Counterparts: ``connect-distributed.sh``, and what people do with curl or kcctl.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pybroker.cli.terminal.failure import CommandFailed, reason_of
from pybroker.cli.terminal.options import Json, misused, repeated
from pybroker.cli.terminal.output import Output, remark
from pybroker.extras import how_to_install

if TYPE_CHECKING:
    from pybroker.connectors.declared.declaration_files import Declaration
    from pybroker.connectors.rest.rest_client import RestClient

app = typer.Typer(help="Run connectors on Spark, and manage them as Kafka Connect's.", no_args_is_help=True)

_PORT = 8083

Url = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="PYBROKER_CONNECT_URL",
        metavar="URL,…",
        help="Where the supervisor answers requests; of several the first one that answers is asked.",
    ),
]
Login = Annotated[
    Path | None,
    typer.Option("--login", metavar="FILE", help="A file with a line USER=PASSWORD."),
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The connector's name.")]
Files = Annotated[list[Path], typer.Argument(metavar="FILE…", help="Declarations in YAML or JSON.")]
DEFAULT_URL = f"http://127.0.0.1:{_PORT}"


@app.command()
def serve(
    *,
    worker: Annotated[
        Path | None,
        typer.Option(
            "--worker", metavar="FILE", help="Settings as Connect's workers have (connect-distributed.properties)."
        ),
    ] = None,
    bootstrap: Annotated[
        str | None,
        typer.Option("--bootstrap", "-b", envvar="PYBROKER_BOOTSTRAP", metavar="HOST:PORT,…", help="The brokers."),
    ] = None,
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where requests are answered; port 0 takes a free one.")
    ] = f"127.0.0.1:{_PORT}",
    login: Annotated[
        Path | None,
        typer.Option("--login", metavar="FILE", help="Lines USER=PASSWORD of the users that are served."),
    ] = None,
    group: Annotated[
        str | None, typer.Option("--group", metavar="NAME", help="The name that supervisors share of which one works.")
    ] = None,
    directory: Annotated[
        Path, typer.Option("--data", metavar="DIR", help="The directory of checkpoints, which such supervisors share.")
    ] = Path("connect-data"),
    packages: Annotated[
        list[str], repeated("--package", metavar="GROUP:NAME:VERSION", help="A further package of Maven's for Spark.")
    ],
    master: Annotated[str, typer.Option("--master", metavar="URL", help="Where Spark runs.")] = "local[*,4]",
    spark: Annotated[list[str], repeated("--spark", metavar="KEY=VALUE", help="A setting of Spark's.")],
) -> None:
    """Run connectors until Ctrl-C; of several supervisors of one name one works, and the others wait."""
    with _needs():
        from pybroker.connectors.connect_service import POSTGRES_DRIVER, Service, absolute
        from pybroker.connectors.rest.rest_client import logins_of
        from pybroker.connectors.rest.rest_server import ListenRefused, check_listen
        from pybroker.connectors.state.worker_settings import worker_settings
    host, port = _address(listen)
    _log_to_stderr()
    try:
        logins = {} if login is None else logins_of(login)
        check_listen(host, logins)
        Service(
            worker_settings(worker, bootstrap, group),
            host,
            port,
            logins,
            absolute(directory),
            [POSTGRES_DRIVER, *packages],
            master,
            _pairs(spark),
            ready=_say,
        ).run()
    except ListenRefused as error:
        raise CommandFailed(str(error)) from error
    except (RuntimeError, ValueError) as error:
        raise CommandFailed(str(error)) from error


@app.command()
def validate(*, files: Files, as_json: Json = False) -> None:
    """Say what is wrong with declarations, with the line; asks no supervisor."""
    with _needs():
        from pybroker.connectors.declared.validation import findings
    found: list[str] = []
    for file in files:
        try:
            found += [finding for each in _declared([file]) for finding in findings(each)]
        except CommandFailed as error:
            found.append(str(error))
    if as_json:
        Output(as_json=True).json(found)
    elif found:
        sys.stdout.write("".join(f"{line}\n" for line in found))
    if found:
        raise typer.Exit(1)


@app.command()
def plugins(
    *,
    name: Annotated[str | None, typer.Argument(metavar="[CLASS]", help="A kind, whose keys are listed.")] = None,
    as_json: Json = False,
) -> None:
    """List the kinds of connectors, or the keys of one; asks no supervisor."""
    with _needs():
        from pybroker.connectors.declared.plugin_kinds import KINDS, kind_named, unknown_kind
        from pybroker.connectors.declared.validation import key_document

    output = Output(as_json=as_json)
    if name is None:
        rows = [(kind.name, kind.type, kind.summary) for kind in KINDS]
        documents = [dict(zip(("class", "type", "summary"), row, strict=True)) for row in rows]
        output.result(documents, ("CLASS", "TYPE", "SUMMARY"), rows)
        return
    kind = kind_named(name)
    if kind is None:
        raise CommandFailed(unknown_kind(name))
    keys = [
        (key.name, key.type.lower(), "required" if key.is_required else key.default, key.documentation)
        for key in kind.keys
    ]
    output.result([key_document(key) for key in kind.keys], ("KEY", "TYPE", "DEFAULT", "MEANING"), keys)


@app.command()
def create(
    *,
    files: Files,
    replace: Annotated[
        bool, typer.Option("--replace", help="Give a connector that is there this configuration.")
    ] = False,
    url: Url = DEFAULT_URL,
    login: Login = None,
    as_json: Json = False,
) -> None:
    """Create the connectors of declarations; all are validated before the first one is created."""
    with _needs():
        from pybroker.connectors.declared.validation import findings
    declared = _declared(files)
    if found := [finding for each in declared for finding in findings(each)]:
        raise CommandFailed("\n".join(found))
    with _client(url, login) as client:
        there = client.ask("GET", "connectors") if replace else []
        made = [_created(client, each, is_there=each.name in there) for each in declared]
    rows = [(each["name"], each.get("type")) for each in made]
    Output(as_json=as_json).result(made, ("NAME", "TYPE"), rows)


@app.command("list")
def list_connectors(*, url: Url = DEFAULT_URL, login: Login = None, as_json: Json = False) -> None:
    """List the connectors and what they do."""
    with _client(url, login) as client:
        found = client.ask("GET", "connectors", expand="status")
    statuses = [each["status"] for _, each in sorted(found.items())]
    Output(as_json=as_json).result(statuses, _COLUMNS, map(_row, statuses))


@app.command()
def status(*, name: Name, url: Url = DEFAULT_URL, login: Login = None, as_json: Json = False) -> None:
    """Show what a connector does, and why it failed."""
    with _client(url, login) as client:
        found = client.ask("GET", "connectors", name, "status")
    Output(as_json=as_json).result(found, _COLUMNS, [_row(found)])


@app.command()
def pause(*, name: Name, url: Url = DEFAULT_URL, login: Login = None) -> None:
    """Have a connector rest; it keeps its place."""
    with _client(url, login) as client:
        client.ask("PUT", "connectors", name, "pause")


@app.command()
def resume(*, name: Name, url: Url = DEFAULT_URL, login: Login = None) -> None:
    """Have a paused or stopped connector go on."""
    with _client(url, login) as client:
        client.ask("PUT", "connectors", name, "resume")


@app.command()
def stop(*, name: Name, url: Url = DEFAULT_URL, login: Login = None) -> None:
    """Stop a connector, so that its offsets can be changed."""
    with _client(url, login) as client:
        client.ask("PUT", "connectors", name, "stop")


@app.command()
def restart(
    *,
    name: Name,
    only_failed: Annotated[bool, typer.Option("--only-failed", help="Do nothing where it has not failed.")] = False,
    url: Url = DEFAULT_URL,
    login: Login = None,
) -> None:
    """Start a connector anew."""
    with _client(url, login) as client:
        flags = {"includeTasks": "true", "onlyFailed": "true" if only_failed else "false"}
        client.ask("POST", "connectors", name, "restart", **flags)


@app.command()
def offsets(
    *,
    name: Name,
    alter: Annotated[
        Path | None, typer.Option("--alter", metavar="FILE", help="A JSON document as this command prints it.")
    ] = None,
    reset: Annotated[bool, typer.Option("--reset", help="Have the connector begin anew.")] = False,
    url: Url = DEFAULT_URL,
    login: Login = None,
    as_json: Json = False,
) -> None:
    """Show where a connector is; change or reset that of a stopped one."""
    if alter is not None and reset:
        raise misused("give --alter or --reset, not both")
    with _client(url, login) as client:
        if reset:
            remark(client.ask("DELETE", "connectors", name, "offsets")["message"])
            return
        if alter is not None:
            try:
                body = json.loads(alter.read_text(encoding="utf-8"))
            except (ValueError, RecursionError) as error:
                raise CommandFailed(f"{alter} is no JSON: {error}") from error
            remark(client.ask("PATCH", "connectors", name, "offsets", body=body)["message"])
            return
        found = client.ask("GET", "connectors", name, "offsets")
    rows = [(_compact(each["partition"]), _compact(each["offset"])) for each in found["offsets"]]
    Output(as_json=as_json).result(found, ("PARTITION", "OFFSET"), rows)


@app.command()
def delete(*, name: Name, url: Url = DEFAULT_URL, login: Login = None) -> None:
    """Delete a connector; what it wrote stays."""
    with _client(url, login) as client:
        client.ask("DELETE", "connectors", name)


def _created(client: RestClient, declared: Declaration, *, is_there: bool) -> Any:
    """A connector that is there keeps what it does: its declaration's initial state is that of a new one."""
    if is_there:
        return client.ask("PUT", "connectors", declared.name, "config", body=dict(declared.config))
    body: dict[str, Any] = {"name": declared.name, "config": dict(declared.config)}
    if declared.initial_state is not None:
        body["initial_state"] = declared.initial_state
    return client.ask("POST", "connectors", body=body)


_COLUMNS = ("NAME", "TYPE", "STATE", "WORKER", "TASKS", "REASON")
_TOLD = ("trace", "remark")  # why a task failed, and what is to be known of one that runs


def _row(status: dict[str, Any]) -> tuple[Any, ...]:
    tasks = status["tasks"]
    told = (str(each[name]).splitlines()[0] for each in tasks for name in _TOLD if each.get(name))
    states = ",".join(str(each["state"]) for each in tasks)
    connector = status["connector"]
    return status["name"], status["type"], connector["state"], connector["worker_id"], states, next(told, None)


def _compact(document: Any) -> str:
    return json.dumps(document, sort_keys=True)


def _declared(files: list[Path]) -> list[Declaration]:
    from pybroker.connectors.declared.declaration_files import DeclarationError, declarations

    found: list[Declaration] = []
    for file in files:
        try:
            found += declarations(file.read_text(encoding="utf-8"), str(file))
        except OSError as error:
            raise CommandFailed(f"{file}: {reason_of(error)}") from error
        except UnicodeDecodeError as error:
            raise CommandFailed(f"{file} is no UTF-8") from error
        except DeclarationError as error:
            raise CommandFailed(str(error)) from error
    return found


@contextmanager
def _client(url: str, login: Path | None) -> Iterator[RestClient]:
    from pybroker.connectors.rest.rest_client import ReplyRefused, RestClient

    try:
        yield RestClient(url, login, on_wait=remark)
    except ReplyRefused as error:
        listens = os.strerror(errno.ECONNREFUSED) not in str(error)
        hint = "" if listens else "; `pybroker connect serve` starts a supervisor, and --url names another"
        raise CommandFailed(f"{error}{hint}") from error


@contextmanager
def _needs() -> Iterator[None]:
    """Say which extra is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        extra = "spark" if error.name in ("pyspark", "py4j", "pyarrow", "pandas") else "connect"
        raise CommandFailed(f"`pybroker connect` needs {error.name}: {how_to_install(extra)}") from error


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65_535:
        raise typer.BadParameter(f"--listen: {text!r} is no HOST:PORT")
    return host.strip("[]"), int(port)


def _pairs(texts: list[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"--spark must be KEY=VALUE, got {text!r}")
        found[name] = value
    return found


def _say(text: str) -> None:
    print(text, flush=True)


def _log_to_stderr() -> None:
    """A supervisor tells what it does; other client commands are silent."""
    import logging

    logging.basicConfig(
        level=logging.WARNING, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s", force=True
    )
    logging.getLogger("pybroker").setLevel(logging.INFO)
