"""Some scenarios of a cluster against three brokers of each make; ``scripts/compare --brokers 3`` runs them all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from harness.broker_cluster import BrokerCluster

from comparator.compare import compare_clusters
from comparator.registry import all_cluster_scenarios
from comparator.run import describe, started_clusters

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(300)]

CHOSEN = (
    "coordinators.each_broker_lists_its_own_groups",
    "describing.topics_with_replicas_are_told_by_each",
    "groups.classic_groups_at_their_coordinators",
    "groups.consumer_groups_at_their_coordinators",
    "leaders.fetch_by_rack",
    "leaders.produce_elsewhere",
    "moving.preferred_leaders_are_elected",
    "transactions.transactions_of_two_coordinators_in_one_partition",
)
SCENARIOS = {scenario.name: scenario for scenario in all_cluster_scenarios()}


@pytest.fixture(scope="module")
def clusters() -> Iterator[tuple[BrokerCluster[Any], BrokerCluster[Any]]]:
    with started_clusters() as started:
        yield started


@pytest.mark.parametrize("name", CHOSEN)
def test_three_brokers_answer_as_three_of_kafkas_do(
    name: str, clusters: tuple[BrokerCluster[Any], BrokerCluster[Any]]
) -> None:
    result = compare_clusters(SCENARIOS[name], *clusters)
    assert not result.unmeant, "\n" + describe(result)
