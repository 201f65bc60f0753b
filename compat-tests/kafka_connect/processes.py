"""A process that a page tells to start: a broker, a worker of Connect, or MirrorMaker.

Owns: its start by the page's line, the wait until it says that it is ready, its kill.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from harness.child_process import ChildProcess
from harness.waiting import wait_until

from kafka_connect.jars import MAIN_CLASSES, java_command

READY = {
    "pybroker": re.compile(r"^pybroker ready on ", re.MULTILINE),
    "connect-distributed.sh": re.compile(r"Kafka Connect started"),
    "connect-mirror-maker.sh": re.compile(r"Kafka MirrorMaker started"),
}


class PageProcess:
    """One that runs in ``directory``, by a line of a shell; its log is there, too, and goes on over restarts."""

    def __init__(self, line: str, directory: Path, log_name: str, environment: Mapping[str, str]) -> None:
        self.line = line
        self.log_path = directory / log_name
        self._directory, self._environment = directory, environment
        self._program, *arguments = shlex.split(line)
        if self._program in MAIN_CLASSES:
            line = shlex.join(java_command(self._program, arguments))
        self._command = f"cd {shlex.quote(str(directory))} && exec {line}"
        self._process: ChildProcess | None = None
        self._log_start = 0

    @property
    def is_running(self) -> bool:
        """Whether it was started and not killed since."""
        return self._process is not None

    def start(self) -> None:
        """Start it, again where it was killed; returns at once."""
        assert self._process is None, f"{self.line} runs already"
        self._log_start = self.log_path.stat().st_size if self.log_path.exists() else 0
        self._process = ChildProcess(["bash", "-c", self._command], self.log_path, self._environment)

    def wait_until_ready(self) -> None:
        """Wait for its line; raises ``RuntimeError`` where it ends before, ``TimeoutError``."""
        wait_until(self._has_said_so, f"{self.line}: {READY[self._program].pattern}")

    def kill(self) -> None:
        """SIGKILL; does nothing when it does not run."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def end(self, timeout_s: float) -> None:
        """SIGTERM, SIGKILL after ``timeout_s``."""
        assert self._process is not None, f"{self.line} does not run"
        self._process.terminate(timeout_s)
        self._process = None

    def _has_said_so(self) -> bool:
        assert self._process is not None, f"{self.line} does not run"
        if self._process.exit_code is not None:
            raise RuntimeError(f"{self.line} ended with {self._process.exit_code}\n{self._process.log_tail()}")
        written = self.log_path.read_bytes()[self._log_start :].decode(errors="replace")
        return READY[self._program].search(written) is not None
