"""``scripts/audit`` says what it could not find out: who was not asked about is not sound."""

from __future__ import annotations

import importlib.util
from types import ModuleType
from typing import Any

import pytest

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
