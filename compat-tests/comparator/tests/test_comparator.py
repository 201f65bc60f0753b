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


@pytest.fixture(scope="module")
def brokers() -> Iterator[tuple[Address, Address]]:
    with started_brokers() as addresses:
        yield addresses


@pytest.fixture(scope="module")
def results() -> list[Result]:
    """What the scenarios brought so far."""
    return []


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_pybroker_answers_as_kafka_does(
    scenario: Scenario, brokers: tuple[Address, Address], results: list[Result]
) -> None:
    result = compare(scenario, *brokers)
    results.append(result)
    assert not result.unmeant, "\n" + describe(result)


@pytest.fixture(scope="module", autouse=True)
def nothing_is_stale_or_left_out(results: list[Result]) -> Iterator[None]:
    """Judged at the end of a whole run, in whatever order the scenarios came."""
    yield
    if len(results) == len(SCENARIOS):
        assert not stale(results), "these no longer occur, so they have to go: " + repr(stale(results))
        left_out = list(gaps(table(results)))
        assert not left_out, "these served versions are not compared: " + repr(left_out)
