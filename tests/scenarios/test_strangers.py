"""Who does not know the cluster's secret moves nothing, whatever it calls itself."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from itertools import count, permutations
from typing import Final

import pytest
from harness.waiting import wait_until

from pybroker.cluster.failure_detection.liveness import Report, encode
from pybroker.cluster.image.cluster_image import BrokerRegistration
from pybroker.testing import Cluster
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.alter_partition import AlterPartitionRequest
from pybroker_protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from pybroker_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from pybroker_protocol.schema import Request
from tests.broker.wire_client import WireClient

from .running_cluster import IDS, TOPIC, InProcess, Partition

# Many times the 1.5 s that a broker has whose machine takes connections for it.
GIVEN_UP_WITHIN_S: Final = 15


@pytest.fixture
def partition(pybroker_cluster: Cluster) -> Partition:
    return Partition(InProcess(pybroker_cluster))


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
    pybroker_cluster: Cluster, partition: Partition, version: int
) -> None:
    leader, followers = partition.leader, partition.followers()
    for follower in followers:
        partition.cluster.pause(follower)
    assert [partition.write(value, 1, at=leader) for value in (b"one", b"two")] == [0, 0]
    with partition.at(leader) as stranger:
        for follower in followers:
            answer = stranger.ask(fetch_as_replica(pybroker_cluster, version, follower, 2), version)
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
    pybroker_cluster: Cluster, request_: Request, version: int
) -> None:
    for node in pybroker_cluster.brokers.values():
        with WireClient((node.host, node.port)) as stranger:
            assert stranger.ask(request_, version) is None
    assert not any(broker.fenced for broker in pybroker_cluster.brokers[1].image().brokers.values())


class Impostor:
    """Speaks as two brokers in their present registrations: as one that lives, and as one that stands still.

    The first it has speak later than it ever will, so that whatever that one says itself was said before.  The second
    it has go on speaking, and say that the first is silent.  ``said`` makes the bytes of a report.
    """

    def __init__(self, cluster: Cluster, living: int, dead: int, said: Callable[[Report], bytes]) -> None:
        self._living, self._dead, self._said = living, dead, said
        self._epochs = epochs_of(cluster)
        self._addresses = [(node.host, node.port) for node in cluster.brokers.values()]
        self._numbers = count(1 << 40)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def __enter__(self) -> Impostor:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def outdo_the_living(self) -> None:
        self._speak(self._living, frozenset())

    def keep_the_dead(self) -> None:
        self._speak(self._dead, frozenset({self._living}))

    def _speak(self, broker_id: int, silent: frozenset[int]) -> None:
        data = self._said(Report(broker_id, self._epochs[broker_id], next(self._numbers), 0, silent))
        for address in self._addresses:
            self._socket.sendto(data, address)


def registered(cluster: Cluster, broker_id: int) -> BrokerRegistration:
    """A broker as the controller knows it."""
    controller_id = cluster.controller_id
    assert controller_id is not None
    return cluster.brokers[controller_id].image().brokers[broker_id]


def epochs_of(cluster: Cluster) -> dict[int, int]:
    return {broker_id: registered(cluster, broker_id).epoch for broker_id in IDS}


def secret_of(cluster: Cluster) -> bytes:
    """What proves to a broker of the cluster that another one speaks."""
    membership = cluster.brokers[1]._running()._membership
    assert membership is not None
    return membership.secret


@pytest.fixture
def patient_cluster() -> Iterator[Cluster]:
    """Three brokers whose sessions outlast a test: who is given up was silent in datagrams, after all had heard it."""
    with Cluster(settings={"pybroker.metadata.session.timeout.ms": 3 * GIVEN_UP_WITHIN_S * 1_000}) as cluster:
        wait_until(lambda: all(hears(cluster, *pair) for pair in permutations(IDS, 2)), "each hears each")
        yield cluster


def hears(cluster: Cluster, broker_id: int, other_id: int) -> bool:
    """Whether a broker has heard another one in its present registration; else it does not judge it."""
    liveness = cluster.brokers[broker_id]._running().services.liveness
    assert liveness is not None
    return liveness.progress(other_id) is not None


def others(cluster: Cluster) -> tuple[int, int]:
    """The two that are not the controller, which is to decide."""
    first, second = (broker_id for broker_id in IDS if broker_id != cluster.controller_id)
    return first, second


@pytest.mark.parametrize(
    "said",
    [
        lambda report, secret: encode(report, b"of another cluster"),
        lambda report, secret: encode(report, secret)[:-1],
        lambda report, secret: bytes(len(encode(report, secret))),
    ],
    ids=["another_secret", "cut_off", "zeros"],
)
def test_datagrams_of_strangers_neither_fence_the_living_nor_keep_the_dead(
    patient_cluster: Cluster, said: Callable[[Report, bytes], bytes]
) -> None:
    living, dead = others(patient_cluster)
    epochs, secret = epochs_of(patient_cluster), secret_of(patient_cluster)
    with Impostor(patient_cluster, living, dead, lambda report: said(report, secret)) as stranger:
        stranger.outdo_the_living()
        patient_cluster.pause(dead)

        def is_fenced() -> bool:
            stranger.keep_the_dead()
            return registered(patient_cluster, dead).fenced

        wait_until(is_fenced, "who stands still is given up", GIVEN_UP_WITHIN_S)
    # Its time would have been over before that of the other one.
    alive = registered(patient_cluster, living)
    assert (alive.epoch, alive.fenced) == (epochs[living], False), "who is given up registers anew"


def test_the_same_datagrams_with_the_clusters_secret_fence_the_living_and_keep_the_dead(
    patient_cluster: Cluster,
) -> None:
    """They arrive where they are to: else nothing would follow from nothing following of those of strangers."""
    living, dead = others(patient_cluster)
    epochs, secret = epochs_of(patient_cluster), secret_of(patient_cluster)
    with Impostor(patient_cluster, living, dead, lambda report: encode(report, secret)) as insider:
        patient_cluster.pause(dead)
        insider.outdo_the_living()

        def registers_anew() -> bool:
            insider.keep_the_dead()
            return registered(patient_cluster, living).epoch != epochs[living]

        wait_until(registers_anew, "who lives is given up", GIVEN_UP_WITHIN_S)
    kept = registered(patient_cluster, dead)
    assert (kept.epoch, kept.fenced) == (epochs[dead], False)
