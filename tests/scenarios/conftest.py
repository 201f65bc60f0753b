"""The kinds of clusters that scenarios are played on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.zookeeper import ZooKeeper

from pybroker.testing import Cluster

from .running_cluster import InProcess, Partition, Processes


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    """One server for all tests of a module; each has its place below a chroot."""
    server = ZooKeeper(tmp_path_factory.mktemp("zookeeper")).start()
    yield server
    server.kill()


MakePartition = Callable[..., Partition]


@pytest.fixture
def make_partition(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakePartition]:
    """Makes the cluster of the test and its one partition, with the settings that the test wants."""
    if getattr(request, "param", "") != "zookeeper":
        with Cluster(3, data_dir=tmp_path) as cluster:
            yield lambda **configs: Partition(InProcess(cluster), **configs)
        return
    hosts = request.getfixturevalue("zookeeper").hosts
    with Processes(tmp_path, f"zookeeper://{hosts}/{tmp_path.name}") as processes:
        yield lambda **configs: Partition(processes, **configs)


@pytest.fixture
def partition(make_partition: MakePartition) -> Any:
    """A partition as a topic has it by default."""
    return make_partition()
