"""Apache ZooKeeper 3.9.4 as a test partner: one server, or an ensemble, on free loopback ports.

Owns: configuration, start, stop, kill -9 and pause of the servers below one directory.  The jars come from
``scripts/zookeeper-jars``; nothing is downloaded here.

    with ZooKeeper(tmp_path / "zookeeper", servers=3) as zookeeper:
        KazooClient(zookeeper.hosts)
"""

from __future__ import annotations

import shutil
import socket
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from harness.broker_probe import free_port
from harness.child_process import ChildProcess
from harness.process_pause import pause, resume
from harness.waiting import wait_until

ZOOKEEPER_VERSION = "3.9.4"
JARS_DIRECTORY = Path(__file__).resolve().parents[2] / ".cache" / "jars" / f"zookeeper-{ZOOKEEPER_VERSION}" / "lib"
HOST = "127.0.0.1"

# Small and quick to start; a test does not survive a loss of power.
JVM_OPTIONS = (
    "-Xmx96m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-Dzookeeper.admin.enableServer=false",
    "-Dzookeeper.forceSync=no",
    "-Dzookeeper.preAllocSize=1024",
)


def missing_requirement() -> str | None:
    """Why ZooKeeper cannot be run here, as one sentence; ``None`` when it can."""
    if shutil.which("java") is None:
        return "there is no java on the PATH"
    if not any(JARS_DIRECTORY.glob("zookeeper-3*.jar")):
        return "ZooKeeper's jars are missing: run scripts/zookeeper-jars"
    return None


class Place(NamedTuple):
    """Where a server lives, and what its command begins with there."""

    address: str = HOST
    command: Sequence[str] = ()


class ZooKeeper:
    """An ensemble of ``servers``, or one alone.  Sessions last at least two of ``tick_ms``."""

    def __init__(
        self,
        directory: Path,
        servers: int = 1,
        tick_ms: int = 500,
        jvm_options: Sequence[str] = (),
        places: Sequence[Place] = (),
    ) -> None:
        self._directory = directory
        self._places = places or [Place()] * servers
        self._tick_ms = tick_ms
        self._jvm_options = jvm_options
        self._ports = [(free_port(), free_port(), free_port()) for _ in range(servers)]
        self._processes: list[ChildProcess | None] = [None] * servers

    @property
    def hosts(self) -> str:
        """Of all servers, as clients want them."""
        return ",".join(f"{place.address}:{ports[0]}" for place, ports in zip(self._places, self._ports, strict=True))

    def start(self) -> Self:
        """Start what does not run, and wait until each serves."""
        try:
            for number in range(len(self._ports)):
                self.start_server(number)
            for number in range(len(self._ports)):
                self.wait_until_serving(number)
        except Exception:
            self.kill()
            raise
        return self

    def start_server(self, number: int) -> None:
        """Start one server on its data, unless it runs; it serves when most of the ensemble is there."""
        if self._processes[number] is not None:
            return
        directory = self._directory / str(number)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "myid").write_text(str(number + 1))
        configuration = directory / "zoo.cfg"
        configuration.write_text(self._configuration(number, directory))
        command = [
            *self._places[number].command,
            "java",
            *JVM_OPTIONS,
            *self._jvm_options,
            "-cp",
            f"{JARS_DIRECTORY}/*",
        ]
        command += ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(configuration)]
        self._processes[number] = ChildProcess(command, directory / "server.log")

    def wait_until_serving(self, number: int) -> None:
        """Wait until a server answers clients; RuntimeError when it has died."""

        def serves() -> bool:
            process = self._processes[number]
            assert process is not None
            if process.exit_code is not None:
                raise RuntimeError(f"ZooKeeper exited with {process.exit_code}\n{process.log_tail()}")
            return "Mode:" in self.ask(number, b"srvr")

        wait_until(serves, f"ZooKeeper's server {number}", 60)

    def ask(self, number: int, command: bytes) -> str:
        """What a server answers to a command of four letters; nothing where it does not."""
        try:
            with socket.create_connection(
                (self._places[number].address, self._ports[number][0]), timeout=2
            ) as connection:
                connection.sendall(command)
                return b"".join(iter(lambda: connection.recv(65536), b"")).decode()
        except OSError:
            return ""

    def leader(self) -> int:
        """Which server leads; of one alone that one."""
        for number, process in enumerate(self._processes):
            if process is not None and (
                "Mode: leader" in (answer := self.ask(number, b"srvr")) or "standalone" in answer
            ):
                return number
        raise RuntimeError("no server leads")

    def pause(self) -> None:
        """Stop all servers where they are: connections stay, and nobody answers."""
        for process in self._running():
            pause(process.pid)

    def resume(self) -> None:
        for process in self._running():
            resume(process.pid)

    def kill_server(self, number: int) -> None:
        """Kill -9 of one server; does nothing when it is not running."""
        process, self._processes[number] = self._processes[number], None
        if process is not None:
            process.kill()

    def kill(self) -> None:
        """Kill -9 of all."""
        for number in range(len(self._processes)):
            self.kill_server(number)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def _running(self) -> list[ChildProcess]:
        return [process for process in self._processes if process is not None]

    def _configuration(self, number: int, directory: Path) -> str:
        lines = [
            f"tickTime={self._tick_ms}",
            f"dataDir={directory}",
            f"clientPort={self._ports[number][0]}",
            f"clientPortAddress={self._places[number].address}",
            "initLimit=20",
            "syncLimit=10",
            "maxClientCnxns=0",
            "4lw.commands.whitelist=srvr,wchs",
        ]
        if len(self._ports) > 1:
            peers = enumerate(zip(self._places, self._ports, strict=True), start=1)
            lines += [f"server.{peer}={place.address}:{ports[1]}:{ports[2]}" for peer, (place, ports) in peers]
        return "\n".join([*lines, ""])
