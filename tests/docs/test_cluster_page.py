"""The page on clusters: its test passes, and its commands print what it says."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from harness.pybroker_process import COMMAND, serving

from tests.docs.pages import examples
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
    (example,) = examples("console", PAGE)
    commands = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", example.code, re.MULTILINE)
    with serving([COMMAND, "cluster", "up", "--brokers", "3", "--dev", "--port", "0"]) as served:
        for command, prints in commands:
            environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
            shell = ["bash", "-o", "pipefail", "-c", command]
            done = subprocess.run(shell, env=environment, capture_output=True, text=True, timeout=60, check=False)
            assert (done.returncode, done.stdout) == (0, prints), done.stderr
        assert served.stop(signal.SIGINT) == 0
