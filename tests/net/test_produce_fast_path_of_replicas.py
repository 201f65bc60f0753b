"""The fast path of Produce where acknowledgements wait for other replicas: the same replies as by the ordinary way."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from harness.batches import batch
from harness.wire import Client

from pybroker.net.dispatch import PRODUCE_KEY
from pybroker.net.produce_fast_path import ProduceFastPath
from pybroker.net.requests import Requests
from pybroker.testing import Cluster
from pybroker_protocol import codec
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.produce import ProduceRequest, ProduceResponse
from tests.broker.wire_client import produce_request

Connect = Callable[..., "Producer"]
VERSION = 9
pytestmark = pytest.mark.usefixtures("fast_paths_from_the_first_request")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3) as running:
        yield running


@pytest.fixture
def connect(cluster: Cluster) -> Iterator[Connect]:
    """Makes producers, and closes their connections."""
    with ExitStack() as stack:

        def connect(topic: str, partition: int = 0) -> Producer:
            producer = Producer(cluster, topic, partition)
            stack.callback(producer.wire.close)
            return producer

        yield connect


class Producer:
    """A connection to a partition's leader."""

    def __init__(self, cluster: Cluster, topic: str, partition: int) -> None:
        leader = cluster.leader(topic, partition)
        assert leader is not None
        self.leader = cluster.brokers[leader]
        self.wire = Client((self.leader.host, self.leader.port))
        self.number = 0

    def post(self, *requests: ProduceRequest) -> None:
        """Send requests in one piece."""
        self.wire.post(*requests, version=VERSION)

    def replies(self, count: int) -> list[tuple[int, int, int]]:
        """Error code, base offset and log start of as many replies, which come in the order of their requests."""
        found = []
        for _ in range(count):
            payload = self.wire.receive_payload()
            assert payload is not None
            self.number += 1
            assert struct.unpack_from(">i", payload) == (self.number,)
            response: ProduceResponse = codec.decode(ProduceResponse, VERSION, payload[5:])
            [reply] = response.responses[0].partition_responses
            found.append((reply.error_code, reply.base_offset, reply.log_start_offset))
        return found


def requests(topic: str, timeout_ms: int = 10_000) -> list[ProduceRequest]:
    broken = bytearray(batch(b"broken"))
    broken[-1] ^= 1
    payloads = [
        batch(b"first"),
        batch(b"second", b"of two"),
        batch(b"third"),
        bytes(broken),
        batch(b"y" * 200_000),
        batch(b"sixth"),
        batch(b"idempotent", producer_id=77, producer_epoch=0, base_sequence=0),
        batch(b"idempotent", producer_id=77, producer_epoch=0, base_sequence=0),
        batch(b"gap", producer_id=77, producer_epoch=0, base_sequence=9),
        batch(b"last"),
    ]
    made = [produce_request(topic, payload) for payload in payloads]
    made.insert(5, produce_request(topic, batch(b"leader only"), acks=1))
    for request in made:
        request.timeout_ms = timeout_ms
    return made


def answers(cluster: Cluster, connect: Connect, topic: str, together: int) -> list[tuple[int, int, int]]:
    """The replies to all of them, twice, so many sent at once."""
    cluster.create_topic(topic, replication_factor=3)
    producer, replies = connect(topic), []
    waiting = requests(topic) + requests(topic)
    while waiting:
        producer.post(*waiting[:together])
        replies += producer.replies(len(waiting[:together]))
        del waiting[:together]
    return replies


def test_requests_that_arrive_together_are_answered_as_if_one_by_one(
    cluster: Cluster, connect: Connect, runs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(ProduceFastPath, "serve", lambda self, view, pos, end, outbox: (pos, 0))
        expected = answers(cluster, connect, "ordinary", 1)
    assert [code for code, _, _ in expected].count(0) == len(expected) - 4
    for together in (1, 2, 5, 100):
        runs.clear()
        assert answers(cluster, connect, f"t{together}", together) == expected
        assert max(runs) >= min(together, 2)


def test_what_follows_the_first_request_takes_the_short_way(
    cluster: Cluster, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create_topic("t", replication_factor=3)
    producer = connect("t")
    producer.post(produce_request("t", batch(b"v")))
    assert producer.replies(1) == [(0, 0, 0)]
    serve = Requests.serve

    def no_produce(self: Requests, frame: memoryview) -> None:
        assert frame[1] != PRODUCE_KEY
        serve(self, frame)

    monkeypatch.setattr(Requests, "serve", no_produce)
    for number in range(10):  # each of them behind replies that wait
        producer.post(produce_request("t", batch(b"v%d" % number)))
    assert producer.replies(10) == [(0, number, 0) for number in range(1, 11)]


def test_requests_of_a_run_that_nobody_acknowledges_are_each_told_so(
    cluster: Cluster, connect: Connect, runs: list[int]
) -> None:
    cluster.create_topic("t", replication_factor=3)
    producer = connect("t")
    request = produce_request("t", batch(b"v"))
    request.timeout_ms = 400
    producer.post(request)
    assert producer.replies(1) == [(0, 0, 0)]
    followers = [broker_id for broker_id, node in cluster.brokers.items() if node is not producer.leader]
    for broker_id in followers:
        cluster.pause(broker_id)
    begun_s = time.monotonic()
    producer.post(*[request] * 4)
    assert producer.replies(4) == [(ErrorCode.REQUEST_TIMED_OUT, offset, 0) for offset in range(1, 5)]
    assert time.monotonic() - begun_s >= 0.4
    assert max(runs) == 4
    for broker_id in followers:
        cluster.resume(broker_id)


def test_requests_of_a_run_are_told_that_their_partition_is_gone(cluster: Cluster, connect: Connect) -> None:
    cluster.create_topic("t", partitions=3, replication_factor=3)
    partition = next(index for index in range(3) if cluster.leader("t", index) == cluster.controller_id)
    producer = connect("t", partition)
    request = produce_request("t", batch(b"v"), partition)
    producer.post(request)
    assert producer.replies(1) == [(0, 0, 0)]
    followers = [broker_id for broker_id, node in cluster.brokers.items() if node is not producer.leader]
    for broker_id in followers:
        cluster.pause(broker_id)
    producer.post(*[request] * 3)
    cluster.delete_topic("t")
    assert producer.replies(3) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, offset, 0) for offset in range(1, 4)]
    for broker_id in followers:
        cluster.resume(broker_id)
