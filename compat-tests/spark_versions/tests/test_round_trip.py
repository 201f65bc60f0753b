"""The round trip of `scripts/spark-versions`, with the locked PySpark."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.jvm(needs="spark")

ENDED_WITHIN_S = 240


@pytest.mark.timeout(ENDED_WITHIN_S + 30)
def test_rows_come_back_with_the_locked_pyspark() -> None:
    """In a process of its own: this one's session is the pipeline's."""
    from spark_versions import round_trip

    done = subprocess.run(
        [sys.executable, round_trip.__file__], capture_output=True, text=True, timeout=ENDED_WITHIN_S, check=False
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    assert done.stdout.startswith("PySpark 4.")
    assert "20,000 rows there and back in 4 micro-batches" in done.stdout
