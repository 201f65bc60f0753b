"""What a follower asks for with one fetch: bounded, whatever its settings say, and no batch is too long for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pybroker.cluster.membership.peers import REPLICATION
from pybroker.replication.replica_fetcher import REPLICA_FETCH_BYTES_MAX
from pybroker_protocol.messages.fetch import FetchRequest
from tests.replication.cluster import Cluster

MakeCluster = Callable[..., Cluster]


@pytest.mark.parametrize("setting", [1 << 20, REPLICA_FETCH_BYTES_MAX + 1, 0x7FFF_FFFF])
def test_follower_asks_for_what_its_setting_says_up_to_a_bound(make_cluster: MakeCluster, setting: int) -> None:
    settings: dict[str, Any] = {"replica_fetch_response_max_bytes": setting, "replica_fetch_max_bytes": setting}
    cluster = make_cluster(replicas=(1, 2), **settings)
    cluster.brokers[1].produce()
    cluster.settle()
    fetches = [request for channel, request in cluster.brokers[2].asked if channel == REPLICATION]
    assert {request.max_bytes for request in fetches if isinstance(request, FetchRequest)} == {
        min(setting, REPLICA_FETCH_BYTES_MAX)
    }


def test_batches_that_are_longer_than_a_fetch_are_copied_all_the_same(
    make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pybroker.replication.replica_fetcher.REPLICA_FETCH_BYTES_MAX", 10_000)
    cluster = make_cluster(replicas=(1, 2), partitions=3)
    for size in (100_000, 1, 100_000):
        for index in range(3):
            cluster.brokers[1].produce(index=index, value=bytes(size))
    cluster.settle()
    for index in range(3):
        assert cluster.brokers[2].contents(index) == cluster.brokers[1].contents(index)
        assert cluster.brokers[2].offsets(index) == (0, 3, 3)
