"""``scripts/audit`` says what it could not find out: who was not asked about is not sound."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from harness.waiting import PATIENCE_S

from tests.source_tree import ROOT


@pytest.fixture(scope="module")
def audit() -> ModuleType:
    spec = importlib.util.spec_from_file_location("audit", ROOT / "scripts" / "audit.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SOUND = {"name": "a", "version": "1", "vulns": []}
FLAWED = {"name": "b", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3"], "description": "x"}]}
UNKNOWN = {"name": "c", "skip_reason": "Dependency not found on PyPI and could not be audited: c (1)"}


@pytest.mark.parametrize(
    ("packages", "code", "told"),
    [
        ([SOUND], 0, "1 of 1 packages were asked about"),
        ([SOUND, FLAWED], 1, "b 2: PYSEC-1, mended in 3"),
        ([FLAWED, UNKNOWN], 1, "does not know them: c"),
        ([SOUND, UNKNOWN], 2, "does not know them: c"),
        ([UNKNOWN], 2, "nothing was audited: of 1 packages"),
        ([], 2, "nothing was audited: of 0 packages"),
    ],
)
def test_the_verdict_is_of_what_was_asked_about(
    audit: ModuleType, packages: list[dict[str, Any]], code: int, told: str
) -> None:
    lines, found = audit.verdict({"dependencies": packages, "fixes": []})
    assert found == code
    assert any(told in line for line in lines)


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(("code", "ends_with", "is_told"), [(0, 0, False), (1, 1, False), (2, 0, True), (3, 3, False)])
def test_all_tests_fail_by_what_is_known_and_tell_that_nobody_could_be_asked(
    audit: ModuleType, tmp_path: Path, code: int, ends_with: int, is_told: bool
) -> None:
    text = (ROOT / "scripts" / "test").read_text()
    assert f"NOT_AUDITED={audit.Code.NOT_ASKED:d} " in text
    function = re.search(r"^audit\(\) \{\n.*?^\}$", text, re.MULTILINE | re.DOTALL)
    assert function is not None
    stand_in = tmp_path / "scripts" / "audit"
    stand_in.parent.mkdir()
    stand_in.write_text(f"#!/bin/sh\nexit {code}\n")
    stand_in.chmod(0o755)
    settings = f"root={tmp_path}\nNOT_AUDITED={audit.Code.NOT_ASKED:d}"
    script = f'set -euo pipefail\n{settings}\nsay() {{ echo "$*"; }}\n{function[0]}\naudit\n'
    ended = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (ended.returncode, "not everything was asked about" in ended.stdout) == (ends_with, is_told), ended.stderr
