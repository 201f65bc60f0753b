"""What a release builds, once for all tests of it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.source_tree import ROOT

BUILT_WITHIN_S = 300


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as a release has it: built from the sdist, and checked."""
    out = tmp_path_factory.mktemp("dist")
    subprocess.run([ROOT / "scripts" / "package", out], check=True, timeout=BUILT_WITHIN_S)
    (built,) = out.glob("*.whl")
    return built
