"""``pybroker cluster``: several brokers on this machine that are one cluster, and faults for them by name.

Owns: these commands, what they print, and the log files.  The processes are the supervisor's (``supervisor``); the
other commands find them by ``cluster_state``.  What any cluster is tells ``cluster_description``.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from argparse import ArgumentTypeError
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
from rich.text import Text

from pybroker.cli.commands.cluster_description import describe_cluster
from pybroker.cli.connection.admin_client import admin_client
from pybroker.cli.connection.admin_command import admin_command
from pybroker.cli.connection.client_settings import ClientOptions
from pybroker.cli.requests.wire_requests import described_cluster
from pybroker.cli.serve import supervisor
from pybroker.cli.serve.cluster_state import (
    ASK,
    DEAD,
    PAUSED,
    SERVING,
    STOPPED,
    ClusterState,
    Known,
    read_state,
    remove_state,
    take_restarts,
    write_state,
)
from pybroker.cli.serve.processes import start_time
from pybroker.cli.serve.serve_command import parse_setting
from pybroker.cli.serve.supervisor import Member
from pybroker.cli.serve.workers import COMMAND, METADATA_FILE, OWN_SETTINGS, refuse_directory_of_one, require_free_ports
from pybroker.cli.terminal.failure import CommandFailed
from pybroker.cli.terminal.options import Json, misused, repeated
from pybroker.cli.terminal.output import Output
from pybroker.config.broker import internal_topic_factors, require_known
from pybroker.config.schema import ConfigError

app = typer.Typer(
    help="Describe a cluster; run one on this machine, and stop or pause its brokers.", no_args_is_help=True
)
admin_command(app, "describe")(describe_cluster)

DEFAULT_DIR = Path("pybroker-cluster")
BROKERS_MAX = 64
SESSION_TIMEOUT_MS = 6_000
LOGS = "logs"
COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "red")
_PREFIX = "broker-"  # of names, in front of the node id
_STATE_TIMEOUT_S = 60.0
_ASKED_WITHIN_MS = 2_000
_PAUSE_S = 0.05
_FOLLOW_S = 0.2

DataDir = Annotated[
    Path,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        help="The directory of the brokers' data and logs, from the current directory on.",
    ),
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The broker: broker-1, or 1.")]


@app.command("up")
def up(
    *,
    brokers: Annotated[int, typer.Option("--brokers", min=1, max=BROKERS_MAX, help="The number of brokers.")] = 3,
    data_dir: DataDir = DEFAULT_DIR,
    port: Annotated[
        int,
        typer.Option(
            "--port", min=0, max=65_535 - BROKERS_MAX, help="The port of the first broker; 0 picks a port for each."
        ),
    ] = 9092,
    dev: Annotated[bool, typer.Option("--dev", help="Run the brokers with --dev, as pybroker serve has it.")] = False,
    settings: Annotated[
        list[str],
        repeated("--set", metavar="KEY=VALUE", help="A setting of all brokers."),
    ],
) -> None:
    """Start brokers and show their logs; Ctrl-C stops them all."""
    pairs = _pairs(settings)
    directory = data_dir.absolute()
    if "," in str(directory):  # a broker would take it for several
        raise typer.BadParameter(f"--data-dir {directory}: the path of a cluster's directory must have no comma")
    _refuse_second(directory)
    url = dict(pairs).get("pybroker.metadata", f"sqlite://{directory / METADATA_FILE}")
    timeout_ms = dict(pairs).get("pybroker.metadata.session.timeout.ms", str(SESSION_TIMEOUT_MS))
    if not timeout_ms.isdecimal():
        raise typer.BadParameter(f"pybroker.metadata.session.timeout.ms: {timeout_ms!r} is no number")
    common = [*COMMAND, *(("--dev",) if dev else ()), "--set", f"pybroker.metadata={url}"]
    pairs = [*internal_topic_factors(brokers).items(), *pairs]
    unseen = [f"--set={name}={value}" for name, value in pairs if name != "pybroker.metadata"]
    members = []
    for number in range(1, brokers + 1):
        name, address = f"{_PREFIX}{number}", f"127.0.0.1:{port + number - 1 if port else 0}"
        own = ["--listen", address, "--data-dir", str(directory / name), "--set", f"node.id={number}"]
        log_path = directory / LOGS / f"{name}.log"
        members.append(Member(name, [*common, *own], log_path, [directory / name], unseen))
    try:
        refuse_directory_of_one([str(directory)])
        require_free_ports(members, [("127.0.0.1", port)])
    except (ConfigError, OSError) as error:
        raise CommandFailed(str(error)) from error
    directory.joinpath(LOGS).mkdir(parents=True, exist_ok=True)
    asyncio.run(_Up(directory, members).run(url, int(timeout_ms)))


def _pairs(settings: list[str]) -> list[tuple[str, str]]:
    try:
        pairs = [parse_setting(text) for text in settings]
        for name, _ in pairs:
            require_known(name)
    except (ArgumentTypeError, ConfigError) as error:
        raise typer.BadParameter(f"--set: {error}") from None
    own = sorted({name for name, _ in pairs} & OWN_SETTINGS)
    if own:
        raise misused(f"--set is for all brokers; each has its own {', '.join(own)}, by --port and --data-dir")
    return pairs


def _refuse_second(directory: Path) -> None:
    try:
        running = read_state(directory)
    except CommandFailed:
        return
    raise CommandFailed(f"process {running.supervisor.pid} runs a cluster on {directory} already")


class _Up:
    """A cluster that runs, and what is shown of it."""

    def __init__(self, directory: Path, members: list[Member]) -> None:
        self._directory = directory
        self._members = members
        self._console = Console(soft_wrap=True, highlight=False)
        self._progress = Progress(
            SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), console=self._console
        )
        self._starting = self._progress.add_task("brokers that serve", total=len(members))
        self._colours = {each.name: COLOURS[i % len(COLOURS)] for i, each in enumerate(members)}
        # What earlier runs wrote is not shown again.
        self._shown = {each.name: _size(each.log_path) for each in members}
        self._restarting: set[str] = set()

    async def run(self, url: str, session_timeout_ms: int) -> None:
        """Run it until Ctrl-C.  Raises ``CommandFailed`` where a broker could not start."""
        supervisor.log.setLevel(logging.INFO)
        supervisor.log.propagate = False  # the root logger is for the client library
        supervisor.log.addHandler(_Remarks(self._show))
        brokers = supervisor.Supervisor(self._members, url, session_timeout_ms, restarts=False, on_change=self._note)
        asyncio.get_running_loop().add_signal_handler(ASK, self._restart)
        take_restarts(self._directory)
        self._note()
        follow = asyncio.ensure_future(self._follow_logs())
        if self._console.is_terminal:
            self._progress.start()
        try:
            await brokers.run(self._ready)
        finally:
            self._progress.stop()
            follow.cancel()
            self._show_logs()
            remove_state(self._directory)
        if brokers.failed is not None:
            raise CommandFailed(f"{brokers.failed.name} did not start: {_last_line(brokers.failed.log_path)}")

    def _ready(self) -> None:
        self._progress.stop()
        print(f"pybroker ready on {','.join(each.address for each in self._members)}", flush=True)

    def _note(self) -> None:
        """A member has begun, serves or has ended."""
        self._progress.update(self._starting, completed=sum(each.serves for each in self._members))
        for each in self._members:
            if each.process is None and each.name in self._restarting:
                self._restarting.discard(each.name)
                each.wanted.set()
        pid = os.getpid()
        brokers = [
            Known(each.name, each.pid, each.began, each.address, each.serves, each.exit_code) for each in self._members
        ]
        write_state(self._directory, Known("cluster up", pid, start_time(pid), "", True), brokers)

    def _restart(self) -> None:
        wanted = take_restarts(self._directory)
        for each in self._members:
            if each.name not in wanted:
                continue
            if each.process is None:
                each.wanted.set()
            else:
                self._restarting.add(each.name)
                each.signal(signal.SIGTERM)
                each.signal(signal.SIGCONT)

    async def _follow_logs(self) -> None:
        while True:
            await asyncio.sleep(_FOLLOW_S)
            self._show_logs()

    def _show_logs(self) -> None:
        for each in self._members:
            assert each.log_path is not None
            if _size(each.log_path) <= self._shown[each.name]:
                continue
            with open(each.log_path, "rb") as lines:
                lines.seek(self._shown[each.name])
                for line in lines:
                    if line.endswith(b"\n"):
                        self._shown[each.name] += len(line)
                        self._show(each.name, line.decode(errors="replace").rstrip())

    def _show(self, name: str, line: str) -> None:
        self._console.print(Text.assemble((f"{name} | ", self._colours.get(name, "bold")), line))


class _Remarks(logging.Handler):
    """What the supervisor says, among the brokers' lines."""

    def __init__(self, show: Callable[[str, str], None]) -> None:
        super().__init__()
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        self._show("cluster", record.getMessage())


def _size(path: Path | None) -> int:
    return path.stat().st_size if path is not None and path.exists() else 0


def _last_line(path: Path | None) -> str:
    """Of a log: why its broker ended."""
    lines = [] if path is None else path.read_text(errors="replace").split("\n")
    return next((line.removeprefix("pybroker: ") for line in reversed(lines) if line), "it said nothing")


@app.command("status")
def status(data_dir: DataDir = DEFAULT_DIR, as_json: Json = False) -> None:
    """Show the brokers of a running cluster."""
    state = read_state(data_dir.absolute())
    states = {each.name: each.state for each in state.brokers.values()}
    down = [name for name in states if states[name] in (DEAD, STOPPED)]
    registered = registered_ids(state) if down else None
    if registered is not None:
        gone = [name for name in down if node_id_of(name) not in registered]
        states |= dict.fromkeys(gone, "not registered")
    shown: list[dict[str, Any]] = [
        {"name": each.name, "state": states[each.name], "pid": each.pid if each.runs else None, "address": each.address}
        for each in state.brokers.values()
    ]
    rows = [(each["name"], each["state"], each["pid"], each["address"]) for each in shown]
    Output(as_json=as_json).result(shown, ("NAME", "STATE", "PID", "ADDRESS"), rows)


def registered_ids(state: ClusterState) -> set[int] | None:
    """The node ids that the cluster knows; ``None`` where no broker tells them without a login."""
    asked = ",".join(each.address for each in state.brokers.values() if each.state == SERVING)
    if not asked:
        return None
    timeouts = [f"{name}.timeout.ms={_ASKED_WITHIN_MS}" for name in ("bootstrap", "request")]
    try:
        with admin_client(ClientOptions(asked, timeouts, None)) as client:
            return {int(each.broker_id) for each in described_cluster(client).brokers}
    except CommandFailed:
        return None


def node_id_of(name: str) -> int:
    """That of ``broker-2`` is 2."""
    return int(name.removeprefix(_PREFIX))


@app.command("kill")
def kill(name: Name, data_dir: DataDir = DEFAULT_DIR) -> None:
    """End a broker as kill -9 does; it stays dead until it is restarted."""
    state = read_state(data_dir.absolute())
    broker = state.broker(name)
    broker.signal(signal.SIGKILL)
    _wait_for(state, name, lambda broker: not broker.runs)
    _say(f"{broker.name} was killed")


@app.command("stop")
def stop(name: Name, data_dir: DataDir = DEFAULT_DIR) -> None:
    """Stop a broker cleanly: others lead in its place first; it stays down until it is restarted."""
    state = read_state(data_dir.absolute())
    broker = state.broker(name)
    broker.signal(signal.SIGTERM)
    with suppress(CommandFailed):  # it may have ended by now
        broker.signal(signal.SIGCONT)  # one that is paused heeds nothing else
    # How it ended is known once the supervisor has noted it.
    _wait_for(state, name, lambda broker: broker.pid is None)
    _say(f"{broker.name} has stopped")


@app.command("pause")
def pause(name: Name, data_dir: DataDir = DEFAULT_DIR) -> None:
    """Have a broker do nothing until it is resumed (SIGSTOP)."""
    state = read_state(data_dir.absolute())
    broker = state.broker(name)
    was_paused = broker.state == PAUSED
    broker.signal(signal.SIGSTOP)
    _wait_for(state, name, lambda broker: broker.state == PAUSED)
    _say(f"{broker.name} was paused before" if was_paused else f"{broker.name} is paused")


@app.command("resume")
def resume(name: Name, data_dir: DataDir = DEFAULT_DIR) -> None:
    """Have a paused broker go on (SIGCONT)."""
    state = read_state(data_dir.absolute())
    broker = state.broker(name)
    was_paused = broker.state == PAUSED
    broker.signal(signal.SIGCONT)
    _wait_for(state, name, lambda broker: broker.state != PAUSED)
    _say(f"{broker.name} goes on" if was_paused else f"{broker.name} was not paused")


@app.command("restart")
def restart(name: Name, data_dir: DataDir = DEFAULT_DIR) -> None:
    """Stop a broker cleanly if it runs, and start it again; returns when it serves."""
    state = read_state(data_dir.absolute())
    former = state.broker(name)
    state.ask_for_restart(former.name)
    _wait_for(state, name, lambda broker: broker.state == SERVING and broker.began != former.began)
    _say(f"{former.name} serves again")


def _say(line: str) -> None:
    Output().line(line)


def _wait_for(state: ClusterState, name: str, holds: Callable[[Known], bool]) -> None:
    deadline = time.monotonic() + _STATE_TIMEOUT_S
    while not holds(read_state(state.directory).broker(name)):
        if time.monotonic() > deadline:
            raise CommandFailed(f"{name} did not come to that within {_STATE_TIMEOUT_S:.0f} s")
        time.sleep(_PAUSE_S)
