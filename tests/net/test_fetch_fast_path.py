"""The fast path of Fetch answers what the ordinary way does, and gives way where it does not fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from random import Random
from typing import Any

import pytest
from harness.batches import batch
from harness.waiting import wait_until
from harness.wire import Client

from pybroker.handlers.repeated_fetch import RepeatedFetch
from pybroker.replication.partition import Partition
from pybroker.server import BrokerServer
from pybroker.testing import Broker
from pybroker_protocol import codec
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from pybroker_protocol.record_codec import build_batch, end_transaction_batch
from tests.broker.wire_client import WireClient, produce_request
from tests.net.conftest import processor_of, topic_id

FIRST_WITH_A_FAST_PATH, FIRST_WITH_SESSIONS, FIRST_BY_ID, LAST = 5, 7, 13, 18
FIRST_WITH_LEADER_EPOCH, FIRST_WITH_LAST_EPOCH = 9, 12
VERSIONS = (4, 6, 7, 8, 9, 11, 12, 13, 15, LAST)
NO_SESSION, NEW, GOES_ON, WRONG_EPOCH = "none", "new", "goes on", "wrong epoch"
LARGE = 40_000  # more than is joined with other replies, and a length of three bytes
RUN = 4
pytestmark = pytest.mark.usefixtures("fast_paths_from_the_first_request")

# How a request belongs to a session, and the request but for its session.
Step = tuple[str, FetchRequest]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        for name in ("t", "u"):
            running.create_topic(name, partitions=2)
        with WireClient((running.host, running.port)) as wire:
            for value in (b"a", b"b" * 200, b"c", b"d" * LARGE):
                for index in (0, 1):
                    assert wire.produce("t", batch(value), partition=index).error_code == 0
            assert wire.produce("u", batch(b"e")).error_code == 0
        running._call(append_transactions)
        yield running


def partition_of(server: BrokerServer, topic: str, index: int = 0) -> Partition:
    partition = server.services.replicas.partition(topic, index)
    assert partition is not None
    return partition


def append_transactions(server: BrokerServer, done: Callable[[None], None]) -> None:
    """A transaction that was aborted, and one that is open."""
    partition = partition_of(server, "t", 1)
    verifications = partition.log.producers.verifications
    for producer_id in (7, 8):
        verifications.succeed(producer_id, verifications.begin(producer_id, 0, 0, False, 0), 0)
        written = build_batch(
            [(b"k", b"v")],
            timestamp_ms=1,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
        partition.append_internal(written, lambda _: None)
    marker = end_transaction_batch(commit=False, coordinator_epoch=0, producer_id=7, producer_epoch=0, timestamp_ms=2)
    partition.append_internal(marker, lambda _: None)
    done(None)


def fetch(broker: Broker, *wanted: tuple[str, int, int], **fields: Any) -> FetchRequest:
    """A request for (topic, partition, offset) of each; ``partition_fields`` are those of each partition."""
    of_partition = {"partition_max_bytes": 1 << 20, **fields.pop("partition_fields", {})}
    topics = [
        FetchTopic(
            topic=name,
            topic_id=topic_id(broker, name),
            partitions=[FetchPartition(partition=index, fetch_offset=offset, **of_partition)],
        )
        for name, index, offset in wanted
    ]
    return FetchRequest(**{"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "topics": topics, **fields})


def some_requests(broker: Broker, random: Random, version: int) -> list[FetchRequest]:
    """A run of requests that differ in their offset alone."""
    leader_epoch, last_epoch = random.choice((-1, -1, 0, 9)), random.choice((-1, -1, 0, 3))
    fields: dict[str, Any] = {
        "isolation_level": random.choice((0, 0, 1)),
        "min_bytes": random.choice((0, 1, 1, 100_000)),
        "max_bytes": random.choice((1, 300, 1 << 20, 1 << 20)),
        "max_wait_ms": random.choice((0, 0, 0, 2)),
        "partition_fields": {
            "partition_max_bytes": random.choice((0, 1, 300, 1 << 20, 1 << 20, -1)),
            "current_leader_epoch": leader_epoch if version >= FIRST_WITH_LEADER_EPOCH else -1,
            "last_fetched_epoch": last_epoch if version >= FIRST_WITH_LAST_EPOCH else -1,
        },
    }
    name, index = random.choice((("t", 0), ("t", 1), ("t", 1), ("u", 0), ("u", 1), ("u", 5), ("nowhere", 0)))
    return [fetch(broker, (name, index, random.choice((0, 1, 2, 3, 4, 7, -1, 99))), **fields) for _ in range(RUN)]


def steps(broker: Broker, random: Random, version: int) -> list[Step]:
    """Requests without a session and in one, in runs that are alike, and between them some that only look alike."""
    made: list[Step] = []
    for _ in range(6):
        made += [(NO_SESSION, request) for request in some_requests(broker, random, version)]
        made.append((NO_SESSION, fetch(broker, ("t", 0, 0), ("u", 0, 0))))
    for _ in range(6):
        named, *alike = some_requests(broker, random, version)
        nothing = copy(named)
        nothing.topics = []
        made += [(NEW, named), (GOES_ON, nothing)]
        for request in alike:
            made += [(GOES_ON, request), (GOES_ON, nothing)]
        made.append((random.choice((WRONG_EPOCH, GOES_ON)), alike[0]))
        # More partitions, one that is forgotten, and what was asked of the first one changes.
        wider = fetch(broker, ("t", 0, random.randrange(5)), ("u", 0, 0))
        forgetful = copy(nothing)
        forgetful.forgotten_topics_data = [
            ForgottenTopic(topic=name, topic_id=topic_id(broker, name), partitions=[0]) for name in ("t", "u")
        ]
        made += [(GOES_ON, wider), (GOES_ON, nothing), *((GOES_ON, request) for request in alike)]
        made += [(GOES_ON, forgetful), *((GOES_ON, request) for request in alike), (GOES_ON, nothing)]
    return made


class Consumer:
    """One connection to the broker, and its session."""

    def __init__(self, broker: Broker) -> None:
        self.wire = Client((broker.host, broker.port))
        self._session_id = self._epoch = 0

    def in_session(self, kind: str, request: FetchRequest) -> FetchRequest:
        """The request as it goes out."""
        if kind == NO_SESSION:
            return request
        sent = copy(request)
        sent.session_id, sent.session_epoch = self._session_id, self._epoch
        if kind == NEW:
            sent.session_id = sent.session_epoch = 0
        elif kind == WRONG_EPOCH:
            sent.session_epoch += 5
        return sent

    def ask(self, kind: str, request: FetchRequest, version: int) -> bytes:
        """The reply without its correlation id; in place of a session's random id stands whether it is ours."""
        self.wire.post(self.in_session(kind, request), version=version)
        payload = self.wire.receive_payload()
        assert payload is not None
        if version < FIRST_WITH_SESSIONS:
            return bytes(payload[4:])
        head = 5 if codec.is_flexible(FetchRequest, version) else 4
        response: FetchResponse = codec.decode(FetchResponse, version, payload[head:])
        if kind == NEW:
            self._session_id, self._epoch = response.session_id, 0
        if kind != NO_SESSION and not response.error_code:
            self._epoch += 1
        at = head + 6  # behind the throttle time and the error
        known = bytes([response.session_id == self._session_id, response.session_id == 0])
        return bytes(payload[4:at]) + known + bytes(payload[at + 4 :])


def answers(broker: Broker, asked: list[Step], version: int) -> list[bytes]:
    """The replies to all requests; those of sessions are left out where the version has none."""
    consumer = Consumer(broker)
    replies = [
        consumer.ask(kind, request, version)
        for kind, request in asked
        if kind == NO_SESSION or version >= FIRST_WITH_SESSIONS
    ]
    consumer.wire.close()
    return replies


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each request that a fast path recognized was served by it."""
    noted: list[bool] = []
    begin = RepeatedFetch.begin

    def note(self: RepeatedFetch, *arguments: Any) -> Any:
        operation = begin(self, *arguments)
        noted.append(operation is not None)
        return operation

    monkeypatch.setattr(RepeatedFetch, "begin", note)
    return noted


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("version", VERSIONS)
def test_both_ways_answer_the_same_bytes(
    broker: Broker, without_fast_paths: pytest.MonkeyPatch, begun: list[bool], version: int, seed: int
) -> None:
    asked = steps(broker, Random(seed), version)
    expected = answers(broker, asked, version)
    assert not begun
    without_fast_paths.undo()
    assert answers(broker, asked, version) == expected
    assert begun.count(True) > RUN or version < FIRST_WITH_A_FAST_PATH, "the fast path served some of them"


@pytest.mark.parametrize("kind", [NO_SESSION, GOES_ON])
@pytest.mark.parametrize("version", [7, 12, 13, LAST])
def test_second_request_is_served_the_short_way(broker: Broker, version: int, kind: str) -> None:
    consumer = Consumer(broker)
    if kind == GOES_ON:
        consumer.ask(NEW, fetch(broker, ("t", 0, 0)), version)
    consumer.ask(kind, fetch(broker, ("t", 0, 1)), version)
    for api in processor_of(broker).dispatcher.served.values():
        api.handle = None  # type: ignore[assignment]  # the ordinary way would fail
    reply = consumer.ask(kind, fetch(broker, ("t", 0, 3)), version)
    assert b"d" * LARGE in reply
    if kind == GOES_ON:
        nothing = fetch(broker)
        assert b"d" * LARGE in consumer.ask(kind, nothing, version), "it is asked for until another offset is"
    consumer.wire.close()


def woken(broker: Broker, kind: str, version: int) -> list[Any]:
    """The partition's part of the replies to fetches at its end, once a batch is there; the topic is made anew."""
    broker.create_topic("tail")
    told = []
    with WireClient((broker.host, broker.port)) as producer, Client((broker.host, broker.port)) as wire:
        session_id = 0
        if kind == GOES_ON:
            session_id = wire.ask(fetch(broker, ("tail", 0, 0), session_epoch=0), version).session_id
        for offset in (0, 1, 2):
            session = {"session_id": session_id, "session_epoch": offset + 1} if session_id else {}
            wire.send(fetch(broker, ("tail", 0, offset), max_wait_ms=60_000, **session), version)
            wait_until(lambda: broker._call(count_waiting) == 1, "the fetch waits")
            assert producer.produce("tail", batch(b"v")).error_code == 0
            told.append(wire.receive().responses[0].partitions[0])
    broker.delete_topic("tail")
    return told


def count_waiting(server: BrokerServer, done: Callable[[int], None]) -> None:
    done(len(partition_of(server, "tail").waiting))


@pytest.mark.parametrize("kind", [NO_SESSION, GOES_ON])
@pytest.mark.parametrize("version", [7, 12, LAST])
def test_fetch_that_waits_is_answered_alike(
    broker: Broker, without_fast_paths: pytest.MonkeyPatch, begun: list[bool], version: int, kind: str
) -> None:
    expected = woken(broker, kind, version)
    without_fast_paths.undo()
    assert woken(broker, kind, version) == expected
    assert begun == [True, True]


def test_client_that_goes_while_its_fetch_waits_leaves_nothing(broker: Broker, begun: list[bool]) -> None:
    broker.create_topic("tail")
    consumer = Consumer(broker)
    consumer.ask(NO_SESSION, fetch(broker, ("tail", 0, 7), max_wait_ms=600_000), 12)  # out of range: it does not wait
    consumer.wire.post(fetch(broker, ("tail", 0, 0), max_wait_ms=600_000), version=12)
    wait_until(lambda: broker._call(count_waiting) == 1, "the fetch waits")
    assert begun == [True]
    consumer.wire.close()
    wait_until(lambda: broker._call(count_waiting) == 0, "nothing waits")


def test_limit_that_another_request_of_the_session_has_changed_is_set_again(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, begun: list[bool]
) -> None:
    consumer = Consumer(broker)
    of_one_batch = fetch(broker, ("t", 0, 0), partition_fields={"partition_max_bytes": 1})
    consumer.ask(NEW, of_one_batch, 12)
    monkeypatch.setattr("pybroker.net.fast_paths._PAUSE", 64)  # what is learned now stays
    assert b"b" * 200 not in consumer.ask(GOES_ON, of_one_batch, 12)
    assert b"b" * 200 in consumer.ask(GOES_ON, fetch(broker, ("t", 0, 0), ("u", 0, 0)), 12)
    assert b"b" * 200 not in consumer.ask(GOES_ON, of_one_batch, 12)
    assert begun == [True]
    consumer.wire.close()


@pytest.mark.parametrize("version", [12, 13])
def test_partition_that_is_gone_is_told_of_the_ordinary_way(broker: Broker, begun: list[bool], version: int) -> None:
    consumer = Consumer(broker)
    repeated = fetch(broker, ("u", 0, 0))
    for _ in range(2):
        consumer.ask(NO_SESSION, repeated, version)
    assert begun == [True]
    broker.delete_topic("u")
    response = consumer.wire.ask(repeated, version)
    gone = ErrorCode.UNKNOWN_TOPIC_ID if version >= FIRST_BY_ID else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert response.responses[0].partitions[0].error_code == gone
    assert begun == [True, False]
    consumer.wire.close()


def test_bytes_behind_the_last_field_go_the_ordinary_way(broker: Broker, begun: list[bool]) -> None:
    consumer = Consumer(broker)
    for _ in range(3):
        whole = consumer.wire.frame(fetch(broker, ("u", 0, 0)), 12)
        consumer.wire.send_raw((len(whole) - 4 + 1).to_bytes(4, "big") + whole[4:] + b"\7")
        assert consumer.wire.receive_payload() is not None
    assert not begun
    consumer.wire.close()


def test_fast_path_serves_what_arrives_in_one_piece_in_order(broker: Broker, begun: list[bool]) -> None:
    consumer = Consumer(broker)
    alike = [fetch(broker, ("t", 0, offset)) for offset in (0, 1, 2, 0, 1)]
    other: list[Any] = [produce_request("u", batch(b"x"), 1)]
    for request in alike:
        consumer.wire.send(request, 12)
    consumer.wire.send(other[0], 9)
    for request in alike:
        consumer.wire.send(request, 12)
    replies = [consumer.wire.receive() for _ in range(len(alike) * 2 + 1)]
    fetched: Callable[[Any], int] = lambda reply: len(reply.responses[0].partitions[0].records)  # noqa: E731
    sizes = [fetched(reply) for reply in replies[: len(alike)]]
    assert sizes[3:] == sizes[:2]
    assert [fetched(reply) for reply in replies[-len(alike) :]] == sizes
    assert begun.count(True) >= len(alike)
    consumer.wire.close()
