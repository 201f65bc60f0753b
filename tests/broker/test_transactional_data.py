"""Transactional batches over the wire: verification, order, markers, read_committed.  The coordinator is a test's."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from harness.batches import batch
from harness.waiting import wait_until

from pybroker.handlers.produce import PARTITIONS_APPENDED_AT_ONCE
from pybroker.replication.partition import Partition
from pybroker.server import BrokerServer
from pybroker.storage.results import PartitionErrors, TopicPartition
from pybroker.testing import Broker
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from pybroker_protocol.messages.fetch import FetchResponse, PartitionData
from pybroker_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pybroker_protocol.messages.produce import PartitionProduceData, PartitionProduceResponse, ProduceRequest
from pybroker_protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from pybroker_protocol.record_codec import build_batch
from pybroker_protocol.records import batches
from tests.broker.wire_client import WireClient, fetch_request, produce_request
from tests.net.conftest import each_step_taking_a_turn

PRODUCER = 7_000
READ_COMMITTED = 1
NOW_MS = int(time.time() * 1000)  # the markers' time: an older one would make them roll the segment
_numbers = count()
LARGE = 200_000  # too large to be written on the loop, or copied while it waits


class Coordinator:
    """Answers with ``error_code``, at once or, while ``holds``, when ``release`` is called on the loop."""

    def __init__(self) -> None:
        self.error_code = 0
        self.errors_before: list[int] = []
        self.holds = False
        self.asked: list[tuple[list[TopicPartition], bool]] = []
        self._held: list[Callable[[], None]] = []

    def add_partitions_for(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: list[TopicPartition],
        verify_only: bool,
        done: Callable[[PartitionErrors], None],
    ) -> None:
        assert transactional_id == "tx"
        self.asked.append((partitions, verify_only))
        code = self.errors_before.pop(0) if self.errors_before else self.error_code

        def answer() -> None:
            done(dict.fromkeys(partitions, code))

        if self.holds:
            self._held.append(answer)
        else:
            answer()

    def release(self) -> None:
        held, self._held = self._held, []
        for answer in held:
            answer()


def let_go_on(broker: Broker, coordinator: Coordinator) -> None:
    """Let the coordinator answer, on the broker's loop."""

    def release(_: BrokerServer, done: Callable[[None], None]) -> None:
        coordinator.release()
        done(None)

    broker._call(release)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def coordinator(broker: Broker) -> Iterator[Coordinator]:
    verification = broker._running().services.transaction_verification
    real, fake = verification._transactions, Coordinator()
    verification._transactions = fake
    yield fake
    verification._transactions = real


@pytest.fixture
def topic(broker: Broker) -> str:
    name = f"t{next(_numbers)}"
    broker.create_topic(name, partitions=2)
    return name


@pytest.fixture
def wire(broker: Broker) -> Iterator[WireClient]:
    with WireClient((broker.host, broker.port)) as client:
        yield client


def transactional(
    topic: str, sequence: int = 0, *, epoch: int = 0, value: bytes = b"v", partition: int = 0, acks: int = -1
) -> ProduceRequest:
    records = build_batch(
        [(b"k", value)],
        timestamp_ms=NOW_MS,
        producer_id=PRODUCER,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=True,
    )
    request = produce_request(topic, records, partition, acks)
    request.transactional_id = "tx"
    return request


def produce(wire: WireClient, request: ProduceRequest, version: int = 12) -> PartitionProduceResponse:
    reply: PartitionProduceResponse = wire.ask(request, version).responses[0].partition_responses[0]
    return reply


def end(
    wire: WireClient,
    topic: str,
    commit: bool,
    *,
    epoch: int = 1,
    version: int = 2,
    coordinator_epoch: int = 0,
    transaction_version: int = 2,
    partition: int = 0,
) -> int:
    marker = WritableTxnMarker(
        producer_id=PRODUCER,
        producer_epoch=epoch,
        transaction_result=commit,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
        coordinator_epoch=coordinator_epoch,
        transaction_version=transaction_version,
    )
    (answer,) = wire.ask(WriteTxnMarkersRequest(markers=[marker]), version).markers
    assert answer.producer_id == PRODUCER
    return int(answer.topics[0].partitions[0].error_code)


def fetched(response: FetchResponse) -> PartitionData:
    return response.responses[0].partitions[0]


def committed(wire: WireClient, topic: str, offset: int = 0, **options: Any) -> PartitionData:
    return fetched(wire.fetch(topic, offset, isolation_level=READ_COMMITTED, **options))


def base_offsets(data: PartitionData) -> list[int]:
    return [header.base_offset for _, header in batches(memoryview(data.records or b""))]


def latest(wire: WireClient, topic: str, isolation_level: int) -> int:
    asked = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation_level, topics=[ListOffsetsTopic(name=topic, partitions=[asked])]
    )
    return int(wire.ask(request, 7).topics[0].partitions[0].offset)


# --- what readers see ------------------------------------------------------------------------------------------------


def test_committed_reader_stops_at_an_open_transaction(wire: WireClient, topic: str, coordinator: Coordinator) -> None:
    wire.produce(topic, batch(b"before", base_timestamp_ms=NOW_MS))
    assert produce(wire, transactional(topic)).base_offset == 1
    wire.produce(topic, batch(b"after", base_timestamp_ms=NOW_MS))
    data = committed(wire, topic)
    assert base_offsets(data) == [0]
    assert (data.high_watermark, data.last_stable_offset, data.aborted_transactions) == (3, 1, [])
    assert base_offsets(fetched(wire.fetch(topic, 0))) == [0, 1, 2]
    assert (latest(wire, topic, READ_COMMITTED), latest(wire, topic, 0)) == (1, 3)
    assert end(wire, topic, True) == 0
    assert base_offsets(committed(wire, topic)) == [0, 1, 2, 3]
    assert latest(wire, topic, READ_COMMITTED) == 4


def test_aborted_transaction_is_named_to_those_who_read_it_and_to_nobody_else(
    wire: WireClient, topic: str, coordinator: Coordinator
) -> None:
    wire.produce(topic, batch(b"before", base_timestamp_ms=NOW_MS))
    produce(wire, transactional(topic))
    assert end(wire, topic, False) == 0
    wire.produce(topic, batch(b"after", base_timestamp_ms=NOW_MS))
    data = committed(wire, topic)
    assert data.aborted_transactions is not None
    assert [(one.producer_id, one.first_offset) for one in data.aborted_transactions] == [(PRODUCER, 1)]
    # Only the first batch is read: the transaction comes after it.
    first = committed(wire, topic, partition_max_bytes=1)
    assert (base_offsets(first), first.aborted_transactions) == ([0], [])
    assert committed(wire, topic, 3).aborted_transactions == []
    assert fetched(wire.fetch(topic, 0)).aborted_transactions is None


def test_waiting_committed_fetch_is_answered_when_the_transaction_ends_and_not_before(
    broker: Broker, wire: WireClient, topic: str, coordinator: Coordinator
) -> None:
    produce(wire, transactional(topic))
    with WireClient((broker.host, broker.port)) as reader:
        reader.send(fetch_request(topic, 0, isolation_level=READ_COMMITTED, max_wait_ms=10_000), 12)
        partition = broker._running().services.replicas.partition(topic, 0)
        assert partition is not None
        wait_until(lambda: bool(partition.waiting), "the fetch waits")
        produce(wire, transactional(topic, 1))
        wire.produce(topic, batch(b"plain", base_timestamp_ms=NOW_MS))
        assert partition.waiting
        end(wire, topic, True)
        assert base_offsets(fetched(reader.receive())) == [0, 1, 2, 3]


def test_incremental_fetch_session_tells_of_the_transaction_once_it_has_ended(
    wire: WireClient, topic: str, coordinator: Coordinator
) -> None:
    produce(wire, transactional(topic))
    options = {"isolation_level": READ_COMMITTED, "session_id": 0, "session_epoch": 0}
    opened = wire.fetch(topic, 0, **options)
    assert base_offsets(fetched(opened)) == []
    end(wire, topic, False)
    request = fetch_request(topic, 0, **{**options, "session_id": opened.session_id, "session_epoch": 1})
    request.topics = []
    data = fetched(wire.ask(request, 12))
    assert base_offsets(data) == [0, 1]
    assert data.aborted_transactions is not None
    assert [one.first_offset for one in data.aborted_transactions] == [0]


def test_producers_of_a_partition_are_described(wire: WireClient, topic: str, coordinator: Coordinator) -> None:
    produce(wire, transactional(topic))
    produce(wire, transactional(topic, 1))
    asked = [
        TopicRequest(name=topic, partition_indexes=[0, 1, 9]),
        TopicRequest(name="no good", partition_indexes=[0]),
        TopicRequest(name="missing", partition_indexes=[0]),
    ]
    here, bad, missing = wire.ask(DescribeProducersRequest(topics=asked), 0).topics
    (producer,) = here.partitions[0].active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (PRODUCER, 0, 1)
    assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (-1, 0)
    assert here.partitions[1].active_producers == []
    errors = [one.partitions[-1].error_code for one in (here, bad, missing)]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert errors == [unknown, ErrorCode.INVALID_TOPIC_EXCEPTION, unknown]
    end(wire, topic, True, coordinator_epoch=5)
    (producer,) = wire.ask(DescribeProducersRequest(topics=asked), 0).topics[0].partitions[0].active_producers
    assert (producer.producer_epoch, producer.last_sequence) == (1, -1)
    assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (5, -1)


# --- verification ----------------------------------------------------------------------------------------------------


def test_only_the_first_batch_of_a_transaction_is_asked_for(
    wire: WireClient, topic: str, coordinator: Coordinator
) -> None:
    for sequence in range(3):
        assert produce(wire, transactional(topic, sequence)).base_offset == sequence
    assert coordinator.asked == [([(topic, 0)], False)]
    end(wire, topic, True)
    produce(wire, transactional(topic, 0, epoch=1))
    assert len(coordinator.asked) == 2


@pytest.mark.parametrize(("version", "verify_only"), [(9, True), (11, True), (12, False)])
def test_partitions_are_added_for_new_clients_and_verified_for_old_ones(
    wire: WireClient, topic: str, coordinator: Coordinator, version: int, verify_only: bool
) -> None:
    assert produce(wire, transactional(topic), version).error_code == 0
    assert coordinator.asked == [([(topic, 0)], verify_only)]


@pytest.mark.parametrize(
    ("version", "answer", "error_code"),
    [
        (10, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE),
        (11, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (12, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (9, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (11, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (12, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (12, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS),
        (12, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (12, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_coordinators_error_reaches_the_client_as_its_version_knows_it(
    wire: WireClient, topic: str, coordinator: Coordinator, version: int, answer: ErrorCode, error_code: ErrorCode
) -> None:
    coordinator.error_code = answer
    reply = produce(wire, transactional(topic), version)
    assert (reply.error_code, reply.base_offset) == (error_code, -1)
    coordinator.error_code = 0
    assert produce(wire, transactional(topic), version).base_offset == 0


def test_produce_waits_for_the_former_transaction_to_end(
    broker: Broker, wire: WireClient, topic: str, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = broker._running().services.transaction_verification._config
    # Kafka's 100 ms are over at once on a busy machine.
    monkeypatch.setitem(config._values, "add.partitions.to.txn.retry.backoff.max.ms", 30_000)
    coordinator.errors_before = [ErrorCode.CONCURRENT_TRANSACTIONS] * 2
    assert produce(wire, transactional(topic)).error_code == 0
    assert len(coordinator.asked) == 3


def test_refused_partition_does_not_keep_the_others_from_being_appended(
    wire: WireClient, topic: str, coordinator: Coordinator
) -> None:
    produce(wire, transactional(topic, partition=1))  # its transaction is open, it need not be asked for
    coordinator.error_code = ErrorCode.INVALID_TXN_STATE
    request = transactional(topic)
    request.topic_data[0].partition_data += transactional(topic, 1, partition=1).topic_data[0].partition_data
    replies = wire.ask(request, 12).responses[0].partition_responses
    assert [(reply.error_code, reply.base_offset) for reply in replies] == [(ErrorCode.INVALID_TXN_STATE, -1), (0, 1)]


def test_epoch_of_a_fenced_producer_is_refused_without_asking(
    wire: WireClient, topic: str, coordinator: Coordinator
) -> None:
    produce(wire, transactional(topic))
    end(wire, topic, True, epoch=3)
    asked = len(coordinator.asked)
    assert produce(wire, transactional(topic, epoch=2)).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert len(coordinator.asked) == asked


def test_nothing_is_verified_where_a_setting_says_so(topic: str) -> None:
    with Broker(settings={"transaction.partition.verification.enable": "false"}) as broker:
        broker.create_topic("t")
        fake = Coordinator()
        fake.error_code = ErrorCode.INVALID_TXN_STATE
        broker._running().services.transaction_verification._transactions = fake
        with WireClient((broker.host, broker.port)) as wire:
            assert produce(wire, transactional("t", 5), 11).base_offset == 0
            assert fake.asked == []


# --- order while the coordinator thinks ------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, LARGE])
def test_nothing_of_the_connection_overtakes_a_batch_that_waits_for_the_coordinator(
    broker: Broker, wire: WireClient, topic: str, coordinator: Coordinator, size: int
) -> None:
    coordinator.holds = True
    wire.send(transactional(topic, value=bytes(size)), 12)
    wire.send(produce_request(topic, batch(b"plain", base_timestamp_ms=NOW_MS)), 9)
    wire.send(transactional(topic, 1, value=bytes(size)), 12)
    wire.send(fetch_request(topic, 0), 12)
    wait_until(lambda: bool(coordinator.asked), "the coordinator is asked")
    with WireClient((broker.host, broker.port)) as other:
        assert other.produce(topic, batch(b"of another connection", base_timestamp_ms=NOW_MS)).base_offset == 0
    assert len(coordinator.asked) == 1
    let_go_on(broker, coordinator)
    assert wire.receive().responses[0].partition_responses[0].base_offset == 1
    assert [wire.receive().responses[0].partition_responses[0].base_offset for _ in range(2)] == [2, 3]
    assert base_offsets(fetched(wire.receive())) == [0, 1, 2, 3]


def test_marker_written_while_the_coordinator_thinks_makes_its_answer_stale_and_it_is_asked_again(
    broker: Broker, wire: WireClient, topic: str, coordinator: Coordinator
) -> None:
    coordinator.holds = True
    wire.send(transactional(topic), 12)
    wait_until(lambda: bool(coordinator.asked), "the coordinator is asked")
    with WireClient((broker.host, broker.port)) as other:
        assert end(other, topic, False, epoch=0, transaction_version=1) == 0
    coordinator.holds, coordinator.error_code = False, ErrorCode.INVALID_TXN_STATE
    let_go_on(broker, coordinator)
    reply = wire.receive().responses[0].partition_responses[0]
    assert reply.error_code == ErrorCode.INVALID_TXN_STATE
    assert len(coordinator.asked) == 2
    assert latest(wire, topic, READ_COMMITTED) == 1


def test_client_that_goes_away_while_the_coordinator_thinks_harms_nobody(
    broker: Broker, wire: WireClient, topic: str, coordinator: Coordinator
) -> None:
    coordinator.holds = True
    with WireClient((broker.host, broker.port)) as leaving:
        leaving.send(transactional(topic, value=bytes(LARGE)), 12)
        wait_until(lambda: bool(coordinator.asked), "the coordinator is asked")
    let_go_on(broker, coordinator)
    wait_until(lambda: latest(wire, topic, 0) == 1, "the batch is appended all the same")


@pytest.mark.parametrize("error_code", [0, ErrorCode.INVALID_TXN_STATE])
def test_without_acks_the_error_of_the_verification_closes_the_connection(
    broker: Broker, wire: WireClient, topic: str, coordinator: Coordinator, error_code: int
) -> None:
    coordinator.holds, coordinator.error_code = True, error_code
    with WireClient((broker.host, broker.port)) as silent:
        request = transactional(topic, acks=0)
        silent.post(request, version=12)
        wait_until(lambda: bool(coordinator.asked), "the coordinator is asked")
        let_go_on(broker, coordinator)
        if error_code:
            assert silent.receive_payload() is None
        else:
            wait_until(lambda: latest(wire, topic, 0) == 1, "the batch is appended")


# --- markers ---------------------------------------------------------------------------------------------------------


def test_marker_of_an_older_epoch_or_coordinator_is_refused(
    wire: WireClient, topic: str, coordinator: Coordinator
) -> None:
    produce(wire, transactional(topic, epoch=4))
    assert end(wire, topic, True, epoch=3) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert end(wire, topic, True, epoch=4) == ErrorCode.INVALID_PRODUCER_EPOCH  # version 2 insists on a newer one
    assert end(wire, topic, True, epoch=5, coordinator_epoch=9) == 0
    assert end(wire, topic, True, epoch=5, coordinator_epoch=8) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert end(wire, topic, True, epoch=5, coordinator_epoch=9) == 0  # a repeat does no harm
    assert latest(wire, topic, READ_COMMITTED) == 3


def test_marker_without_a_transaction_version_may_carry_the_epoch_of_the_data(
    wire: WireClient, topic: str, coordinator: Coordinator
) -> None:
    produce(wire, transactional(topic, epoch=4))
    assert end(wire, topic, True, epoch=4, version=1, transaction_version=0) == 0


def test_markers_are_answered_partition_by_partition(wire: WireClient, topic: str, coordinator: Coordinator) -> None:
    def marker(producer_id: int, name: str, *indexes: int) -> WritableTxnMarker:
        return WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=0,
            transaction_result=True,
            topics=[WritableTxnMarkerTopic(name=name, partition_indexes=list(indexes))],
            coordinator_epoch=0,
        )

    request = WriteTxnMarkersRequest(
        markers=[marker(1, topic, 0, 1, 7), marker(1, "missing", 0), marker(2, topic, 0), marker(3, topic)]
    )
    answers = {
        (answer.producer_id, one.name, partition.partition_index): partition.error_code
        for answer in wire.ask(request, 1).markers
        for one in answer.topics
        for partition in one.partitions
    }
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answers == {
        (1, topic, 0): 0,
        (1, topic, 1): 0,
        (1, topic, 7): unknown,
        (1, "missing", 0): unknown,
        (2, topic, 0): 0,
    }
    assert wire.ask(WriteTxnMarkersRequest(markers=[]), 1).markers == []


@pytest.mark.parametrize("acks", [-1, 0])
@pytest.mark.parametrize("is_transactional", [False, True], ids=["plain", "transactional"])
def test_batches_for_many_partitions_are_appended_over_several_turns_of_the_loop(
    broker: Broker,
    coordinator: Coordinator,
    wire: WireClient,
    monkeypatch: pytest.MonkeyPatch,
    is_transactional: bool,
    acks: int,
) -> None:
    name = f"many{next(_numbers)}"
    partitions = 3 * PARTITIONS_APPENDED_AT_ONCE
    broker.create_topic(name, partitions=partitions)
    appended_in: Counter[Any] = Counter()
    turn = 0

    def next_turn() -> None:
        nonlocal turn
        turn += 1

    append = Partition.append

    def counted(self: Partition, *arguments: Any) -> Any:
        if self.topic == name:
            appended_in[turn] += 1
            broker._running().services.env.timers.call_soon(next_turn)
        return append(self, *arguments)

    monkeypatch.setattr(Partition, "append", counted)
    request = transactional(name, acks=acks) if is_transactional else produce_request(name, batch(b"v"), acks=acks)
    (data,) = request.topic_data[0].partition_data
    request.topic_data[0].partition_data = [
        PartitionProduceData(index=index, records=data.records) for index in range(partitions)
    ]
    with each_step_taking_a_turn(broker):
        wire.send(request, 9)
        if acks:
            (answered,) = wire.receive().responses
            assert [(each.index, each.error_code) for each in answered.partition_responses] == [
                (index, 0) for index in range(partitions)
            ]
        else:
            wait_until(lambda: appended_in.total() == partitions, "all are appended")
    assert max(appended_in.values()) <= PARTITIONS_APPENDED_AT_ONCE
    assert [len(asked) for asked, _ in coordinator.asked] == ([partitions] if is_transactional else [])
