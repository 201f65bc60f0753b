"""Who does not know the cluster's secret moves nothing, whatever it calls itself."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import pytest
from harness.waiting import wait_until

from pybroker.cluster.liveness import Report, encode
from pybroker.testing import Cluster
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.alter_partition import AlterPartitionRequest
from pybroker_protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from pybroker_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from pybroker_protocol.schema import Request
from tests.broker.wire_client import WireClient

from .running_cluster import IDS, TOPIC, InProcess, Partition


@pytest.fixture
def partition(kafka_cluster: Cluster) -> Partition:
    return Partition(InProcess(kafka_cluster))


def fetch_as_replica(cluster: Cluster, version: int, broker_id: int, offset: int) -> FetchRequest:
    """What a follower at an offset asks, with all that it knows but the secret."""
    (image,) = [node.image() for node in cluster.brokers.values() if not node.is_paused]
    wanted = FetchPartition(
        partition=0,
        fetch_offset=offset,
        partition_max_bytes=1 << 20,
        last_fetched_epoch=0,
        current_leader_epoch=image.topics_by_name[TOPIC].partitions[0].leader_epoch,
    )
    topic_id = image.topics_by_name[TOPIC].topic_id
    named = {"topic_id": topic_id} if version >= 13 else {"topic": TOPIC}
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        isolation_level=0,
        forgotten_topics_data=[],
        topics=[FetchTopic(partitions=[wanted], **named)],
    )
    if version >= 15:
        request.replica_state = ReplicaState(replica_id=broker_id, replica_epoch=image.brokers[broker_id].epoch)
    else:
        request.replica_id = broker_id
    return request


@pytest.mark.parametrize("version", [12, 17])
def test_strangers_fetch_as_a_replica_moves_no_high_watermark(
    kafka_cluster: Cluster, partition: Partition, version: int
) -> None:
    leader, followers = partition.leader, partition.followers()
    for follower in followers:
        partition.cluster.pause(follower)
    assert [partition.write(value, 1, at=leader) for value in (b"one", b"two")] == [0, 0]
    with partition.at(leader) as stranger:
        for follower in followers:
            answer = stranger.ask(fetch_as_replica(kafka_cluster, version, follower, 2), version)
            codes = {answer.error_code, *(each.error_code for topic in answer.responses for each in topic.partitions)}
            assert codes & {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}, answer
            assert not any(each.records for topic in answer.responses for each in topic.partitions)
    assert partition.values(leader) == []
    for follower in followers:
        partition.cluster.resume(follower)
    partition.wait_for(isr=IDS)
    partition.wait_for_values([b"one", b"two"])


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (AlterPartitionRequest(broker_id=1, topics=[]), 3),
        (BrokerHeartbeatRequest(broker_id=1, current_metadata_offset=0, want_fence=True, want_shut_down=True), 1),
    ],
    ids=["AlterPartition", "BrokerHeartbeat"],
)
def test_stranger_that_speaks_for_a_broker_loses_its_connection_to_each(
    kafka_cluster: Cluster, request_: Request, version: int
) -> None:
    for node in kafka_cluster.brokers.values():
        with WireClient((node.host, node.port)) as stranger:
            assert stranger.ask(request_, version) is None
    assert not any(broker.fenced for broker in kafka_cluster.brokers[1].image().brokers.values())


def forged(cluster: Cluster, broker_id: int, number: int, secret: bytes) -> bytes:
    """What a broker would say that hears nobody, in its present registration."""
    epoch = cluster.brokers[1].image().brokers[broker_id].epoch
    return encode(Report(broker_id, epoch, number, 0, frozenset()), secret)


def epochs_of(cluster: Cluster) -> dict[int, int]:
    return {broker_id: broker.epoch for broker_id, broker in cluster.brokers[1].image().brokers.items()}


@pytest.mark.parametrize(
    "said",
    [
        lambda cluster, broker_id, number: forged(cluster, broker_id, number, b"of another cluster"),
        lambda cluster, broker_id, number: forged(cluster, broker_id, number, b"x")[:-1],
        lambda cluster, broker_id, number: bytes(number % 1500),
    ],
    ids=["another_secret", "cut_off", "zeros"],
)
def test_datagrams_of_strangers_neither_fence_the_living_nor_keep_the_dead(
    kafka_cluster: Cluster, said: Callable[[Cluster, int, int], bytes]
) -> None:
    victim = next(broker_id for broker_id in (2, 3) if broker_id != kafka_cluster.controller_id)
    addresses = [(node.host, node.port) for node in kafka_cluster.brokers.values()]
    epochs = epochs_of(kafka_cluster)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:

        def speak(number: int) -> None:
            for broker_id in IDS:
                for address in addresses:
                    stranger.sendto(said(kafka_cluster, broker_id, 1 << 40 | number), address)

        for number in range(60):
            speak(number)
            time.sleep(0.01)
        assert epochs_of(kafka_cluster) == epochs, "a broker that is taken for dead registers anew"
        kafka_cluster.kill(victim)
        numbers = iter(range(100, 1_000_000))

        def is_fenced() -> bool:
            speak(next(numbers))
            return kafka_cluster.brokers[1].image().brokers[victim].fenced

        wait_until(is_fenced, "the dead broker is fenced")
