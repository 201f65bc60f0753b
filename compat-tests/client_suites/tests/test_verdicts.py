"""What a run of a client's own tests is held to."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest
from conformance.client_folder import ToolchainMissing
from harness import broker_probe, results

from client_suites.__main__ import main
from client_suites.all_suites import SUITES
from client_suites.kafka_python import KafkaPython, outcomes_of
from client_suites.suite import Outcome, Verdict, judge


def test_listed_tests_must_pass_and_others_are_told() -> None:
    outcomes = {"a": Outcome.PASSED, "b": Outcome.FAILED, "c": Outcome.SKIPPED, "d": Outcome.PASSED}
    listed = ["a", "b", "c", "gone"]
    assert judge(outcomes, listed, listed) == Verdict(broken=("b", "c", "gone"), unlisted=("d",))
    assert judge(outcomes, ["b"], listed) == Verdict(broken=("b",), unlisted=("d",))


def test_errors_in_fixtures_count_as_failures(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    cases = {"fine": "", "broken": "<failure/>", "unset": "<error/>", "left": "<skipped/>"}
    rows = [f'<testcase classname="test.a.test_x" name="{name}">{inner}</testcase>' for name, inner in cases.items()]
    rows.append('<testcase classname="test.a.test_x.TestOfKind" name="fine"/>')
    report.write_text(f"<testsuites><testsuite>{''.join(rows)}</testsuite></testsuites>")
    assert outcomes_of(report) == {
        "test_x.py::fine": Outcome.PASSED,
        "test_x.py::broken": Outcome.FAILED,
        "test_x.py::unset": Outcome.FAILED,
        "test_x.py::left": Outcome.SKIPPED,
        "test_x.py::TestOfKind::fine": Outcome.PASSED,
    }


@pytest.mark.parametrize(
    ("step", "reason", "told"),
    [
        ("run", subprocess.TimeoutExpired("suite", 1200), "HANGS: it was ended after 1200 s"),
        ("run", RuntimeError("pytest left no report"), "CANNOT BE RUN: pytest left no report"),
        ("run", TimeoutError("waited 10 s for a topic"), "CANNOT BE RUN: waited 10 s for a topic"),
        ("prepare", RuntimeError("go test failed"), "CANNOT BE RUN: go test failed"),
        ("prepare", subprocess.TimeoutExpired("go test", 600), "HANGS: it was ended after 600 s"),
    ],
)
def test_suite_that_tells_nothing_has_failed_and_the_others_are_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    step: str,
    reason: Exception,
    told: str,
) -> None:
    fails, passes = (SUITES[name] for name in ("franz-go", "kafka-python"))

    def fail(*_: object, **__: object) -> NoReturn:
        raise reason

    for suite in (fails, passes):
        monkeypatch.setattr(suite, "prepare", lambda: None)
    monkeypatch.setattr(fails, step, fail)
    monkeypatch.setattr(passes, "run", lambda *_, **__: dict.fromkeys(passes.allowed(), Outcome.PASSED))
    monkeypatch.setattr(results, "DIRECTORY", tmp_path)
    monkeypatch.setattr(sys, "argv", ["scripts/client-suites", "--bootstrap", "nobody:9092"])
    monkeypatch.setattr(broker_probe, "answers_as_broker", lambda *_, **__: True)
    assert main() == 1
    assert f"{fails.name} {told}" in capsys.readouterr().err
    assert [suite["broken"] for suite in results.read("client-suites")] == [sorted(fails.allowed()), []]


def test_run_without_a_report_says_what_it_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Crashes(KafkaPython):
        """Its interpreter ends before pytest has written anything."""

        _python = sys.executable
        _source = tmp_path

    (tmp_path / "pytest.py").write_text("raise SystemExit('no module named lz4')")
    with pytest.raises(RuntimeError, match="no module named lz4"):
        Crashes().run("nobody:9092", tmp_path / "log")


def test_suite_that_cannot_be_run_is_told_and_is_no_success_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lack() -> NoReturn:
        raise ToolchainMissing("go is not here")

    monkeypatch.setattr(SUITES["franz-go"], "prepare", lack)
    monkeypatch.setattr(results, "DIRECTORY", tmp_path)
    monkeypatch.setattr(sys, "argv", ["scripts/client-suites", "franz-go"])
    assert main() == 5
    assert capsys.readouterr().err.endswith("no suite ran\n")
    (entry,) = results.read("client-suites")
    assert (entry["outcomes"], entry["missing"]) == ({}, "go is not here")


@pytest.mark.parametrize("name", SUITES)
def test_allow_lists_name_each_test_once_and_in_order(name: str) -> None:
    allowed = SUITES[name].allowed()
    assert allowed
    assert list(allowed) == sorted(set(allowed))
