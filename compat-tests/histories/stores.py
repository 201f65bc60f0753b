"""The metadata stores that a cluster under test may share, and what can befall them."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Protocol

from harness.zookeeper import Place, ZooKeeper

from histories.hosts import Hosts


class Store(Protocol):
    """``hosts`` are the names of the hosts that it lives on, none for a file."""

    url: str
    hosts: tuple[str, ...]

    def start(self) -> object: ...

    def kill(self) -> None: ...

    def kill_some(self, random: Random) -> list[int]:
        """Kill -9 of one server, or of all; which ones."""

    def restart(self, servers: list[int]) -> None: ...


class SqliteFile:
    """A file that the brokers of one machine share."""

    hosts: tuple[str, ...] = ()

    def __init__(self, path: Path) -> None:
        self.url = f"sqlite://{path}"

    def start(self) -> None:
        """There is nothing to start."""

    kill = start

    def kill_some(self, random: Random) -> list[int]:
        raise NotImplementedError

    def restart(self, servers: list[int]) -> None:
        raise NotImplementedError


class ZooKeeperServers:
    """One server, or an ensemble of three."""

    def __init__(self, directory: Path, servers: int, hosts: Hosts) -> None:
        places = [Place(hosts.address(name), hosts.command(name)) for name in names(servers)]
        self._zookeeper = ZooKeeper(directory, servers, places=places)
        self._servers = servers
        self.hosts = names(servers)
        self.url = f"zookeeper://{self._zookeeper.hosts}/pybroker"

    def start(self) -> None:
        self._zookeeper.start()

    def kill(self) -> None:
        self._zookeeper.kill()

    def kill_some(self, random: Random) -> list[int]:
        every = list(range(self._servers))
        servers = every if random.random() < 0.3 else [random.choice(every)]
        for server in servers:
            self._zookeeper.kill_server(server)
        return servers

    def restart(self, servers: list[int]) -> None:
        for server in servers:
            self._zookeeper.start_server(server)
        for server in servers:
            self._zookeeper.wait_until_serving(server)


def names(servers: int) -> tuple[str, ...]:
    """Of the hosts of so many servers."""
    return tuple(f"store{number}" for number in range(1, servers + 1))
