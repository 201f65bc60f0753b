"""The process of the job, seen from outside: started, given orders, heard, killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.waiting import wait_until

UP_WITHIN_S = 90.0
ENDS_WITHIN_S = 60.0


class Driver:
    """One process; a process group of its own holds its JVM, too."""

    def __init__(self, master: str, directory: Path, number: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._told_path = directory / f"driver-{number}.told"
        self._log_path = directory / f"driver-{number}.log"
        scratch = directory / f"driver-{number}"
        scratch.mkdir()
        with self._told_path.open("wb") as told, self._log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "exactly_once.job", master],
                stdin=subprocess.PIPE,
                stdout=told,
                stderr=log,
                text=True,
                env={**os.environ, "TMPDIR": str(scratch)},
                start_new_session=True,
            )

    def told(self) -> list[dict[str, Any]]:
        """The lines so far."""
        written, _, _ = self._told_path.read_text().rpartition("\n")
        return [json.loads(line) for line in written.splitlines()]

    def wait_until_up(self) -> None:
        """Until Spark is there to run queries; raises ``RuntimeError`` when the process ends before that."""
        wait_until(lambda: self.told() or not self.is_running, "Spark", UP_WITHIN_S)
        if not self.is_running:
            raise RuntimeError(f"the driver ended:\n{self.log_tail()}")

    def order(self, order: dict[str, Any]) -> None:
        """Have a query run."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def log_tail(self) -> str:
        return self._log_path.read_text(errors="replace")[-3_000:]

    def stop(self) -> None:
        """Let it end, or kill it where it does not."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(ENDS_WITHIN_S)
        self.kill()

    def kill(self) -> None:
        """Kill -9, its JVM with it; does nothing to one that has ended."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
