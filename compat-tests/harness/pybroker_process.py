"""pybroker as a process of its own, with the same handles as ``ApacheKafka``.

Owns: start, clean stop and kill -9 of ``pybroker serve`` on a free loopback port, and its log; for tests of a command
itself, a broker whose standard output the test reads.
The port is read from the line that the command contract promises: ``pybroker ready on HOST:PORT``.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

from harness.broker_probe import wait_until_ready
from harness.broker_process import BrokerProcess
from harness.child_process import ChildProcess

COMMAND = Path(sys.executable).parent / "pybroker"
READY_LINE = re.compile(r"^pybroker ready on (?P<host>\S+):(?P<port>\d+)\n", re.MULTILINE)


@dataclass(frozen=True)
class Serving:
    """A command that serves; its standard output has been read up to the ready line, ``before`` which it said this."""

    process: subprocess.Popen[str]
    before: str
    host: str
    port: int

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    def stop(self, number: int = signal.SIGTERM, timeout_s: float = 30) -> int:
        """End it by a signal; its exit code."""
        self.process.send_signal(number)
        return self.process.wait(timeout_s)


@contextmanager
def serving(command: Sequence[str | Path], stderr: IO[str] | None = None) -> Iterator[Serving]:
    """Run a command that starts a broker and says so on its standard output; at the end it is killed if it still runs.

    Raises ``RuntimeError`` when it ends without a ready line.
    """
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as process:
        try:
            assert process.stdout is not None
            said = ""
            while (ready := READY_LINE.fullmatch(line := process.stdout.readline())) is None:
                if not line:
                    raise RuntimeError(f"{command[0]} ended before it was ready: {said}")
                said += line
            yield Serving(process, said, ready["host"].strip("[]"), int(ready["port"]))
        finally:
            process.kill()


class PybrokerProcess(BrokerProcess):
    """One pybroker; a stopped or killed one starts again on its data with the same port.

    ``environment`` is what its next start has besides this process's own variables; ``command`` may be that of
    another pybroker.
    """

    name = "pybroker"

    def __init__(
        self,
        directory: Path,
        properties: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
        port: int = 0,
        environment: Mapping[str, str] | None = None,
        command: Path = COMMAND,
    ) -> None:
        super().__init__(directory, port)
        self.command = command
        self._properties = dict(properties or {})
        self._arguments = list(arguments)
        self.environment = environment

    def start(self, timeout_s: float = 30) -> Self:
        """Start and wait for the ready line, then for the first replies."""
        assert self._process is None, "the broker runs already"
        self.directory.mkdir(parents=True, exist_ok=True)
        log_start = self.log_path.stat().st_size if self.log_path.exists() else 0
        self._process = ChildProcess(self._command(), self.log_path, self.environment)
        try:
            self.port = self._wait_for_port(log_start, timeout_s)
            wait_until_ready(self.host, self.port, timeout_s, self._check_alive)
        except Exception:
            self.kill()
            raise
        return self

    def stop(self, timeout_s: float = 30) -> None:
        """Shut down cleanly, which must exit with 0; does nothing when it is not running."""
        if self._process is None:
            return
        exit_code = self._process.terminate(timeout_s)
        process, self._process = self._process, None
        if exit_code != 0:
            raise RuntimeError(f"pybroker exited with {exit_code}\n{process.log_tail()}")

    def _command(self) -> list[str]:
        settings = [argument for name, value in self._properties.items() for argument in ("--set", f"{name}={value}")]
        listen = f"{self.host}:{self.port}"
        # Who sets several directories says so of the first one, too.
        data = [] if "log.dirs" in self._properties else ["--data-dir", str(self.data_directory)]
        return [str(self.command), "serve", "--listen", listen, *data, *settings, *self._arguments]

    def _wait_for_port(self, log_start: int, timeout_s: float) -> int:
        """The port in the ready line, which is looked for in what this start has written."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            self._check_alive()
            written = self.log_path.read_bytes()[log_start:].decode(errors="replace")
            if found := READY_LINE.search(written):
                return int(found["port"])
            time.sleep(0.005)
        raise TimeoutError(f"pybroker was not ready within {timeout_s} s")
