"""A replica whose log dir is none of its broker's any more begins anew in another, from the leader."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pybroker.cluster.image.cluster_image import NO_LEADER, UNASSIGNED_DIRECTORY
from tests.replication.cluster import NAME, Cluster
from tests.storage.logs import TOPIC_ID

RECORDS = 4
LOST = b"lost".ljust(16, b"!")
DIRECTORIES = (UNASSIGNED_DIRECTORY, UNASSIGNED_DIRECTORY, LOST)


@pytest.fixture
def filled(make_cluster: Callable[..., Cluster]) -> Cluster:
    """Broker 3 has not started yet; its replica lies in a log dir that it does not have."""
    cluster = make_cluster(replicas=(1, 2), replica_fetch_max_bytes=1)  # a batch at a time
    cluster.set(replicas=(1, 2, 3), directories=DIRECTORIES)
    cluster.tell()
    for _ in range(RECORDS):
        cluster.brokers[1].produce(acks=1)
    cluster.settle()
    return cluster


def test_controller_hears_of_its_place_once_it_has_what_was_committed(filled: Cluster) -> None:
    """Before that nobody may take it for one that could lead."""
    third = filled.start(3, tell=False)
    told: list[tuple[tuple[bytes, int], bytes, int]] = []
    third.storage.manager.on_replica_moved = lambda partition, directory: told.append(
        (partition, directory, third.log().log_end_offset)
    )
    filled.tell()
    filled.settle()
    assert third.contents() == filled.brokers[1].contents()
    (directory,) = third.storage.manager.directory_ids()
    assert told == [((TOPIC_ID, 0), directory, RECORDS)]


def test_without_a_leader_it_stays_offline(filled: Cluster) -> None:
    filled.set(leader=NO_LEADER)
    third = filled.start(3)
    filled.settle()
    assert third.storage.manager.get(NAME, 0) is None


def test_while_any_log_dir_does_not_work_it_stays_offline(filled: Cluster) -> None:
    third = filled.start(3, tell=False)
    third.storage.manager._states[0].directory.offline = True
    filled.tell()
    filled.settle()
    assert third.storage.manager.get(NAME, 0) is None
