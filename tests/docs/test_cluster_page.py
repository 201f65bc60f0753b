"""The page on clusters: its test passes, and its commands print what it says."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from harness.pybroker_process import COMMAND, serving

from tests.docs.pages import Example, examples
from tests.source_tree import ROOT

PAGE = ROOT / "docs" / "cluster.md"
BIN = Path(sys.executable).parent


def test_the_pages_test_passes(tmp_path: Path) -> None:
    (example,) = examples("python", PAGE)
    (tmp_path / "test_orders.py").write_text(example.code)
    command = [str(BIN / "pytest"), "-p", "no:cacheprovider", "test_orders.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_the_pages_commands_print_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "".join(example.code for example in examples("console", PAGE))
    commands = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE)
    with serving([COMMAND, "cluster", "up", "--brokers", "3", "--dev", "--port", "0"]) as served:
        path = f"{BIN}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "PYBROKER_BOOTSTRAP": served.bootstrap}
        for command, prints in commands:
            shell = ["bash", "-o", "pipefail", "-c", command]
            done = subprocess.run(shell, env=environment, capture_output=True, text=True, timeout=60, check=False)
            assert (done.returncode, done.stdout) == (0, prints), (command, done.stderr)
        assert served.stop(signal.SIGINT) == 0


@pytest.mark.parametrize("example", examples("sh", PAGE), ids=str)
def test_what_the_page_tells_to_start_serves(example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On ports that are free here; the lines of one block run at the same time."""
    monkeypatch.chdir(tmp_path)
    code = re.sub(r"--listen 127.0.0.1:\d+", "--listen 127.0.0.1:0", example.code)
    code = code.replace("/var/lib/pybroker", str(tmp_path)).replace("cluster up", "cluster up --port 0")
    with ExitStack() as stack:
        for line in code.splitlines():
            name, *arguments = line.split()
            assert name == "pybroker"
            served = stack.enter_context(serving([COMMAND, *arguments]))
            stack.callback(served.stop)
