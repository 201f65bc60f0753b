"""How long tests and fixtures take: a plugin of pytest that writes it down, and a command that sums it up.

Owns: the file of times, one line of JSON for each test and each set-up of a fixture, to which the stages of
``scripts/test`` append; and the table of the slowest.  A fixture's time leaves out the fixtures that it asks for.

    pytest -p harness.test_times --times-to FILE ...
    python -m harness.test_times FILE
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

SHOWN = 10
_ATTRIBUTE = "fixture_times"

# Set-ups since the last report of this process.
_fixtures: list[tuple[str, float]] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--times-to", type=Path, metavar="FILE", help="append how long tests and fixtures take")


def pytest_configure(config: pytest.Config) -> None:
    if (path := config.getoption("--times-to")) is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Writer(path))


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
    started = time.perf_counter()
    try:
        return (yield)
    finally:
        name = f"{fixturedef.baseid}::{fixturedef.argname}".removeprefix("::")
        _fixtures.append((name, time.perf_counter() - started))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A report takes the set-ups since the last one along, because workers of pytest-xdist send nothing else."""
    report = yield
    setattr(report, _ATTRIBUTE, _fixtures[:])
    _fixtures.clear()
    return report


class _Writer:
    """Appends what the reports of one session say."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tests: defaultdict[str, float] = defaultdict(float)
        self._fixtures: list[tuple[str, float]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._tests[report.nodeid] += report.duration
        self._fixtures += getattr(report, _ATTRIBUTE, ())

    def pytest_sessionfinish(self) -> None:
        with self._path.open("a") as file:
            for kind, times in (("test", self._tests.items()), ("fixture", self._fixtures)):
                for name, seconds in times:
                    file.write(json.dumps([kind, name, round(seconds, 3)]) + "\n")


def slowest(lines: Iterator[str]) -> str:
    """The table: the slowest tests with their fixtures, and the fixtures that take longest over all their set-ups."""
    tests: defaultdict[str, float] = defaultdict(float)
    fixtures: defaultdict[str, list[float]] = defaultdict(list)
    for kind, name, seconds in map(json.loads, lines):
        if kind == "test":
            tests[name] = max(tests[name], seconds)
        else:
            fixtures[name].append(seconds)
    of_tests = sorted(tests.items(), key=lambda each: -each[1])[:SHOWN]
    of_fixtures = sorted(fixtures.items(), key=lambda each: -sum(each[1]))[:SHOWN]
    return "\n".join(
        [
            "the slowest tests, with what they set up:",
            *(f"{seconds:8.1f} s  {name}" for name, seconds in of_tests),
            "the fixtures that took longest, in all:",
            *(f"{sum(times):8.1f} s  {name} ({len(times)} times)" for name, times in of_fixtures),
        ]
    )


if __name__ == "__main__":
    with Path(sys.argv[1]).open() as file:
        sys.stdout.write(slowest(iter(file)) + "\n")
