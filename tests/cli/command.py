"""Runs the real command against a running broker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from harness.forked_commands import ForkedCommands
from harness.waiting import PATIENCE_S

COMMAND = str(Path(sys.executable).parent / "pybroker")


@cache
def forked_commands() -> ForkedCommands:
    """This process's, from its first command on."""
    return ForkedCommands()


def end_forked_commands() -> None:
    """End the process that forks, if there is one."""
    if forked_commands.cache_info().currsize:
        forked_commands().close()
        forked_commands.cache_clear()


@dataclass(frozen=True)
class CommandLine:
    """``pybroker`` with a bootstrap address in its environment, as a user would export it."""

    bootstrap: str

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """A running command with its three streams on pipes, started from nothing."""
        pipe = subprocess.PIPE
        return subprocess.Popen([COMMAND, *arguments], stdin=pipe, stdout=pipe, stderr=pipe, env=self.environment())

    def environment(self) -> dict[str, str]:
        """What a command has in its environment."""
        return {**os.environ, "PYBROKER_BOOTSTRAP": self.bootstrap}

    def run(self, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """The command, run to its end whatever its exit code."""
        return forked_commands().run(arguments, self.environment(), stdin, PATIENCE_S)

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
