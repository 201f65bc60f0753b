"""What becomes of a log that lost something in its middle with the power, and has what came behind it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from pybroker.storage.dirs.start_rollback import SYNCED_FIRST_FILE
from tests.replication.cluster import Broker, Cluster
from tests.storage.batches import parse

MakeCluster = Callable[..., Cluster]
# What is cleaned is synced, and loses no end.
UNCLEANED = {"log_cleaner_enable": False}
SYNCED = {"pybroker_fsync_before_ack": True}
BATCHES = 20


def fill(cluster: Cluster, **topic: str) -> None:
    """A producer's batches in some segments; ``topic`` has settings."""
    cluster.configure_topic(**topic)
    cluster.tell()
    for sequence in range(BATCHES):
        results = send(cluster.brokers[1], sequence)
        cluster.settle()
        assert [(result.error_code, result.base_offset) for result in results] == [(0, sequence)]


def send(broker: Broker, sequence: int) -> list[Any]:
    value: Any = (b"key-%d" % sequence, b"value")
    return broker.produce(value=value, producer_id=7, producer_epoch=0, sequence=sequence)


def lose_power(cluster: Cluster, broker_id: int) -> int:
    """A broker is killed, and the end of a segment is gone; where that began."""
    broker = cluster.brokers[broker_id]
    path = broker.log().segments[1].path()
    broker.kill()
    *_, (lost, _, piece) = parse(path.read_bytes())
    os.truncate(path, path.stat().st_size - len(piece))
    return lost


def offsets_after_start(cluster: Cluster) -> list[int]:
    """Where the batches lie that a leader has that is alone."""
    broker = cluster.start(1)
    broker.partition()
    return [base_offset for base_offset, _, _ in broker.contents()]


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_leader_that_is_alone_cuts_at_a_hole_where_acknowledgements_wait_for_syncs(
    make_cluster: MakeCluster, policy: str
) -> None:
    """Else a producer that repeats what was lost is refused, and writes twice what it had in flight behind that."""
    cluster = make_cluster(replicas=(1,), segment_bytes=400, storage_settings=UNCLEANED | SYNCED)
    fill(cluster, cleanup_policy=policy)
    lost = lose_power(cluster, 1)
    broker = cluster.start(1)
    repeated = [send(broker, sequence) for sequence in range(lost, BATCHES)]
    cluster.settle()
    assert [(result.error_code, result.base_offset) for (result,) in repeated] == [(0, i) for i in range(lost, BATCHES)]
    assert [base_offset for base_offset, _, _ in broker.contents()] == list(range(BATCHES))
    assert broker.offsets() == (0, BATCHES, BATCHES)


@pytest.mark.parametrize("policy", ["delete", "compact"])
@pytest.mark.parametrize("since", [{}, SYNCED], ids=["still", "until the start"])
def test_a_leader_that_is_alone_keeps_what_follows_a_hole_where_acknowledgements_waited_for_no_syncs(
    make_cluster: MakeCluster, policy: str, since: dict[str, bool]
) -> None:
    """What follows it may have been acknowledged by the run that lost its power, whatever holds now."""
    cluster = make_cluster(replicas=(1,), segment_bytes=400, storage_settings=UNCLEANED)
    fill(cluster, cleanup_policy=policy)
    lost = lose_power(cluster, 1)
    cluster.storage_settings = UNCLEANED | since
    assert offsets_after_start(cluster) == [i for i in range(BATCHES) if i != lost]


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_what_another_broker_may_have_acknowledged_or_cleaned_is_not_cut(
    make_cluster: MakeCluster, policy: str
) -> None:
    """A directory of Kafka's, or of an older version, has no mark."""
    cluster = make_cluster(replicas=(1,), segment_bytes=400, storage_settings=UNCLEANED | SYNCED)
    fill(cluster, cleanup_policy=policy)
    lost = lose_power(cluster, 1)
    (cluster.brokers[1].storage.path / SYNCED_FIRST_FILE).unlink()
    assert offsets_after_start(cluster) == [i for i in range(BATCHES) if i != lost]


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_replica_in_sync_cuts_at_a_hole_where_acknowledgements_wait_for_syncs(
    make_cluster: MakeCluster, policy: str
) -> None:
    cluster = make_cluster(replicas=(1, 2), segment_bytes=400, storage_settings=UNCLEANED | SYNCED)
    fill(cluster, cleanup_policy=policy)
    whole = cluster.brokers[1].contents()
    lose_power(cluster, 2)
    assert cluster.state().isr == (1, 2)
    cluster.start(2)
    cluster.pass_ms(5_000)
    assert cluster.brokers[2].contents() == whole
