"""The guide's commands run as it has them: from its top to its end, in an empty directory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.pybroker_process import COMMAND, serving
from harness.waiting import PATIENCE_S

from tests.docs.pages import examples
from tests.source_tree import ROOT

GUIDE = ROOT / "docs" / "guide.md"
BIN = Path(sys.executable).parent
ADDRESS = "localhost:9092"
# What goes on until it is interrupted.
WATCHING = "--watch"
# The state of this machine decides it.
EXAMINING = "pybroker doctor --data-dir"


class Shell:
    """Runs lines in the directory of a broker, which they find where the guide's is."""

    def __init__(self, directory: Path, bootstrap: str) -> None:
        self._directory = directory
        self._bootstrap = bootstrap
        self._variables = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "PYBROKER_BOOTSTRAP": bootstrap}

    def start(self, line: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", "-o", "pipefail", "-c", line.replace(ADDRESS, self._bootstrap)],
            cwd=self._directory,
            env=self._variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, line: str) -> str:
        """What the line prints; it succeeds."""
        with self.start(line) as process:
            printed, told = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0 or line.startswith(EXAMINING), (line, told)
        return printed

    def watch(self, line: str) -> str:
        """The first line that it prints before it is interrupted."""
        with self.start(f"exec {line}") as process:
            assert process.stdout is not None
            first = process.stdout.readline()
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=PATIENCE_S)
        return first


def commands(containing: str) -> list[str]:
    """The lines of the one block of the guide that contains this."""
    (block,) = (example for example in examples("sh", GUIDE) if containing in example.code)
    return block.code.splitlines()


@pytest.fixture
def shell(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Shell]:
    settings = [word for setting in getattr(request, "param", ()) for word in ("--set", setting)]
    command = [COMMAND, "serve", "--listen", "127.0.0.1:0", "--data-dir", tmp_path / "data", *settings]
    with serving(command) as served:
        yield Shell(tmp_path, served.bootstrap)
        served.stop()


def test_the_commands_succeed_in_their_order(shell: Shell) -> None:
    printed = {line: shell.watch(line) if WATCHING in line else shell.run(line) for line in commands("topics create")}
    assert len(printed) > 20
    silent = [line for line, text in printed.items() if not text]
    assert all("pybroker produce" in line or "> sales.txt" in line for line in silent), silent


ACLS = ("authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",)


@pytest.mark.parametrize("shell", [(*ACLS, "super.users=User:admin;User:ANONYMOUS")], indirect=True)
def test_the_acls_are_added_and_listed_by_whom_the_guide_names_a_super_user(shell: Shell) -> None:
    assert "`super.users=User:admin;User:ANONYMOUS`" in GUIDE.read_text()
    assert all(shell.run(line) for line in commands("acls add"))


@pytest.mark.parametrize("shell", [(*ACLS, "super.users=User:admin")], indirect=True)
def test_a_client_without_a_login_has_no_rights_where_the_guide_says_so(shell: Shell) -> None:
    with shell.start(commands("acls add")[0]) as process:
        _, told = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert "CLUSTER_AUTHORIZATION_FAILED" in told
