"""Consumers that read followers, and are sent to one in their rack (KIP-392)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pybroker.config.broker_settings import RACK_AWARE_SELECTOR
from pybroker.handlers.context import Parked
from pybroker_protocol import codec
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from tests.replication.cluster import NAME, Cluster
from tests.storage.logs import TOPIC_ID

MakeCluster = Callable[..., Cluster]


def fetch(
    cluster: Cluster,
    broker_id: int,
    offset: int,
    *,
    version: int = 17,
    rack: str = "",
    wait_ms: int = 0,
    epoch: int = -1,
) -> Any:
    asked = FetchPartition(partition=0, current_leader_epoch=epoch, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        isolation_level=0,
        topics=[FetchTopic(topic=NAME, topic_id=TOPIC_ID, partitions=[asked])],
        forgotten_topics_data=[],
        rack_id=rack,
    )
    return cluster.brokers[broker_id].serve(1, version, codec.encode(request, version))


def answer(response: Any) -> PartitionData:
    response = response.response if isinstance(response, Parked) else response
    found = response.responses[0].partitions[0]
    assert isinstance(found, PartitionData)
    return found


@pytest.fixture
def racks(make_cluster: MakeCluster) -> Cluster:
    """A leader in rack a, and followers in racks b and c, with one committed record."""
    cluster = make_cluster(replica_selector_class=RACK_AWARE_SELECTOR)
    racks = {1: "a", 2: "b", 3: "c"}
    brokers = {broker_id: broker._replace(rack=racks[broker_id]) for broker_id, broker in cluster.image.brokers.items()}
    cluster._change(brokers=brokers)
    cluster.tell()
    cluster.brokers[1].produce()
    cluster.settle()
    return cluster


def test_a_follower_shows_what_it_knows_to_be_committed(cluster: Cluster) -> None:
    cluster.brokers[1].produce()
    cluster.settle()
    assert len(answer(fetch(cluster, 2, 0)).records or b"")
    cluster.isolate(3)
    cluster.brokers[1].produce(acks=1)
    cluster.pass_ms(1_000)
    assert cluster.brokers[2].offsets() == (0, 1, 2)
    told = answer(fetch(cluster, 2, 1))
    assert (told.error_code, told.high_watermark, len(told.records or b"")) == (0, 1, 0)


def test_whoever_does_not_know_that_followers_answer_is_sent_to_the_leader(cluster: Cluster) -> None:
    cluster.settle()
    assert answer(fetch(cluster, 2, 0, version=11)).error_code == 0
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        isolation_level=0,
        topics=[FetchTopic(topic=NAME, partitions=[asked])],
        forgotten_topics_data=[],
    )
    response = cluster.brokers[2].serve(1, 10, codec.encode(request, 10))
    assert answer(response).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_an_offset_that_a_late_follower_does_not_have_is_not_said_to_be_out_of_range(cluster: Cluster) -> None:
    cluster.settle()
    assert answer(fetch(cluster, 2, 7)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert answer(fetch(cluster, 1, 7)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_consumer_of_an_older_leader_epoch_is_fenced_by_a_follower_too(cluster: Cluster) -> None:
    cluster.elect(1)
    cluster.tell()
    cluster.settle()
    assert answer(fetch(cluster, 2, 0, epoch=0)).error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_a_consumer_that_waits_at_a_follower_hears_of_what_is_committed(cluster: Cluster) -> None:
    cluster.settle()
    waiting = fetch(cluster, 2, 0, wait_ms=5_000)
    cluster.brokers[1].produce()
    cluster.pass_ms(1_100)
    assert waiting.completed
    assert len(answer(waiting).records or b"")


def test_a_consumer_that_waits_at_a_follower_which_leads_from_now_on_is_answered(cluster: Cluster) -> None:
    cluster.settle()
    waiting = fetch(cluster, 2, 0, wait_ms=5_000)
    cluster.elect(2)
    cluster.tell()
    cluster.pass_ms(10)
    assert waiting.completed
    assert answer(waiting).error_code == 0


def test_a_consumer_is_sent_to_the_replica_in_its_rack(racks: Cluster) -> None:
    told = answer(fetch(racks, 1, 0, rack="b", wait_ms=5_000))
    assert (told.preferred_read_replica, len(told.records or b"")) == (2, 0)
    assert len(answer(fetch(racks, 2, 0, rack="b")).records or b"")


@pytest.mark.parametrize("rack", ["a", "d", ""])
def test_a_consumer_of_the_leaders_rack_or_of_none_stays(racks: Cluster, rack: str) -> None:
    told = answer(fetch(racks, 1, 0, rack=rack))
    assert told.preferred_read_replica == -1
    assert len(told.records or b"")


def test_nobody_is_sent_to_a_replica_that_is_fenced_or_late_or_not_in_sync(racks: Cluster) -> None:
    racks.isolate(2)
    racks.brokers[1].produce(acks=1)
    racks.pass_ms(100)
    assert answer(fetch(racks, 1, 2, rack="b")).preferred_read_replica == -1
    assert answer(fetch(racks, 1, 0, rack="b")).preferred_read_replica == 2
    racks.fence(2)
    racks.tell()
    assert answer(fetch(racks, 1, 0, rack="b")).preferred_read_replica == -1
    racks.fence(2, fenced=False)
    racks.set(isr=(1, 3))
    racks.tell()
    assert answer(fetch(racks, 1, 0, rack="b")).preferred_read_replica == -1


def test_without_the_selector_nobody_is_sent_anywhere(racks: Cluster) -> None:
    racks.brokers[1].replicas.selects_by_rack = False
    assert len(answer(fetch(racks, 1, 0, rack="b")).records or b"")
