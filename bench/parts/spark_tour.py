"""The tour of a year, as `scripts/demo --tour` runs it: from the start of its process to its end, its checks included.

Once, however many rounds there are: it takes minutes, and its bar is for whoever watches it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec

from bench.contestants import PYBROKER
from bench.context import Context, settle

TIMEOUT_S = 1_200


def run(context: Context) -> None:
    """The whole tour, with a broker and a database of its own; it fails where it finds what the batch does not."""
    if find_spec("pyspark") is None:
        raise RuntimeError("Spark is not installed: run scripts/spark-setup")
    settle()
    with tempfile.TemporaryDirectory(dir=context.root) as directory:
        command = [sys.executable, "-m", "examples.tour", "--output", directory]
        started = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        seconds = time.monotonic() - started
    if done.returncode:
        raise RuntimeError(f"the tour exited with {done.returncode}: {(done.stdout + done.stderr).strip()[-2000:]}")
    context.add("tour", "s", PYBROKER, seconds)
