"""Transactions: fencing, both protocols, committed readers, offsets inside of transactions."""

from __future__ import annotations

from typing import Any

import pytest
from comparator.wire import Tree
from harness.batches import CONTROL_FLAG, TRANSACTIONAL_FLAG
from harness.waiting import wait_until

from conformance.wire.asking import (
    LATEST,
    READ_COMMITTED,
    TRANSACTION,
    Producer,
    Wire,
    end_offset,
    fetch,
    fetch_fields,
    list_offset,
    offsets,
    produced,
    stored_batches,
    wait_for_coordinator,
)
from conformance.wire.test_commits import NOTHING, fetch_offset, fetch_topics
from pybroker_protocol.errors import ErrorCode

V1, V2 = 4, 5  # EndTxn of the first protocol, and of the second


@pytest.fixture
def producer(wire: Wire, transactional_id: str) -> Producer:
    return Producer(wire, transactional_id)


def add(producer: Producer, *partitions: tuple[str, int], **who: int) -> dict[tuple[str, int], int]:
    """AddPartitionsToTxn as clients of the first protocol send it; the error code of each partition."""
    fields = {
        "v3_and_below_transactional_id": producer.transactional_id,
        "v3_and_below_topics": [{"name": name, "partitions": [index]} for name, index in partitions],
        **{f"v3_and_below_{name}": value for name, value in {**producer.identity, **who}.items()},
    }
    reply = producer.wire.ask("AddPartitionsToTxn", 3, **fields)
    return {
        (topic["name"], found["partition_index"]): found["partition_error_code"]
        for topic in reply["results_by_topic_v3_and_below"]
        for found in topic["results_by_partition"]
    }


# --- InitProducerId --------------------------------------------------------------------------------------------------


def test_a_transaction_may_not_take_forever(producer: Producer) -> None:
    assert producer.try_init(timeout_ms=900_000)["error_code"] == ErrorCode.NONE
    for timeout_ms in (900_001, 0, -1):
        assert producer.try_init(timeout_ms=timeout_ms)["error_code"] == ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_who_begins_again_gets_the_next_epoch(producer: Producer) -> None:
    producer_id, epoch = producer.producer_id, producer.epoch
    producer.init()
    assert (producer.producer_id, producer.epoch) == (producer_id, epoch + 1)


def test_an_idempotent_producer_gets_an_id_of_its_own(wire: Wire) -> None:
    producers = [Producer(wire) for _ in range(3)]
    assert len({producer.producer_id for producer in producers}) == 3
    assert {producer.epoch for producer in producers} == {0}


def test_an_empty_transactional_id_is_refused(producer: Producer) -> None:
    assert producer.try_init(transactional_id="")["error_code"] == ErrorCode.INVALID_REQUEST


def test_a_producer_that_begins_again_ends_the_transaction_before(wire: Wire, producer: Producer, topic: str) -> None:
    producer.produced(topic, 0)
    first_epoch = producer.epoch
    assert producer.try_init()["error_code"] == ErrorCode.CONCURRENT_TRANSACTIONS
    producer.init()
    assert producer.epoch > first_epoch
    assert offsets(wire, topic, isolation_level=READ_COMMITTED) == [0, 1]
    (aborted,) = fetch(wire, topic, isolation_level=READ_COMMITTED)["aborted_transactions"]
    assert aborted == {"producer_id": producer.producer_id, "first_offset": 0}


# --- fencing ---------------------------------------------------------------------------------------------------------


def test_a_fenced_producer_hears_so_as_its_version_knows_it(wire: Wire, transactional_id: str, topic: str) -> None:
    old, new = Producer(wire, transactional_id), Producer(wire, transactional_id)
    assert old.producer_id == new.producer_id
    for version, error in (
        (1, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, ErrorCode.PRODUCER_FENCED),
        (V1, ErrorCode.PRODUCER_FENCED),
        (V2, ErrorCode.PRODUCER_FENCED),
    ):
        assert old.end(commit=True, version=version)["error_code"] == error
    assert add(old, (topic, 0)) == {(topic, 0): ErrorCode.PRODUCER_FENCED}
    for version, error in ((3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, ErrorCode.PRODUCER_FENCED)):
        assert old.try_init(version, **old.identity)["error_code"] == error


def test_a_fenced_producer_writes_nothing(wire: Wire, transactional_id: str, topic: str) -> None:
    old = Producer(wire, transactional_id)
    old.produced(topic, 0)
    old.ended(commit=True, version=V1)
    new = Producer(wire, transactional_id)
    new.produced(topic, 0)
    for version in (9, 12):
        assert old.produce(topic, 1, version=version)["error_code"] == ErrorCode.INVALID_PRODUCER_EPOCH
    assert end_offset(wire, topic) == 3


def test_another_producer_id_ends_nothing(producer: Producer, topic: str) -> None:
    add(producer, (topic, 0))
    real, producer.producer_id = producer.producer_id, producer.producer_id + 100_000
    for version in (V1, V2):
        assert producer.end(commit=True, version=version)["error_code"] == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    producer.producer_id = real
    assert producer.state() == "Ongoing"


# --- the two protocols -----------------------------------------------------------------------------------------------


def test_there_is_nothing_to_commit_in_an_empty_transaction(producer: Producer) -> None:
    for version in (V1, V2):
        assert producer.end(commit=True, version=version)["error_code"] == ErrorCode.INVALID_TXN_STATE


def test_every_end_of_the_second_protocol_raises_the_epoch(producer: Producer, topic: str) -> None:
    before = dict(producer.identity)
    producer.produced(topic, 0)
    reply = producer.end(commit=True, version=V2)
    assert (reply["producer_id"], reply["producer_epoch"]) == (before["producer_id"], before["producer_epoch"] + 1)
    # Who did not hear of it asks again, and is told the same.
    repeated = producer.wire.ask("EndTxn", V2, transactional_id=producer.transactional_id, committed=True, **before)
    assert (repeated["error_code"], repeated["producer_epoch"]) == (0, before["producer_epoch"] + 1)


def test_the_first_protocol_repeats_what_was_decided(producer: Producer, topic: str) -> None:
    add(producer, (topic, 0))
    for commit, error in ((True, 0), (True, 0), (False, ErrorCode.INVALID_TXN_STATE)):
        assert producer.end(commit, version=V1)["error_code"] == error
    assert producer.state() == "CompleteCommit"


def test_partitions_are_added_all_or_none(producer: Producer, topic: str) -> None:
    assert add(producer, (topic, 0), (topic, 9)) == {
        (topic, 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
        (topic, 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert producer.state() == "Empty"
    assert add(producer, (topic, 0)) == {(topic, 0): 0}
    assert producer.state() == "Ongoing"


def test_a_partition_that_was_not_added_takes_nothing(wire: Wire, producer: Producer, topic: str) -> None:
    for version, error in ((10, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)):
        assert producer.produce(topic, 0, version=version)["error_code"] == error
    assert end_offset(wire, topic) == 0
    add(producer, (topic, 0))
    assert producer.produced(topic, 0, version=11) == 0


def test_the_second_protocol_adds_partitions_by_itself(producer: Producer, topic: str) -> None:
    assert producer.produced(topic, 0, version=12) == 0
    (found,) = producer.wire.ask("DescribeTransactions", 0, transactional_ids=[producer.transactional_id])[
        "transaction_states"
    ]
    assert found["topics"] == [{"topic": topic, "partitions": [0]}]
    assert found["transaction_state"] == "Ongoing"


def test_transactional_batches_are_deduplicated(wire: Wire, producer: Producer, topic: str) -> None:
    for _ in range(2):
        assert producer.produced(topic, 0) == 0
    assert producer.produce(topic, 5)["error_code"] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert end_offset(wire, topic) == 1


# --- committed readers -----------------------------------------------------------------------------------------------


def test_committed_readers_stop_at_an_open_transaction(wire: Wire, producer: Producer, topic: str) -> None:
    produced(wire, topic, b"plain")
    producer.produced(topic, 0)
    produced(wire, topic, b"behind it")
    assert offsets(wire, topic, isolation_level=READ_COMMITTED) == [0]
    assert offsets(wire, topic) == [0, 1, 2]
    found = fetch(wire, topic)
    assert (found["high_watermark"], found["last_stable_offset"]) == (3, 1)
    assert [end_offset(wire, topic), end_offset(wire, topic, READ_COMMITTED)] == [3, 1]
    producer.ended(commit=True)
    assert offsets(wire, topic, isolation_level=READ_COMMITTED) == [0, 1, 2, 3]
    assert list_offset(wire, topic, LATEST, isolation_level=READ_COMMITTED)["offset"] == 4


def test_committed_readers_are_told_which_transactions_were_aborted(wire: Wire, producer: Producer, topic: str) -> None:
    produced(wire, topic, b"plain")
    aborted_id = producer.producer_id
    producer.produced(topic, 0)
    producer.produced(topic, 1)
    producer.ended(commit=False)
    found = fetch(wire, topic, isolation_level=READ_COMMITTED)
    assert found["aborted_transactions"] == [{"producer_id": aborted_id, "first_offset": 1}]
    assert fetch(wire, topic)["aborted_transactions"] is None


def test_a_committed_transaction_is_not_listed_as_aborted(wire: Wire, producer: Producer, topic: str) -> None:
    producer.produced(topic, 0)
    producer.ended(commit=True)
    assert fetch(wire, topic, isolation_level=READ_COMMITTED)["aborted_transactions"] == []


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_ends_with_a_marker_that_takes_an_offset(
    wire: Wire, producer: Producer, topic: str, commit: bool
) -> None:
    producer.produced(topic, 0, b"a", b"b")
    producer.ended(commit)
    assert produced(wire, topic, b"plain") == 3
    data, marker, _ = stored_batches(fetch(wire, topic)["records"])
    assert data.attributes & (TRANSACTIONAL_FLAG | CONTROL_FLAG) == TRANSACTIONAL_FLAG
    assert marker.attributes & (TRANSACTIONAL_FLAG | CONTROL_FLAG) == TRANSACTIONAL_FLAG | CONTROL_FLAG
    assert (marker.base_offset, marker.producer_id) == (2, data.producer_id)
    # A record without headers: length, attributes, two deltas, then a key of four bytes: its version and its kind.
    assert marker.records[4:9] == b"\x08\0\0\0" + (b"\x01" if commit else b"\0")


def test_the_oldest_open_transaction_holds_readers_back(wire: Wire, producer: Producer, topic: str) -> None:
    other = Producer(wire, wire.name_of(TRANSACTION))
    producer.produced(topic, 0)
    other.produced(topic, 0)
    assert end_offset(wire, topic, READ_COMMITTED) == 0
    other.ended(commit=True)
    assert end_offset(wire, topic, READ_COMMITTED) == 0
    producer.ended(commit=True)
    assert end_offset(wire, topic, READ_COMMITTED) == 4


def test_a_waiting_committed_reader_wakes_when_the_transaction_ends(wire: Wire, producer: Producer, topic: str) -> None:
    waiting = wire.connect()
    waiting.send("Fetch", 11, fetch_fields(topic, max_wait_ms=30_000, isolation_level=READ_COMMITTED))
    producer.produced(topic, 0, b"the fetch waits")
    producer.produced(topic, 1, b"when this comes")  # at the latest
    producer.ended(commit=True)
    (found,) = waiting.receive("Fetch", 11)["responses"][0]["partitions"]
    assert [stored.base_offset for stored in stored_batches(found["records"])][:2] == [0, 1]


# --- offsets inside of transactions ----------------------------------------------------------------------------------


def commit_inside(producer: Producer, group: str, topic: str, offset: int, version: int = 5, **more: Any) -> int:
    partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": "m"}
    fields = {
        "transactional_id": producer.transactional_id,
        "group_id": group,
        "topics": [{"name": topic, "partitions": [partition]}],
        **producer.identity,
        **more,
    }
    reply = producer.wire.ask("TxnOffsetCommit", version, **fields)
    error: int = reply["topics"][0]["partitions"][0]["error_code"]
    return error


def stable_error(wire: Wire, group: str, topic: str) -> int:
    asked = [{"name": topic, "partition_indexes": [0]}]
    (found,) = fetch_topics(wire, group, asked, require_stable=True)
    error: int = found["partitions"][0]["error_code"]
    return error


@pytest.mark.parametrize("commit", [True, False])
def test_offsets_of_a_transaction_count_when_it_is_committed(
    wire: Wire, producer: Producer, group: str, topic: str, commit: bool
) -> None:
    assert commit_inside(producer, group, topic, 7) == 0
    assert fetch_offset(wire, group, topic) == NOTHING
    assert stable_error(wire, group, topic) == ErrorCode.UNSTABLE_OFFSET_COMMIT
    producer.ended(commit)
    wait_until(lambda: stable_error(wire, group, topic) == 0, "the offsets")
    assert fetch_offset(wire, group, topic) == ((7, -1, "m") if commit else NOTHING)


def test_a_stale_member_commits_nothing_inside_of_a_transaction(
    wire: Wire, producer: Producer, group: str, topic: str
) -> None:
    claimed: dict[str, Any] = {"generation_id_or_member_epoch": 4, "member_id": "m"}
    assert commit_inside(producer, group, topic, 1, **claimed) == ErrorCode.ILLEGAL_GENERATION
    older = {"producer_epoch": producer.epoch - 1}
    assert commit_inside(producer, group, topic, 1, **older) != 0


def test_the_first_protocol_names_the_group_first(wire: Wire, producer: Producer, group: str, topic: str) -> None:
    assert commit_inside(producer, group, topic, 1, version=4) == ErrorCode.TRANSACTION_ABORTABLE
    fields = {"transactional_id": producer.transactional_id, "group_id": group, **producer.identity}
    assert wire.ask("AddOffsetsToTxn", 3, **fields)["error_code"] == 0
    assert commit_inside(producer, group, topic, 1, version=4) == 0


# --- what administrators see -----------------------------------------------------------------------------------------


def listed(wire: Wire, **filters: Any) -> dict[str, Tree]:
    fields = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1, **filters}
    found = wire.ask("ListTransactions", 1, **fields)["transaction_states"]
    return {each["transactional_id"]: each["transaction_state"] for each in found}


def test_transactions_are_listed_by_state_and_producer(wire: Wire, producer: Producer, topic: str) -> None:
    add(producer, (topic, 0))
    name, mine = producer.transactional_id, [producer.producer_id]
    assert listed(wire, producer_id_filters=mine) == {name: "Ongoing"}
    assert listed(wire, producer_id_filters=mine, state_filters=["Empty"]) == {}
    producer.ended(commit=True, version=V1)
    assert listed(wire, producer_id_filters=mine, state_filters=["CompleteCommit"]) == {name: "CompleteCommit"}


def test_a_transactional_id_that_nobody_has_is_not_described(wire: Wire, transactional_id: str) -> None:
    wait_for_coordinator(wire, transactional_id, TRANSACTION)
    (found,) = wire.ask("DescribeTransactions", 0, transactional_ids=[transactional_id])["transaction_states"]
    assert found["error_code"] == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_the_producers_of_a_partition_are_described(wire: Wire, producer: Producer, topic: str) -> None:
    produced(wire, topic, b"plain")
    producer.produced(topic, 0)
    asked = [{"name": topic, "partition_indexes": [0]}]
    (found,) = wire.ask("DescribeProducers", 0, topics=asked)["topics"][0]["partitions"]
    (active,) = found["active_producers"]
    assert (active["producer_id"], active["last_sequence"], active["current_txn_start_offset"]) == (
        producer.producer_id,
        0,
        1,
    )
