"""Times of tests and fixtures are written down, also by workers, and the slowest are shown."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.test_times import slowest
from harness.waiting import PATIENCE_S

SUITE = """
import pytest
@pytest.fixture
def inner(): pass
@pytest.fixture
def outer(inner): pass
def test_it(outer): pass
"""


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_run_appends_its_tests_and_fixtures_to_the_file(tmp_path: Path, workers: str) -> None:
    (tmp_path / "test_one.py").write_text(SUITE)
    times = tmp_path / "times"
    times.write_text('["test", "of an earlier stage", 1.0]\n')
    plugins = ("-p", "no:cacheprovider", "-p", "harness.test_times")
    command = [sys.executable, "-m", "pytest", *plugins, "-n", workers, "--times-to", str(times)]
    subprocess.run(command, cwd=tmp_path, stdout=subprocess.DEVNULL, timeout=PATIENCE_S, check=True)
    kinds_and_names = [json.loads(line)[:2] for line in times.read_text().splitlines()]
    assert kinds_and_names[0] == ["test", "of an earlier stage"]
    assert ["test", "test_one.py::test_it"] in kinds_and_names
    assert kinds_and_names.index(["fixture", "test_one.py::inner"]) < kinds_and_names.index(
        ["fixture", "test_one.py::outer"]
    )


def test_the_slowest_come_first_and_set_ups_of_a_fixture_are_added_up() -> None:
    lines = [json.dumps(["test", f"t{number}", number]) for number in range(12)]
    lines += [json.dumps(["fixture", name, seconds]) for name, seconds in (("often", 2), ("once", 3), ("often", 2))]
    table = slowest(iter(lines)).splitlines()
    assert table[1].split() == ["11.0", "s", "t11"]
    assert len(table) == 1 + 10 + 1 + 2
    assert table[-2].split() == ["4.0", "s", "often", "(2", "times)"]
