"""A run of the tests that a shell starts in the background is as one in the foreground."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tests.source_tree import ROOT

ENDS_BY_AN_INTERRUPT = """
import signal
import subprocess
import sys


def test_it() -> None:
    child = "import os, signal; os.kill(os.getpid(), signal.SIGINT)"
    ended = subprocess.run([sys.executable, "-c", child], stderr=subprocess.DEVNULL, timeout=60)
    assert ended.returncode == -signal.SIGINT
"""


def test_what_a_test_starts_ends_by_an_interrupt_where_the_run_ignores_it(tmp_path: Path) -> None:
    module = tmp_path / "test_interrupted.py"
    module.write_text(ENDS_BY_AN_INTERRUPT)
    command = [sys.executable, "-m", "pytest", "-q", "-c", str(ROOT / "pyproject.toml"), "-p", "conftest", str(module)]
    run = subprocess.run(
        command,
        cwd=ROOT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
