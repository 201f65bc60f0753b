"""A commit's share of the heavy tests is a third of them, the same everywhere, and another one for another commit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from harness.ci_share import share
from harness.waiting import PATIENCE_S

UNITS = [f"tests/test_{number}.py" for number in range(40)]
OPTIONS = ("-p", "no:randomly", "-p", "no:cacheprovider", "-p", "harness.ci_share", "-q", "-o", "markers=jvm")
SUITE = """
import pytest
jvm = pytest.mark.jvm if {jvm} else lambda test: test
@jvm
@pytest.mark.parametrize("number", range(6))
def test_passes(number): pass
"""


def passed(directory: Path, *arguments: str) -> set[str]:
    """The names of the tests that a pytest of its own has run."""
    command = [sys.executable, "-m", "pytest", *OPTIONS, "-rp", *arguments]
    finished = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    return {line.split()[1] for line in finished.stdout.splitlines() if line.startswith("PASSED ")}


def test_a_share_is_a_third_and_the_same_whatever_the_order() -> None:
    assert len(share("27f4aa6", UNITS)) == 14
    assert share("27f4aa6", UNITS) == share("27f4aa6", reversed(UNITS))
    assert share("27f4aa6", UNITS[:1]) == {UNITS[0]}, "a third of one is rounded up"


def test_ten_commits_in_a_row_cover_nearly_all() -> None:
    covered = set().union(*(share(commit, UNITS) for commit in "0123456789"))
    assert len(covered) >= 36


def test_a_run_with_a_share_leaves_out_two_thirds_of_the_tests(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text(SUITE.format(jvm=False))
    everything = passed(tmp_path)
    drawn = passed(tmp_path, "--share", "27f4aa6")
    assert drawn == share("27f4aa6", everything)
    assert len(everything) == 6


def test_tests_of_a_file_that_share_a_jvm_are_drawn_together(tmp_path: Path) -> None:
    for name in ("test_one.py", "test_two.py"):
        (tmp_path / name).write_text(SUITE.format(jvm=True))
    drawn = passed(tmp_path, "--share", "27f4aa6")
    assert len(drawn) == 6
    assert len({each.partition("::")[0] for each in drawn}) == 1
