"""The command: what is run in which order, what a failure or a missing tool does, and how the table shows it."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import pytest
from conformance.client_folder import ToolchainMissing
from harness import results
from harness.apache_kafka import missing_requirement
from harness.waiting import PATIENCE_S

from bench.contestants import KAFKA, PYBROKER
from check_it_yourself import __main__ as command
from check_it_yourself.all_checks import CHECKS, NAMES
from check_it_yourself.check import FULL, QUICK, Better, Check, CheckFailed, Figure, Subject
from check_it_yourself.table import Finding, remarks, table

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "check-it-yourself.md"
BOTH = [KAFKA, PYBROKER]


class Scripted(Check):
    """A tool whose figures are set beforehand, by broker; one that has none fails."""

    name: ClassVar[str] = "scripted"
    tool = "tool"

    def __init__(self, missing: str | None = None, **rates: float) -> None:
        self.asked: list[str] = []
        self._missing, self._rates = missing, rates

    def prepare(self) -> None:
        if self._missing is not None:
            raise ToolchainMissing(self._missing)

    def run(self, subject: Subject) -> list[Figure]:
        self.asked.append(subject.bootstrap)
        if subject.bootstrap not in self._rates:
            raise CheckFailed("records are lost")
        return [Figure("produce", "records/s", self._rates[subject.bootstrap], Better.HIGHER)]


@pytest.fixture(autouse=True)
def _brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    """No broker is started: its address is its name."""

    @contextmanager
    def started(broker: str, *_: object) -> Iterator[str]:
        yield broker

    monkeypatch.setattr(command, "started", started)


def test_brokers_take_turns_at_being_first(tmp_path: Path) -> None:
    check = Scripted(kafka=1, pybroker=2)
    command.run_check(check, BOTH, QUICK, 3, tmp_path)
    assert check.asked == [KAFKA, PYBROKER, PYBROKER, KAFKA, KAFKA, PYBROKER]


def test_warm_run_measures_the_second_time(tmp_path: Path) -> None:
    check = Scripted(kafka=1000, pybroker=2500)
    finding = command.run_check(check, BOTH, FULL, 1, tmp_path)
    assert check.asked == [KAFKA, KAFKA, PYBROKER, PYBROKER]
    assert finding.rows["produce"].values == {KAFKA: [1000], PYBROKER: [2500]}


def test_row_has_both_medians_and_pybrokers_share_of_kafkas(tmp_path: Path) -> None:
    finding = command.run_check(Scripted(kafka=1000, pybroker=2500), BOTH, QUICK, 3, tmp_path)
    assert list(finding.lines()) == [("tool", "produce, records/s", "1,000", "2,500", "2.50", "yes")]
    assert command.exit_code([finding]) == 0


def test_broker_that_a_tool_failed_with_is_not_asked_again_and_the_other_one_is(tmp_path: Path) -> None:
    check = Scripted(kafka=1000)
    finding = command.run_check(check, BOTH, QUICK, 3, tmp_path)
    assert check.asked == [KAFKA, PYBROKER, KAFKA, KAFKA]
    assert list(finding.lines()) == [("tool", "produce, records/s", "1,000", "failed", "–", "**no**")]
    assert remarks([finding], command.BROKERS) == ["failed: tool with pybroker: CheckFailed: records are lost"]
    assert command.exit_code([finding]) == command.PYBROKER_FAILED


def test_failure_with_apache_kafka_is_shown_and_no_fault_of_pybroker(tmp_path: Path) -> None:
    finding = command.run_check(Scripted(pybroker=1), BOTH, QUICK, 1, tmp_path)
    assert list(finding.lines()) == [("tool", "produce, records/s", "failed", "1", "–", "yes")]
    assert command.exit_code([finding]) == 0


def test_tool_that_is_missing_is_skipped_and_said(tmp_path: Path) -> None:
    check = Scripted(missing="there is no tool")
    finding = command.run_check(check, BOTH, QUICK, 1, tmp_path)
    assert check.asked == []
    assert list(finding.lines()) == [("tool", "–", "–", "–", "–", "skipped")]
    assert remarks([finding], command.BROKERS) == ["skipped: tool: there is no tool"]
    assert command.exit_code([finding]) == results.NOTHING_RAN


def test_failed_build_is_no_fault_of_pybroker(tmp_path: Path) -> None:
    class Unbuildable(Scripted):
        def prepare(self) -> None:
            raise RuntimeError("cc: no such file")

    finding = command.run_check(Unbuildable(), BOTH, QUICK, 1, tmp_path)
    assert finding.missing == "it cannot be built here: cc: no such file"
    assert finding.ok == "skipped"


def test_comparison_is_passed_and_has_no_ratio() -> None:
    finding = Finding("verifiable", "tool")
    for broker in BOTH:
        finding.add(broker, [Figure("all consumed", "", 300, Better.PASSED)])
    assert list(finding.lines()) == [("tool", "all consumed", "passed", "passed", "–", "yes")]


def test_latencies_say_that_less_is_better() -> None:
    finding = Finding("latency", "tool")
    finding.add(PYBROKER, [Figure("p99", "ms", 0.1234, Better.LOWER)])
    assert list(finding.lines()) == [("tool", "p99, ms (less is better)", "–", "0.123", "–", "yes")]


def test_table_is_markdown_whose_columns_stand_below_each_other() -> None:
    short, long = Finding("a", "a"), Finding("b", "a longer name")
    short.add(KAFKA, [Figure("x", "", 5, Better.HIGHER)])
    long.add(KAFKA, [Figure("x", "", 5_000, Better.HIGHER)])
    lines = table([short, long]).splitlines()
    assert len(lines) == 4
    assert len({len(line) for line in lines}) == 1
    assert len({line.count("|") for line in lines}) == 1


def test_every_name_of_a_tool_stands_on_the_page() -> None:
    assert [name for name in NAMES if f"| `{name}` |" not in PAGE.read_text()] == []


def test_every_line_of_the_page_is_taken() -> None:
    """Each takes minutes or an hour to run."""
    lines = re.findall(r"^scripts/check-it-yourself\b(.*)$", PAGE.read_text(), re.MULTILINE)
    taken = [command.parse_arguments(shlex.split(line, comments=True)) for line in lines]
    assert [(each.quick, each.only, each.rounds, each.json) for each in taken] == [
        (True, None, None, False),
        (False, None, None, False),
        (False, ["kcat"], None, False),
        (False, None, 7, True),
    ]


def test_every_check_is_called_otherwise_in_the_table() -> None:
    assert len({check.tool for check in CHECKS}) == len(CHECKS)


@pytest.mark.jvm
def test_a_quick_run_of_kafkas_verifiable_tools_passes_against_pybroker() -> None:
    if (reason := missing_requirement()) is not None:
        pytest.skip(reason)
    words = ["--quick", "--only", "verifiable", "--brokers", PYBROKER, "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "check_it_yourself", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (finding,) = json.loads(done.stdout)["findings"]
    assert finding["failed"] == {}
    assert [row["better"] for row in finding["rows"]] == ["passed", "higher"]
