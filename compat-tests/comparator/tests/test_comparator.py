"""Every scenario of the comparator, against Apache Kafka and pybroker started once for all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from comparator.agreement import gaps, table
from comparator.compare import Address, Result, compare, stale
from comparator.registry import Scenario, all_scenarios
from comparator.run import describe, started_brokers

pytestmark = pytest.mark.jvm

SCENARIOS = all_scenarios()

Brokers = tuple[Address, Address]


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    with started_brokers() as addresses:
        yield addresses


@pytest.fixture(scope="module")
def results() -> dict[Scenario, Result]:
    """What the scenarios brought so far."""
    return {}


@pytest.fixture
def compared(request: pytest.FixtureRequest, brokers: Brokers) -> Iterator[Brokers]:
    """Those of all scenarios; a second run has its own, because the others hold what the first one has made."""
    if getattr(request.node, "execution_count", 1) == 1:
        yield brokers
        return
    with started_brokers() as fresh:
        yield fresh


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_pybroker_answers_as_kafka_does(scenario: Scenario, compared: Brokers, results: dict[Scenario, Result]) -> None:
    result = results[scenario] = compare(scenario, *compared)
    assert not result.unmeant, "\n" + describe(result)


@pytest.fixture(scope="module", autouse=True)
def nothing_is_stale_or_left_out(results: dict[Scenario, Result]) -> Iterator[None]:
    """Judged at the end of a whole run, in whatever order the scenarios came."""
    yield
    if len(results) == len(SCENARIOS):
        found = list(results.values())
        assert not stale(found), "these no longer occur, so they have to go: " + repr(stale(found))
        left_out = list(gaps(table(found)))
        assert not left_out, "these served versions are not compared: " + repr(left_out)
