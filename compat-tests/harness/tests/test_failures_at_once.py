"""The output has a failure before the tests behind it run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness.waiting import PATIENCE_S

SUITE = """
import os, sys

def test_first():
    assert [] == ["the reason"]

def test_second():
    os._exit(3)
"""


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_failure_is_told_although_the_session_does_not_come_to_its_end(tmp_path: Path, workers: str) -> None:
    (tmp_path / "test_one.py").write_text(SUITE)
    # A worker that ends is shown as a failure of its test.
    plugins = ("-p", "no:cacheprovider", "-p", "no:randomly", "-p", "harness.failures_at_once", "-n", workers)
    command = [sys.executable, "-m", "pytest", *plugins, "--max-worker-restart", "0", "--reruns", "1"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    told, _, _ = ended.stdout.partition("= FAILURES =")
    assert "rerun in call: test_one.py::test_first" in told
    assert "failed in call: test_one.py::test_first" in told
    assert "AssertionError: assert [] == ['the reason']" in told
