"""A cluster in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.virtual_world import VirtualWorld

from tests.replication.cluster import Cluster
from tests.replication.moving_cluster import MovingCluster


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """Makes the test's cluster, with the settings that it wants."""
    made: list[Cluster] = []

    def make(**fields: Any) -> Cluster:
        made.append(Cluster(tmp_path, VirtualWorld(), **fields))
        return made[-1]

    yield make
    for cluster in made:
        cluster.close()


@pytest.fixture
def make_moving(tmp_path: Path) -> Iterator[Callable[..., MovingCluster]]:
    """Makes the test's cluster, whose controller moves partitions."""
    made: list[MovingCluster] = []

    def make(**fields: Any) -> MovingCluster:
        made.append(MovingCluster(tmp_path, VirtualWorld(), **fields))
        return made[-1]

    yield make
    for cluster in made:
        cluster.close()


@pytest.fixture
def cluster(make_cluster: Callable[..., Cluster]) -> Cluster:
    """Three brokers, of which the first leads the only partition of the topic."""
    return make_cluster()
