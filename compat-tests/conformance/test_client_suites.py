"""A short part of franz-go's own integration tests; ``scripts/client-suites`` runs all of them, and other clients'."""

from __future__ import annotations

from pathlib import Path

import pytest
from client_suites.franz_go import FranzGo
from client_suites.suite import Suite, judge

from conformance.broker_under_test import BrokerUnderTest
from conformance.client_folder import ToolchainMissing

SHORT_TESTS = (
    "TestClient_Produce",
    "TestClient_ProduceLargeMessages",
    "TestConsumeRegex",
    "TestDirectPartitionPurge",
    "TestGroupSimple",
    "TestIssue810",
    "TestPing",
    "TestUnknownGroupOffsetFetchPinned",
)


@pytest.fixture(scope="module")
def franz_go() -> Suite:
    suite = FranzGo()
    try:
        suite.prepare()
    except ToolchainMissing as missing:
        pytest.skip(str(missing))
    return suite


@pytest.mark.built
@pytest.mark.timeout(600)
def test_short_tests_of_franz_go_pass(franz_go: Suite, broker: BrokerUnderTest, tmp_path: Path) -> None:
    log = tmp_path / "log"
    verdict = judge(franz_go.run(broker.bootstrap, log, SHORT_TESTS), SHORT_TESTS, franz_go.allowed())
    assert not verdict.broken, log.read_text(errors="replace")[-8_000:]
