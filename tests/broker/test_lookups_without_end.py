"""Searches by timestamp that never end hold nobody up, and end with whoever waits for them.

What a batch of very many records costs is not timed: here the search in it has no end at all.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import pytest
from harness.waiting import wait_until

from pybroker.storage.dirs.lookup_queue import LOOKUPS_AT_ONCE
from pybroker.storage.log import timestamp_search
from pybroker.storage.log.timestamp_search import ORDINARY_BATCH_RECORDS_MAX, RECORDS_SEARCHED_PER_STEP
from pybroker.testing import Broker
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.delete_topics import DeleteTopicsRequest
from pybroker_protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from pybroker_protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from pybroker_protocol.record_codec import NewRecord, build_batch
from pybroker_protocol.record_search import FoundRecord, first_record_since
from pybroker_protocol.records import HEADER
from tests.broker.wire_client import WireClient
from tests.net.conftest import sweep

BOMB, HONEST = "bomb", "honest"
BOMB_RECORDS = ORDINARY_BATCH_RECORDS_MAX + 1
HONEST_RECORDS = 5 * RECORDS_SEARCHED_PER_STEP
PARTITIONS = 4
FIRST_MS = 1_700_000_000_000
LIST_OFFSETS, DESCRIBE, DELETE = 7, 1, 1


class Searches:
    """How many searches without end were begun, and how many have ended all the same."""

    def __init__(self) -> None:
        self.begun = 0
        self.ended = 0

    def first_record_since(self, batch: memoryview, *how: Any) -> Generator[int, None, FoundRecord | None]:
        if HEADER.unpack_from(batch)[12] != BOMB_RECORDS:
            return (yield from first_record_since(batch, *how))
        self.begun += 1
        try:
            while True:
                yield BOMB_RECORDS
        finally:
            self.ended += 1

    @property
    def under_way(self) -> int:
        return self.begun - self.ended


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> Searches:
    searches = Searches()
    monkeypatch.setattr(timestamp_search, "first_record_since", searches.first_record_since)
    return searches


@pytest.fixture
def broker() -> Iterator[Broker]:
    broker = Broker().start()
    try:
        broker.create_topic(BOMB, partitions=PARTITIONS)
        broker.create_topic(HONEST, partitions=1)
        with connect(broker) as client:
            for partition in range(PARTITIONS):
                produce(client, BOMB, partition, BOMB_RECORDS)
            produce(client, HONEST, 0, HONEST_RECORDS)
        yield broker
    finally:
        broker.stop()


def connect(broker: Broker) -> WireClient:
    return WireClient((broker.host, broker.port))


def produce(client: WireClient, topic: str, partition: int, count: int) -> None:
    """Records at one time, but for the last, which is later."""
    late = NewRecord(None, b"", timestamp_ms=FIRST_MS + 1)
    data = build_batch([*[(None, b"")] * (count - 1), late], timestamp_ms=FIRST_MS, compression=1)
    assert client.produce(topic, data, partition=partition).error_code == 0


def lookup(topic: str, *partitions: int) -> ListOffsetsRequest:
    asked = [
        ListOffsetsPartition(partition_index=index, timestamp=FIRST_MS + 1, current_leader_epoch=-1)
        for index in partitions
    ]
    return ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=[ListOffsetsTopic(name=topic, partitions=asked)], timeout_ms=1_000
    )


def answer(reply: Any) -> ListOffsetsPartitionResponse:
    (topic,) = reply.topics
    (partition,) = topic.partitions
    assert isinstance(partition, ListOffsetsPartitionResponse)
    return partition


def test_others_are_served_beside_them(broker: Broker, searches: Searches) -> None:
    clients = [connect(broker) for _ in range(3 * PARTITIONS)]
    for number, client in enumerate(clients):
        client.send(lookup(BOMB, number % PARTITIONS), LIST_OFFSETS)
    wait_until(lambda: searches.under_way > LOOKUPS_AT_ONCE, "those with the thread and those that wait")
    with connect(broker) as probe:
        for _ in range(10):
            found = answer(probe.ask(lookup(HONEST, 0), LIST_OFFSETS))
            assert (found.error_code, found.offset) == (0, HONEST_RECORDS - 1)
            assert not probe.ask(DescribeLogDirsRequest(topics=None), DESCRIBE).results[0].error_code
    assert searches.ended == 0
    for client in clients:
        client.close()
    wait_until(lambda: not searches.under_way, "all are given up")


def test_they_end_when_their_clients_go_whatever_those_have_sent(broker: Broker, searches: Searches) -> None:
    clients = [connect(broker) for _ in range(2 * PARTITIONS)]
    for client in clients:
        for _ in range(5):
            client.send(lookup(BOMB, *range(PARTITIONS)), LIST_OFFSETS)
    wait_until(lambda: searches.begun >= len(clients), "each has one")
    assert searches.begun == len(clients)
    for client in clients:
        client.close()

    def is_over() -> bool:
        sweep(broker)
        return not searches.under_way

    wait_until(is_over, "nobody waits, and nothing is searched")
    assert searches.begun == len(clients), "nothing was begun for those who had gone"


def test_they_end_with_their_topic(broker: Broker, searches: Searches) -> None:
    with connect(broker) as waiting, connect(broker) as admin:
        waiting.send(lookup(BOMB, 0), LIST_OFFSETS)
        wait_until(lambda: searches.under_way == 1, "the search is under way")
        admin.ask(DeleteTopicsRequest(topic_names=[BOMB], timeout_ms=10_000), DELETE)
        assert answer(waiting.receive()).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert searches.under_way == 0


def test_a_stop_waits_for_none_of_them(broker: Broker, searches: Searches) -> None:
    clients = [connect(broker) for _ in range(3 * PARTITIONS)]
    for number, client in enumerate(clients):
        client.send(lookup(BOMB, number % PARTITIONS), LIST_OFFSETS)
    wait_until(lambda: searches.under_way == len(clients), "all wait")
    broker.stop()
    assert searches.under_way == 0
    for client in clients:
        client.close()
