"""The fast path of Produce answers byte for byte what the ordinary way answers, and gives way when it does not fit."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from harness.batches import ZSTD, batch
from harness.wire import Client

from pybroker.testing import Broker
from pybroker_protocol import codec
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.produce import ProduceRequest, ProduceResponse
from pybroker_protocol.record_codec import build_batch
from tests.broker.wire_client import produce_request
from tests.net.conftest import connections_of, processor_of, topic_id

VERSIONS = range(3, 14)
pytestmark = pytest.mark.usefixtures("fast_paths_from_the_first_request")


class Producer:
    """One connection; ``send`` gives back the raw reply without its correlation id, and the decoded one."""

    def __init__(self, broker: Broker) -> None:
        self.wire = Client((broker.host, broker.port))
        self.number = 0

    def send(self, request: ProduceRequest, version: int) -> tuple[bytes, ProduceResponse]:
        self.post(request, version=version)
        return self.reply(version)

    def post(self, *requests: ProduceRequest, version: int) -> None:
        """Send requests in one piece."""
        self.wire.post(*requests, version=version)

    def reply(self, version: int) -> tuple[bytes, ProduceResponse]:
        payload = self.wire.receive_payload()
        assert payload is not None
        self.number += 1
        assert struct.unpack_from(">i", payload) == (self.number,), "each request gets its own correlation id"
        flexible = codec.is_flexible(ProduceRequest, version)
        return payload[4:], codec.decode(ProduceResponse, version, payload[5 if flexible else 4 :])


def requests(broker: Broker, topic: str) -> list[ProduceRequest]:
    """Requests that are alike but for their batches, and some that only begin alike."""
    broken = bytearray(batch(b"broken"))
    broken[-1] ^= 1
    payloads = [
        batch(b"first"),
        batch(b"second, of another length", b"and with two records"),
        batch(b"x" * 20_000),
        bytes(broken),
        batch(b"y" * 200_000),
        b"",
        batch(b"again"),
        batch(b"", codec=ZSTD),
        batch(b"idempotent", producer_id=77, producer_epoch=0, base_sequence=0),
        batch(b"idempotent", producer_id=77, producer_epoch=0, base_sequence=0),
        batch(b"gap", producer_id=77, producer_epoch=0, base_sequence=9),
        batch(b"last"),
    ]
    made = [produce_request(topic, payload) for payload in payloads]
    made.insert(4, produce_request(topic, batch(b"leader only"), acks=1))
    made.insert(6, produce_request(topic, batch(b"nowhere"), partition=3))
    for request in made:
        request.topic_data[0].topic_id = topic_id(broker, topic)
    return made


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.mark.parametrize("version", VERSIONS)
def test_both_ways_answer_the_same_bytes(broker: Broker, without_fast_paths: pytest.MonkeyPatch, version: int) -> None:
    expected = answers(broker, version)
    without_fast_paths.undo()
    assert answers(broker, version) == expected


def answers(broker: Broker, version: int) -> list[bytes]:
    """The replies of a topic made for them, without its id, which is another one each time."""
    broker.create_topic("t")
    producer = Producer(broker)
    replies = [producer.send(request, version)[0] for request in requests(broker, "t")]
    producer.wire.close()
    id_of_topic = topic_id(broker, "t")
    broker.delete_topic("t")
    return [reply.replace(id_of_topic, bytes(16)) for reply in replies]


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_that_arrive_together_are_answered_as_if_one_by_one(
    broker: Broker, runs: list[int], version: int
) -> None:
    def answers(together: int) -> list[bytes]:
        broker.create_topic("t")
        producer = Producer(broker)
        replies: list[bytes] = []
        waiting = requests(broker, "t") + requests(broker, "t")
        while waiting:
            producer.post(*waiting[:together], version=version)
            replies += [producer.reply(version)[0] for _ in waiting[:together]]
            del waiting[:together]
        producer.wire.close()
        id_of_topic = topic_id(broker, "t")
        broker.delete_topic("t")
        return [reply.replace(id_of_topic, bytes(16)) for reply in replies]

    expected = answers(1)
    assert max(runs) == 1
    for together in (2, 5, 100):
        runs.clear()
        assert answers(together) == expected
        assert max(runs) > 1, "some of them go into the log together"


def serves_short(broker: Broker) -> list[bool]:
    return [connection._fast_paths.current is not None for connection in connections_of(broker)]


def test_second_request_is_served_the_short_way(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.create_topic("t")
    producer = Producer(broker)
    producer.send(produce_request("t", batch(b"a")), 9)
    assert serves_short(broker) == [True]
    monkeypatch.setattr("pybroker.handlers.produce.handle", None)  # nobody may take the ordinary way
    for api in processor_of(broker).dispatcher.served.values():
        api.handle = None  # type: ignore[assignment]
    _, response = producer.send(produce_request("t", batch(b"b")), 9)
    assert response.responses[0].partition_responses[0].base_offset == 1
    producer.wire.close()


def test_transactional_batch_is_refused_behind_plain_ones(broker: Broker) -> None:
    broker.create_topic("t")
    producer = Producer(broker)
    producer.send(produce_request("t", batch(b"plain")), 9)
    transactional = build_batch(
        [(None, b"plain")], timestamp_ms=1, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    _, response = producer.send(produce_request("t", transactional), 9)
    error_code = response.responses[0].partition_responses[0].error_code
    assert error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    producer.wire.close()


def test_topic_made_anew_is_not_written_through_the_old_one(broker: Broker) -> None:
    broker.create_topic("t")
    producer = Producer(broker)
    for _ in range(3):
        producer.send(produce_request("t", batch(b"old")), 9)
    broker.delete_topic("t")
    _, gone = producer.send(produce_request("t", batch(b"nowhere")), 9)
    assert gone.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    broker.create_topic("t")
    _, anew = producer.send(produce_request("t", batch(b"new")), 9)
    assert anew.responses[0].partition_responses[0].base_offset == 0
    producer.wire.close()


def test_replies_stay_in_order_when_a_large_batch_is_between(broker: Broker) -> None:
    broker.create_topic("t")
    producer = Producer(broker)
    producer.send(produce_request("t", batch(b"first")), 9)
    sizes = [10, 400_000, 10, 10, 300_000, 10]
    producer.post(*[produce_request("t", batch(b"z" * size)) for size in sizes], version=9)
    offsets = [producer.reply(9)[1].responses[0].partition_responses[0].base_offset for _ in sizes]
    assert offsets == [1, 2, 3, 4, 5, 6]
    producer.wire.close()


@pytest.mark.parametrize("cut", range(1, 12))
def test_frame_that_begins_like_the_last_one_and_ends_too_early_is_refused(broker: Broker, cut: int) -> None:
    broker.create_topic("t")
    producer = Producer(broker)
    producer.send(produce_request("t", batch(b"a")), 9)
    producer.wire.send_frame(producer.wire.frame(produce_request("t", batch(b"b")), 9)[4:-cut])
    assert producer.wire.receive_payload() is None
    producer.wire.close()
