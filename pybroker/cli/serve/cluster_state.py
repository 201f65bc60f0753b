"""The file by which ``pybroker cluster status|kill|stop|pause|resume|restart`` find the brokers of a ``cluster up``.

Owns: ``cluster.json`` in the data directory, and what a command asks of the supervisor by it: a file of its own, and a
signal.  Invariant: no process is signalled by a pid alone, but by pid and start time.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from pybroker.cli.serve.processes import is_stopped, start_time
from pybroker.cli.terminal.failure import CommandFailed

STATE_FILE: Final = "cluster.json"
RESTART_PREFIX: Final = "restart-"
ASK: Final = signal.SIGUSR1
DEAD: Final = "dead"
PAUSED: Final = "paused"
SERVING: Final = "serving"
STARTING: Final = "starting"
STOPPED: Final = "stopped"  # cleanly


class Known(NamedTuple):
    """A process as the file names it; one that is gone has no pid, and the exit code of its last life."""

    name: str
    pid: int | None
    began: int | None
    address: str
    serves: bool
    exit_code: int | None = None

    @property
    def runs(self) -> bool:
        """Whether that very process is there still."""
        return self.pid is not None and self.began is not None and start_time(self.pid) == self.began

    @property
    def state(self) -> str:
        """For people, as far as a process has it."""
        if self.began is None:
            return STARTING  # for the first time: it waits for another broker that has its data still
        if not self.runs or self.pid is None:
            return STOPPED if self.pid is None and self.exit_code == 0 else DEAD
        if is_stopped(self.pid):
            return PAUSED
        return SERVING if self.serves else STARTING

    def signal(self, number: int) -> None:
        """Send it a signal.  Raises ``CommandFailed`` where it does not run."""
        if self.pid is None or not self.runs:
            raise CommandFailed(f"{self.name} is not running")
        try:
            os.kill(self.pid, number)
        except OSError as error:
            raise CommandFailed(f"{self.name} (process {self.pid}): {error.strerror}") from None


class ClusterState(NamedTuple):
    """What ``cluster up`` says of itself."""

    directory: Path
    supervisor: Known
    brokers: Mapping[str, Known]

    def broker(self, name: str) -> Known:
        """A broker by its name, or its number.  Raises ``CommandFailed``."""
        found = self.brokers.get(name) or self.brokers.get(f"broker-{name}")
        if found is None:
            raise CommandFailed(f"there is no broker {name}; there are {', '.join(self.brokers)}")
        return found

    def ask_for_restart(self, name: str) -> None:
        """Have the supervisor start a broker anew."""
        (self.directory / f"{RESTART_PREFIX}{name}").touch()
        self.supervisor.signal(ASK)


def write_state(directory: Path, supervisor: Known, brokers: list[Known]) -> None:
    """Say how things are."""
    content = {"supervisor": supervisor._asdict(), "brokers": [broker._asdict() for broker in brokers]}
    new = directory / f"{STATE_FILE}.new"  # so that no reader sees half of it
    new.write_text(json.dumps(content, indent=1))
    new.replace(directory / STATE_FILE)


def read_state(directory: Path) -> ClusterState:
    """The cluster that runs on a directory.  Raises ``CommandFailed`` where none does."""
    try:
        content: dict[str, Any] = json.loads((directory / STATE_FILE).read_bytes())
        brokers = [Known(**broker) for broker in content["brokers"]]
        state = ClusterState(directory, Known(**content["supervisor"]), {broker.name: broker for broker in brokers})
    except (OSError, ValueError, KeyError, TypeError):
        raise CommandFailed(
            f"no cluster runs on {directory}; `pybroker cluster up` starts one, and --data-dir names another directory"
        ) from None
    if not state.supervisor.runs:
        raise CommandFailed(f"the cluster on {directory} does not run any more")
    return state


def take_restarts(directory: Path) -> list[str]:
    """The brokers that are to be started anew; each wish is read once."""
    names = []
    for path in directory.glob(f"{RESTART_PREFIX}*"):
        with suppress(FileNotFoundError):
            path.unlink()
            names.append(path.name.removeprefix(RESTART_PREFIX))
    return names


def remove_state(directory: Path) -> None:
    """The cluster has ended."""
    (directory / STATE_FILE).unlink(missing_ok=True)
