"""One child process of a test: started with its output in a file, ended for certain.

Owns: start, clean stop, kill -9 and the log file of one process.  Knows nothing of brokers:
``ApacheKafka`` and ``PybrokerProcess`` say what to start and when it is ready.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


class ChildProcess:
    """A running child; its stdout and stderr are appended to ``log_path``."""

    def __init__(self, command: Sequence[str], log_path: Path, environment: Mapping[str, str] | None = None) -> None:
        self.command = list(command)
        self.log_path = log_path
        self._log = log_path.open("ab")
        self._process = subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code, negative for a signal; ``None`` while it runs."""
        return self._process.poll()

    def terminate(self, timeout_s: float) -> int:
        """Ask with SIGTERM, insist with SIGKILL after ``timeout_s``; returns the exit code."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
        return self._reap()

    def kill(self) -> int:
        """SIGKILL, as a crash; returns the exit code."""
        if self._process.poll() is None:
            self._process.kill()
        return self._reap()

    def wait(self, timeout_s: float) -> int:
        """Wait for it to end by itself; raises ``TimeoutError`` when it does not."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"{self.command[0]} still runs after {timeout_s} s\n{self.log_tail()}") from None
        return self._reap()

    def log_tail(self, lines: int = 40) -> str:
        """The last lines of its output, for messages about failures."""
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])

    def _reap(self) -> int:
        exit_code = self._process.wait()
        self._log.close()
        return exit_code
