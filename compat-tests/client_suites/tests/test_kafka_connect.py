"""Which tests of Connect's JUnit is asked for, and what its report is read as."""

from __future__ import annotations

from xml.etree import ElementTree

from client_suites.kafka_connect import PACKAGES, outcomes_of, selection
from client_suites.suite import Outcome


def test_all_classes_are_run_or_the_methods_that_are_asked_for() -> None:
    assert selection(()) == [f"--select-class={package}.{name}" for name, package in PACKAGES.items()]
    name = "ErrorHandlingIntegrationTest"
    assert selection([f"{name}::testA(boolean)[1]", f"{name}::testB"]) == [
        f"--select-class={PACKAGES[name]}.{name}",
        "--include-methodname=.*#testA",
        "--include-methodname=.*#testB",
    ]


def test_a_test_is_called_by_its_class_and_method_and_its_number_if_it_has_parameters() -> None:
    cases = {"testA()": "", "testB(boolean)[1]": "<error/>", "testC()": "<failure/>", "testD()": "<skipped/>"}
    rows = [f'<testcase classname="org.Some" name="{name}">{mark}</testcase>' for name, mark in cases.items()]
    report = ElementTree.fromstring(f"<testsuite>{''.join(rows)}</testsuite>")
    assert outcomes_of(report.iter("testcase")) == {
        "Some::testA": Outcome.PASSED,
        "Some::testB(boolean)[1]": Outcome.FAILED,
        "Some::testC": Outcome.FAILED,
        "Some::testD": Outcome.SKIPPED,
    }
