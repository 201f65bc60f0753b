"""The examples of a page that are a person at a prompt: commands, and what each prints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from harness.waiting import PATIENCE_S

from tests.cli.command import forked_commands
from tests.docs.pages import Example, examples

_COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
BIN = Path(sys.executable).parent


def check_console(page: Path, bootstrap: str, environment: Mapping[str, str] | None = None) -> int:
    """Run a page's commands, in their order, in a folder of their own, against a broker; the result is how many ran.

    Each must print what the page says.
    """
    with TemporaryDirectory() as folder:
        return sum(check_block(block, folder, bootstrap, environment) for block in examples("console", page))


def check_block(
    block: Example, folder: Path | str, bootstrap: str, environment: Mapping[str, str] | None = None
) -> int:
    """As ``check_console``, of one block of a page, in a folder that the test names."""
    commands = _COMMAND.findall(block.code)
    path = f"{forked_commands().bin}:{BIN}:{os.environ['PATH']}"
    variables = {**os.environ, "PATH": path, "PYBROKER_BOOTSTRAP": bootstrap, **(environment or {})}
    for command, prints in commands:
        shell = ["bash", "-o", "pipefail", "-c", command]
        done = subprocess.run(
            shell, cwd=folder, env=variables, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert (done.returncode, done.stdout) == (0, prints), (command, done.stderr)
    return len(commands)


def check_shell(block: Example, folder: Path, environment: Mapping[str, str]) -> None:
    """Run a block's commands in one shell, which keeps what they export; each must print what the page says."""
    commands = _COMMAND.findall(block.code)
    script = "\n".join(f"{command}\necho '--- {number}'" for number, (command, _) in enumerate(commands))
    done = subprocess.run(
        ["bash", "-e"],
        input=script,
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.split(r"--- \d+\n", done.stdout)[:-1] == [prints for _, prints in commands]
