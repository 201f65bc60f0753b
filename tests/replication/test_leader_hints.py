"""Who leads, as a client is told that asked another broker (KIP-951)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pybroker.cluster.image.cluster_image import Endpoint
from pybroker.handlers import produce
from pybroker.handlers.context import Parked, RequestContext
from pybroker_protocol import codec
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pybroker_protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tests.replication.cluster import LISTENER, NAME, Broker, Cluster
from tests.storage.batches import batch
from tests.storage.logs import TOPIC_ID


@pytest.fixture
def cluster(make_cluster: Callable[..., Cluster]) -> Cluster:
    """Brokers that clients can be sent to, of which the first leads."""
    cluster = make_cluster()
    brokers = {
        broker_id: broker._replace(endpoints={LISTENER: Endpoint(f"host-{broker_id}", 9000 + broker_id)}, rack="r")
        for broker_id, broker in cluster.image.brokers.items()
    }
    cluster._change(brokers=brokers)
    cluster.tell()
    return cluster


def ask_produce(broker: Broker, version: int, acks: int = -1) -> Any:
    context = RequestContext()
    services: Any = broker.services
    context.services, context.api_version, context.listener = services, version, LISTENER
    context.client_id = "c"
    connection: Any = Connection()
    context.connection = connection
    data = PartitionProduceData(index=0, records=memoryview(batch()))
    topic = TopicProduceData(name=NAME, topic_id=TOPIC_ID, partition_data=[data])
    request = ProduceRequest(transactional_id=None, acks=acks, timeout_ms=5_000, topic_data=[topic])
    return produce.handle(context, request)


class Connection:
    """Holds the bytes of requests that wait."""

    client_software = ("", "")

    def hold_request(self) -> Connection:
        return self

    def hold_copy(self, _size: int) -> Connection:
        return self

    def release(self) -> None: ...

    def refuse(self, reason: str) -> None: ...


def told(response: Any, version: int) -> list[tuple[int, int, int, list[tuple[int, str, int]]]]:
    """(error code, leader, its epoch, nodes) after the response's way over the wire."""
    assert isinstance(response, ProduceResponse)
    response = codec.decode(ProduceResponse, version, codec.encode(response, version))
    (reply,) = response.responses[0].partition_responses
    nodes = [(node.node_id, node.host, node.port) for node in response.node_endpoints]
    return [(reply.error_code, reply.current_leader.leader_id, reply.current_leader.leader_epoch, nodes)]


@pytest.mark.parametrize("version", [10, 13])
def test_a_producer_is_told_by_name_and_by_id(cluster: Cluster, version: int) -> None:
    cluster.elect(1)
    cluster.tell()
    response = ask_produce(cluster.brokers[2], version)
    assert told(response, version) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, 1, 1, [(1, "host-1", 9001)])]


def test_an_old_producer_is_told_nothing_that_it_does_not_know(cluster: Cluster) -> None:
    assert told(ask_produce(cluster.brokers[2], 9), 9) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1, [])]


def test_a_producer_that_waits_is_told_who_leads_now(cluster: Cluster) -> None:
    cluster.isolate(1)
    waiting = ask_produce(cluster.brokers[1], 12)
    assert isinstance(waiting, Parked)
    cluster.elect(3)
    cluster.tell()
    assert told(waiting.response, 12) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, 3, 1, [(3, "host-3", 9003)])]


def test_a_leader_that_the_listener_does_not_lead_to_is_named_without_a_place(cluster: Cluster) -> None:
    brokers = dict(cluster.image.brokers)
    brokers[1] = brokers[1]._replace(endpoints={})
    cluster._change(brokers=brokers)
    cluster.tell()
    assert told(ask_produce(cluster.brokers[2], 12), 12) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, 1, 0, [])]


@pytest.mark.parametrize(("version", "nodes"), [(15, []), (16, [(1, "host-1", 9001, "r")])])
def test_a_consumer_of_an_old_leader_epoch_is_told(cluster: Cluster, version: int, nodes: list[Any]) -> None:
    cluster.elect(1)
    cluster.tell()
    asked = FetchPartition(partition=0, fetch_offset=0, current_leader_epoch=0, partition_max_bytes=1)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        isolation_level=0,
        topics=[FetchTopic(topic_id=TOPIC_ID, partitions=[asked])],
        forgotten_topics_data=[],
        rack_id="",
    )
    response = cluster.brokers[2].serve(1, version, codec.encode(request, version))
    data = response.responses[0].partitions[0]
    assert data.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert [(node.node_id, node.host, node.port, node.rack) for node in response.node_endpoints] == nodes
    assert data.current_leader.leader_id == (1 if nodes else -1)
