"""Runs the real command against a running broker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMMAND = str(Path(sys.executable).parent / "pybroker")
TIMEOUT_S = 60


@dataclass(frozen=True)
class CommandLine:
    """``pybroker`` with a bootstrap address in its environment, as a user would export it."""

    bootstrap: str

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """A running command with its three streams on pipes."""
        pipe = subprocess.PIPE
        environment = {**os.environ, "PYBROKER_BOOTSTRAP": self.bootstrap}
        return subprocess.Popen([COMMAND, *arguments], stdin=pipe, stdout=pipe, stderr=pipe, env=environment)

    def run(self, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """The command, run to its end whatever its exit code."""
        with self.start(*arguments) as process:
            try:
                stdout, stderr = process.communicate(stdin, TIMEOUT_S)
            except BaseException:
                process.kill()
                raise
        return subprocess.CompletedProcess(arguments, process.returncode, stdout, stderr)

    def ok(self, *arguments: str, stdin: bytes = b"") -> bytes:
        """Stdout of a command that must succeed."""
        finished = self.run(*arguments, stdin=stdin)
        assert finished.returncode == 0, finished.stderr.decode()
        return finished.stdout

    def json(self, *arguments: str) -> Any:
        """The document that a command prints with ``--json``."""
        return json.loads(self.ok(*arguments, "--json"))

    def lines(self, *arguments: str, stdin: bytes = b"") -> list[str]:
        """The lines of a command's stdout."""
        return self.ok(*arguments, stdin=stdin).decode().splitlines()
