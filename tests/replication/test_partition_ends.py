"""Where partitions end, by the word of their leaders: what is committed, written, or of before a leader epoch."""

from __future__ import annotations

import pytest

from pybroker.replication.partition_ends import Ends, PartitionEnds
from tests.replication.cluster import NAME, Cluster

FIRST = (NAME, 0)


def ends(cluster: Cluster, broker_id: int, *, before: int | None = None, written: bool = False) -> Ends:
    """What a broker hears, which leads the partition or asks its leader."""
    asking, told = PartitionEnds(cluster.brokers[broker_id].replicas), [Ends()]
    if before is None:
        asking.ask([FIRST, (NAME, 9)], told.append, written=written)
    else:
        asking.ask_before({FIRST: before, (NAME, 9): before}, told.append)
    cluster.world.advance(100)
    return told[-1]


@pytest.mark.parametrize("broker_id", [1, 2])
def test_what_is_committed_and_what_is_written_are_told_apart(cluster: Cluster, broker_id: int) -> None:
    for _ in range(3):
        cluster.brokers[1].produce()
    cluster.settle()
    cluster.isolate(3)
    cluster.brokers[1].produce()
    assert ends(cluster, broker_id) == {FIRST: 3}
    assert ends(cluster, broker_id, written=True) == {FIRST: 4}


@pytest.mark.parametrize("broker_id", [1, 2])
def test_what_was_written_before_a_leader_epoch_ends_where_that_begins(cluster: Cluster, broker_id: int) -> None:
    for _ in range(3):
        cluster.brokers[1].produce()
    cluster.settle()
    cluster.elect(1)
    cluster.tell()
    epoch = cluster.state().leader_epoch
    assert ends(cluster, broker_id, before=epoch) == {FIRST: 3}
    for _ in range(2):
        cluster.brokers[1].produce()
    cluster.settle()
    assert ends(cluster, broker_id, before=epoch) == {FIRST: 3}
    assert ends(cluster, broker_id, before=epoch + 1) == {FIRST: 5}


def test_a_leader_that_does_not_answer_says_nothing(cluster: Cluster) -> None:
    cluster.brokers[1].produce()
    cluster.settle()
    cluster.brokers[1].kill()
    assert ends(cluster, 2, before=cluster.state().leader_epoch) == {}
