"""What a run of a client's own tests is held to."""

from __future__ import annotations

from pathlib import Path

import pytest

from client_suites.all_suites import SUITES
from client_suites.kafka_python import outcomes_of
from client_suites.suite import AllowList, Outcome, Verdict, judge, parse_allow_list


def test_listed_tests_must_pass_and_others_are_told() -> None:
    outcomes = {"a": Outcome.PASSED, "b": Outcome.FAILED, "c": Outcome.SKIPPED, "d": Outcome.PASSED}
    listed = AllowList(must_pass=("a", "b", "c", "gone"), flaky=())
    assert judge(outcomes, listed) == Verdict(broken=("b", "c", "gone"), unlisted=("d",))
    assert judge(outcomes, listed, ["b"]) == Verdict(broken=("b",), unlisted=("d",))


def test_flaky_tests_that_fail_are_told_and_must_pass_where_they_are_asked_for() -> None:
    outcomes = {"a": Outcome.PASSED, "b": Outcome.FAILED, "c": Outcome.SKIPPED, "d": Outcome.PASSED}
    listed = AllowList(must_pass=("a",), flaky=("b", "c", "d", "gone"))
    assert judge(outcomes, listed) == Verdict(broken=(), unlisted=(), flaked=("b", "c", "gone"))
    assert judge(outcomes, listed, ["b"]) == Verdict(broken=("b",), unlisted=())


def test_flaky_tests_stand_below_their_line() -> None:
    text = "# what must pass\nTestA\nTestB/part # 1\n\n# flaky:\n# why\nTestC\n"
    assert parse_allow_list(text) == AllowList(("TestA", "TestB/part # 1"), ("TestC",))
    assert parse_allow_list("TestA\n") == AllowList(("TestA",), ())


def test_errors_in_fixtures_count_as_failures(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    cases = {"fine": "", "broken": "<failure/>", "unset": "<error/>", "left": "<skipped/>"}
    rows = [f'<testcase classname="test.a.test_x" name="{name}">{inner}</testcase>' for name, inner in cases.items()]
    report.write_text(f"<testsuites><testsuite>{''.join(rows)}</testsuite></testsuites>")
    assert outcomes_of(report) == {
        "test_x.py::fine": Outcome.PASSED,
        "test_x.py::broken": Outcome.FAILED,
        "test_x.py::unset": Outcome.FAILED,
        "test_x.py::left": Outcome.SKIPPED,
    }


@pytest.mark.parametrize("name", SUITES)
def test_allow_lists_name_each_test_once_and_in_order(name: str) -> None:
    allowed = SUITES[name].allowed()
    assert allowed.must_pass
    for part in allowed:
        assert list(part) == sorted(set(part))
    assert not set(allowed.must_pass) & set(allowed.flaky)
