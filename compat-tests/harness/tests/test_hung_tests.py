"""A test that does not heed its time-out ends its process, and the output shows where it stood."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness.hung_tests import SLACK_S
from harness.waiting import PATIENCE_S

# The time-out's error ends the callback, not the loop.
SUITE = """
import asyncio
import time

async def forever():
    while True:
        asyncio.get_running_loop().call_soon(time.sleep, 1000)
        await asyncio.sleep(0.01)

def test_that_hangs():
    asyncio.run(forever())
"""


@pytest.mark.parametrize("workers", ["0", "1"])
def test_an_event_loop_that_takes_the_time_out_for_an_error_of_a_callback_is_ended(
    tmp_path: Path, workers: str
) -> None:
    (tmp_path / "test_one.py").write_text(SUITE)
    plugins = ("-p", "no:cacheprovider", "-p", "harness.hung_tests", "-n", workers, "--max-worker-restart", "0")
    command = [
        sys.executable,
        "-m",
        "pytest",
        *plugins,
        "--timeout",
        "0.5",
        "--hung-after",
        str(0.5 - SLACK_S),
        "--reruns",
        "1",
    ]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert ended.returncode == 1
    assert "in test_that_hangs" in ended.stderr
