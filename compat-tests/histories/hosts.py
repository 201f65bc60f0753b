"""Where the processes of a run live: all on loopback, or each in a network namespace that faults can cut off.

Owns: namespaces with a virtual cable each to a bridge, their addresses, links that drop or are slow, and their removal,
also of those that a run left behind that was killed.  The clients' namespace has the bridge, and the run itself enters
it (``enter``), so that the machine's own network is left alone.

A link is cut off by a wrong address of the link layer for the peer: what is sent there is lost without a word, as on a
broken cable.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from harness.broker_probe import free_port

CLIENTS = "clients"
PREFIX = "histories"
NAMESPACES = Path("/run/netns")
# Of an environment that was entered: the run's namespaces begin with this.
ENTERED = "PYBROKER_HISTORIES_NETWORK"
NOWHERE = "02:00:00:00:00:00"
BURST, QUEUE = "16kb", "2s"


class Hosts(Protocol):
    """Names of hosts, ``CLIENTS`` among them, as places for processes."""

    has_links: bool

    def address(self, host: str) -> str: ...

    def port(self, port: int) -> int:
        """The port to listen on where this one is wanted."""

    def command(self, host: str) -> list[str]:
        """What a command that is to run there begins with."""

    def block(self, sender: str, receiver: str) -> None: ...

    def unblock(self, sender: str, receiver: str) -> None: ...

    def slow(self, host: str, kbit: int) -> None: ...

    def quicken(self, host: str) -> None: ...

    def close(self) -> None: ...


class Loopback:
    """One machine, whose network does not fail."""

    has_links = False

    def address(self, host: str) -> str:
        return "127.0.0.1"

    def port(self, port: int) -> int:
        return free_port()

    def command(self, host: str) -> list[str]:
        return []

    def block(self, sender: str, receiver: str) -> None:
        raise NotImplementedError

    unblock = block

    def slow(self, host: str, kbit: int) -> None:
        raise NotImplementedError

    def quicken(self, host: str) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """There is nothing to remove."""


class Namespaces:
    """A namespace for each host; ``names`` are those beside the clients'."""

    has_links = True

    def __init__(self, prefix: str, names: Sequence[str]) -> None:
        self._prefix = prefix
        self._addresses = {name: f"10.231.0.{number}" for number, name in enumerate((CLIENTS, *names), 1)}
        self._blocked: Counter[tuple[str, str]] = Counter()  # by how many faults

    def make(self) -> None:
        """Make all; what was made before a failure is removed."""
        try:
            for name in self._addresses:
                _run("ip", "netns", "add", self._namespace(name))
                self._ip(name, "link", "set", "lo", "up")
            self._ip(CLIENTS, "link", "add", "bridge", "type", "bridge")
            self._ip(CLIENTS, "link", "set", "bridge", "up")
            self._ip(CLIENTS, "address", "add", f"{self._addresses[CLIENTS]}/24", "dev", "bridge")
            for name in self._addresses:
                if name != CLIENTS:
                    self._connect(name)
        except subprocess.CalledProcessError:
            self.close()
            raise

    def _connect(self, name: str) -> None:
        link = self._device(name)
        self._ip(CLIENTS, "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", self._namespace(name))
        self._ip(CLIENTS, "link", "set", link, "master", "bridge", "up")
        self._ip(name, "address", "add", f"{self._addresses[name]}/24", "dev", "eth0")
        self._ip(name, "link", "set", "eth0", "up")

    def address(self, host: str) -> str:
        return self._addresses[host]

    def port(self, port: int) -> int:
        return port

    def command(self, host: str) -> list[str]:
        return ["ip", "netns", "exec", self._namespace(host)]

    def block(self, sender: str, receiver: str) -> None:
        """What one sends to the other is lost from now on; the other way is another link."""
        self._blocked[sender, receiver] += 1
        device, to = self._own_device(sender), self._addresses[receiver]
        self._ip(sender, "neigh", "replace", to, "lladdr", NOWHERE, "dev", device, "nud", "permanent")

    def unblock(self, sender: str, receiver: str) -> None:
        self._blocked[sender, receiver] -= 1
        if not self._blocked[sender, receiver]:
            self._ip(sender, "neigh", "del", self._addresses[receiver], "dev", self._own_device(sender))

    def slow(self, host: str, kbit: int) -> None:
        """All that goes to a host and comes from it."""
        for where, device in ((host, "eth0"), (CLIENTS, self._device(host))):
            rate = ["rate", f"{kbit}kbit", "burst", BURST, "latency", QUEUE]
            _run("tc", "-n", self._namespace(where), "qdisc", "replace", "dev", device, "root", "tbf", *rate)

    def quicken(self, host: str) -> None:
        for where, device in ((host, "eth0"), (CLIENTS, self._device(host))):
            _run("tc", "-n", self._namespace(where), "qdisc", "del", "dev", device, "root")

    def close(self) -> None:
        _remove(f"{self._prefix}-")

    def _namespace(self, name: str) -> str:
        return f"{self._prefix}-{name}"

    def _device(self, name: str) -> str:
        """The bridge's end of a host's cable."""
        return f"to-{name}"

    def _own_device(self, name: str) -> str:
        return "bridge" if name == CLIENTS else "eth0"

    def _ip(self, name: str, *words: str) -> None:
        _run("ip", "-n", self._namespace(name), *words)


def why_no_namespaces() -> str | None:
    """Why they cannot be made here; None where they can."""
    if not sys.platform.startswith("linux"):
        return "they are Linux's"
    if os.geteuid() != 0:
        return "they need root"
    for command in ("ip", "tc"):
        if shutil.which(command) is None:
            return f"there is no command {command}"
    probe = f"{PREFIX}-{os.getpid()}-probe"
    try:
        _run("ip", "netns", "add", probe)
    except subprocess.CalledProcessError as failure:
        return failure.stderr.strip() or "they are not permitted"
    _remove(probe)
    return None


def enter(names: Sequence[str], environment: Mapping[str, str]) -> Namespaces:
    """The run's namespaces: in a process that has entered them, as they are; in another they are made and entered.

    That is this command anew, in the place of this process, which keeps its id.
    """
    prefix = environment.get(ENTERED) or f"{PREFIX}-{os.getpid()}"
    hosts = Namespaces(prefix, names)
    if ENTERED not in environment:
        remove_those_of_the_dead()
        hosts.make()
        command = [*hosts.command(CLIENTS), sys.executable, *sys.orig_argv[1:]]
        os.execvpe(command[0], command, {**environment, ENTERED: prefix})
    return hosts


def remove_those_of_the_dead() -> None:
    """Remove what runs have left behind whose process is no more."""
    if not NAMESPACES.is_dir():
        return
    for path in NAMESPACES.iterdir():
        found = re.fullmatch(rf"({PREFIX}-(\d+)-)\w+", path.name)
        if found is not None and not Path("/proc", found[2]).exists():
            _remove(found[1])


def _remove(beginning: str) -> None:
    for path in sorted(NAMESPACES.glob(f"{beginning}*")):
        with contextlib.suppress(subprocess.CalledProcessError):
            _run("ip", "netns", "del", path.name)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
