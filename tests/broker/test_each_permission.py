"""Each API with each permission missing: that it is asked for at all, and that no API is left out.

The requests are the comparator's (``compat-tests/comparator/scenarios/acls.py``), which compares whole replies with a
running Kafka; ``compat-tests/conformance/wire/test_permissions.py`` holds the errors to Kafka's.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from comparator import permissions
from comparator.broker import Broker as Asked
from comparator.broker import Step
from comparator.run import PROPERTIES
from comparator.scenarios import acls

from pybroker.apis import APIS
from pybroker.testing import Broker

# What only clients that have logged in may ask for (``test_delegation_tokens``).
ASKED_ELSEWHERE = {"CreateDelegationToken", "DescribeDelegationToken"}


@pytest.fixture(scope="module")
def asked() -> Iterator[Asked]:
    settings = {name: value for name, value in PROPERTIES.items() if name != "node.id"}
    with Broker(settings=settings) as broker, Asked((broker.host, broker.port)).opened() as asked:
        yield asked


@pytest.fixture(scope="module")
def steps(asked: Asked) -> dict[str, Step]:
    acls.each_missing_permission(asked)
    return {step.title: step for step in asked.steps}


def test_whoever_has_the_permission_is_told_something_else(asked: Asked, steps: dict[str, Step]) -> None:
    """Else nobody would notice if the permission were not asked for."""
    topic_id = steps["Metadata v13 (one: without DELETE on topic kept)"].reply["topics"][0]["topic_id"]
    guest = asked.connect(acls.GUEST)
    unnoticed = []
    for row in acls.table(topic_id):
        if row.api in ("DeleteTopics", "UnregisterBroker"):
            continue  # what is done cannot be done again
        with row.amid(asked):
            allowed = acls.ask_row(asked, row, guest, "allowed")
        for missing in row.missing:
            title = acls.title_of(asked, row, missing)
            if dict(permissions.told(steps[title].reply)) == dict(permissions.told(allowed)):
                unnoticed.append(title)
    assert unnoticed == [
        # Describing is not reading, writing, committing: who lacks that alone is refused nothing.
        "Fetch v18 (without DESCRIBE on topic kept)",
        # Either the cluster's permission or the group's own is enough.
        "ListGroups v5 (without DESCRIBE on cluster kafka-cluster)",
        # As the first.
        "InitProducerId v5 (transactional: without DESCRIBE on transactional id kept)",
        # Whoever may write to some topic may do so idempotently.
        "InitProducerId v5 (idempotent: without IDEMPOTENT_WRITE on cluster kafka-cluster)",
        # Described by the topic's permission alone, too.
        "OffsetForLeaderEpoch v4 (without CLUSTER_ACTION on cluster kafka-cluster)",
        # Either the cluster's permission or the topic's own is enough.
        "CreateTopics v7 (without CREATE on cluster kafka-cluster)",
    ]


def test_every_api_that_asks_is_in_the_table() -> None:
    in_table = {row.api for row in acls.table(bytes(16))}
    # DescribeCluster refuses nobody, and tells what its client may do.
    asking = {api.name for api in APIS if not api.open_to_all} | {"DescribeCluster"}
    assert asking == in_table | ASKED_ELSEWHERE
