"""Kill -9 at every step of a transaction: what was decided is seen through, what was not is never seen."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from harness.pybroker_process import PybrokerProcess
from harness.waiting import wait_until

from pybroker.testing import Broker
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from pybroker_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pybroker_protocol.messages.describe_transactions import DescribeTransactionsRequest
from pybroker_protocol.messages.end_txn import EndTxnRequest
from pybroker_protocol.messages.find_coordinator import FindCoordinatorRequest
from pybroker_protocol.messages.init_producer_id import InitProducerIdRequest
from pybroker_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pybroker_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pybroker_protocol.record_codec import build_batch, decode_records
from pybroker_protocol.records import batches
from tests.broker.wire_client import WireClient

CRASH_POINTS = Path(__file__).parent / "crash_points"
TOPIC, ID = "t", "x"
PARTITIONS = (0, 1)
READ_COMMITTED = 1
LATEST = -1
# Appends of the coordinator: 1 Empty, 2 Ongoing, 3 PrepareCommit or PrepareAbort, 4 CompleteCommit or CompleteAbort.
UNDECIDED = ("before append 2", "after append 2", "before append 3")
DECIDED = ("after append 3", "before marker 1", "after marker 1", "after marker 2", "before append 4", "after append 4")


class Protocol(NamedTuple):
    """The versions that clients of one transaction protocol send."""

    produce: int
    end_txn: int


FIRST, SECOND = Protocol(produce=11, end_txn=4), Protocol(produce=12, end_txn=5)


class Producer:
    """A transactional producer, one request at a time."""

    def __init__(self, wire: WireClient, protocol: Protocol) -> None:
        self.wire = wire
        self.protocol = protocol
        self.sequence = 0
        self.producer_id = self.epoch = -1

    def begin(self) -> None:
        """InitProducerId, as long as it takes until what was there before is over."""
        deadline = time.monotonic() + 15
        while True:
            request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000)
            answer = self.wire.ask(request, 5)
            if answer.error_code not in {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}:
                break
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert answer.error_code == 0
        self.producer_id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0

    def produce(self, value: bytes) -> None:
        """One record to each partition, in one request."""
        if self.protocol is FIRST:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=ID,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=list(PARTITIONS))],
            )
            for topic in self.wire.ask(request, 3).results_by_topic_v3_and_below:
                assert [result.partition_error_code for result in topic.results_by_partition] == [0, 0]
        records = build_batch(
            [(b"k", value)],
            timestamp_ms=int(time.time() * 1000),
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            is_transactional=True,
        )
        self.sequence += 1
        data = [PartitionProduceData(index=index, records=records) for index in PARTITIONS]
        answer = self.wire.ask(
            ProduceRequest(
                transactional_id=ID,
                acks=-1,
                timeout_ms=10_000,
                topic_data=[TopicProduceData(name=TOPIC, partition_data=data)],
            ),
            self.protocol.produce,
        )
        assert [reply.error_code for reply in answer.responses[0].partition_responses] == [0, 0]

    def end(self, commit: bool) -> Any:
        request = EndTxnRequest(
            transactional_id=ID, producer_id=self.producer_id, producer_epoch=self.epoch, committed=commit
        )
        return self.wire.ask(request, self.protocol.end_txn)


def prepare(wire: WireClient) -> None:
    topic = CreatableTopic(name=TOPIC, num_partitions=len(PARTITIONS), replication_factor=1, assignments=[], configs=[])
    request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000, validate_only=False)
    assert wire.ask(request, 5).topics[0].error_code == 0
    assert wire.ask(FindCoordinatorRequest(key=ID, key_type=1), 3).error_code == 0


def live_until_the_crash(address: tuple[str, int], protocol: Protocol, commit: bool) -> tuple[int, int]:
    """(producer id, epoch) of a producer whose broker died under it."""
    with WireClient(address) as wire:
        prepare(wire)
        producer = Producer(wire, protocol)
        # The reply is None, or there is no connection to send over any more, once the broker is dead.
        with pytest.raises((AttributeError, OSError)):  # noqa: PT012
            producer.begin()
            producer.produce(b"the transaction's")
            if producer.end(commit).error_code == 0:
                # The crash came behind the reply.
                while True:
                    producer.wire.ask(DescribeTransactionsRequest(transactional_ids=[ID]), 0).transaction_states  # noqa: B018
        return producer.producer_id, producer.epoch


def values(wire: WireClient, partition: int, isolation_level: int = READ_COMMITTED) -> list[bytes]:
    """What a consumer of that isolation level is given of the partition."""
    answer = wire.fetch(TOPIC, 0, partition=partition, isolation_level=isolation_level).responses[0].partitions[0]
    assert answer.error_code == 0
    view = memoryview(answer.records or b"")
    aborted = {(entry.producer_id, entry.first_offset) for entry in answer.aborted_transactions or ()}
    found: list[bytes] = []
    dropped: set[int] = set()
    for position, header in batches(view):
        if header.is_control:
            dropped.discard(header.producer_id)
            continue
        if (header.producer_id, header.base_offset) in aborted:
            dropped.add(header.producer_id)
        if header.producer_id not in dropped:
            batch = view[position : position + header.size_bytes]
            found += [bytes(record.value or b"") for record in decode_records(batch)]
    return found


def end_offset(wire: WireClient, partition: int, isolation_level: int) -> int:
    wanted = ListOffsetsTopic(
        name=TOPIC, partitions=[ListOffsetsPartition(partition_index=partition, timestamp=LATEST)]
    )
    request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=[wanted])
    offset: int = wire.ask(request, 7).topics[0].partitions[0].offset
    return offset


def state(wire: WireClient) -> str:
    answer = wire.ask(DescribeTransactionsRequest(transactional_ids=[ID]), 0).transaction_states[0]
    return str(answer.transaction_state)


@pytest.mark.slow
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("protocol", [FIRST, SECOND], ids=["first protocol", "second protocol"])
@pytest.mark.parametrize("crash_at", ["before append 1", "after append 1", *UNDECIDED, *DECIDED])
def test_a_transaction_is_seen_as_a_whole_or_not_at_all(
    tmp_path: Path, crash_at: str, protocol: Protocol, commit: bool
) -> None:
    environment = {**os.environ, "PYTHONPATH": str(CRASH_POINTS), "PYBROKER_CRASH_AT": crash_at}
    with_crash = PybrokerProcess(tmp_path, arguments=["--dev"], environment=environment).start()
    try:
        producer_id, epoch = live_until_the_crash((with_crash.host, with_crash.port), protocol, commit)
    finally:
        with_crash.kill()
    with Broker(data_dir=with_crash.data_directory) as broker, WireClient((broker.host, broker.port)) as wire:
        if crash_at in DECIDED:
            complete = "CompleteCommit" if commit else "CompleteAbort"
            wait_until(lambda: state(wire) == complete, f"{complete} without anybody asking for it")
            repeated = Producer(wire, protocol)
            repeated.producer_id, repeated.epoch = producer_id, epoch
            assert repeated.end(commit).error_code == 0, "a repeated request"
        successor = Producer(wire, protocol)
        successor.begin()
        expected = [b"the transaction's"] if crash_at in DECIDED and commit else []
        for partition in PARTITIONS:
            assert values(wire, partition) == expected
            assert end_offset(wire, partition, READ_COMMITTED) == end_offset(wire, partition, 0), "nothing is open"
        successor.produce(b"the successor's")
        assert successor.end(True).error_code == 0
        for partition in PARTITIONS:
            assert values(wire, partition) == [*expected, b"the successor's"]
