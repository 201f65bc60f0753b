"""The round trip of `scripts/spark-versions`, with the locked PySpark."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.jvm(needs="spark")

ENDED_WITHIN_S = 240
SCRIPT = Path(__file__).parents[1] / "round_trip.py"


@pytest.mark.timeout(ENDED_WITHIN_S + 30)
def test_rows_come_back_with_the_locked_pyspark() -> None:
    """In a process of its own: this one's session is the pipeline's."""
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, timeout=ENDED_WITHIN_S, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]
    assert done.stdout.startswith("PySpark 4.")
    assert "20,000 rows there and back in 4 micro-batches" in done.stdout
