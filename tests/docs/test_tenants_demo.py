"""The demo of tenants ends well."""

from __future__ import annotations

import subprocess
import sys

import pytest
from harness.waiting import PATIENCE_S


@pytest.mark.slow
@pytest.mark.alone
def test_two_tenants_cannot_see_stop_or_starve_each_other() -> None:
    command = [sys.executable, "-m", "examples.tenants", "--seconds", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
