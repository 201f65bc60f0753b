"""Produce: what is refused, and what a producer is told."""

from __future__ import annotations

import time

import pytest
from harness.batches import (
    BASE_TIMESTAMP_MS,
    CONTROL_FLAG,
    GZIP,
    LOG_APPEND_TIME_FLAG,
    ZSTD,
    Batch,
    Record,
    batch,
    legacy_message_set,
)
from harness.waiting import wait_until

from conformance.wire.asking import (
    MAX_TIMESTAMP,
    TIMEOUT_MS,
    UNKNOWN_ID,
    Producer,
    Wire,
    end_offset,
    fetch,
    list_offset,
    offsets,
    produce,
    produce_fields,
    produced,
    stored_batches,
)
from pybroker_protocol.errors import ErrorCode

NO_OFFSET = -1
BY_ID = 13
DAY_MS = 86_400_000


# --- offsets and acknowledgements ------------------------------------------------------------------------------------


def test_each_record_has_the_next_offset(wire: Wire, lone_topic: str) -> None:
    topic = lone_topic
    assert produced(wire, topic, b"1", b"2", b"3") == 0
    assert produced(wire, topic, b"4") == 3
    assert produced(wire, topic, b"5", b"6", acks=1) == 4
    assert end_offset(wire, topic) == 6
    assert [
        (found.base_offset, found.last_offset_delta) for found in stored_batches(fetch(wire, topic)["records"])
    ] == [
        (0, 2),
        (3, 0),
        (4, 1),
    ]


@pytest.mark.parametrize("acks", [2, -2])
def test_acks_that_do_not_exist_are_refused(wire: Wire, topic: str, acks: int) -> None:
    reply = produce(wire, topic, batch(), acks=acks)
    assert (reply["error_code"], reply["base_offset"]) == (ErrorCode.INVALID_REQUIRED_ACKS, NO_OFFSET)
    assert end_offset(wire, topic) == 0


def test_each_partition_is_answered_for_itself(wire: Wire) -> None:
    topic = wire.topic(partitions=2)
    data = [
        {"index": 0, "records": batch(b"good")},
        {"index": 1, "records": Batch(crc=1).encode()},
        {"index": 7, "records": batch(b"nowhere")},
    ]
    asked = [{"name": topic, "partition_data": data}]
    (replied,) = wire.ask("Produce", 9, acks=-1, timeout_ms=TIMEOUT_MS, topic_data=asked)["responses"]
    codes = {found["index"]: (found["error_code"], found["base_offset"]) for found in replied["partition_responses"]}
    assert codes == {
        0: (ErrorCode.NONE, 0),
        1: (ErrorCode.CORRUPT_MESSAGE, NO_OFFSET),
        7: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NO_OFFSET),
    }


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "records"),
    [
        (ErrorCode.CORRUPT_MESSAGE, Batch(crc=12345).encode()),
        (ErrorCode.CORRUPT_MESSAGE, Batch(magic=3).encode()),
        (ErrorCode.INVALID_RECORD, legacy_message_set(1)),
        (ErrorCode.INVALID_RECORD, b""),
        (ErrorCode.INVALID_RECORD, batch(b"one") + batch(b"two")),
        (ErrorCode.INVALID_RECORD, batch(b"cut short")[:-3]),
        (ErrorCode.INVALID_RECORD, Batch(base_offset=42).encode()),
        (ErrorCode.INVALID_RECORD, Batch(last_offset_delta=7).encode()),
        (ErrorCode.INVALID_RECORD, Batch(flags=CONTROL_FLAG).encode()),
    ],
    ids=["crc", "magic 3", "magic 1", "nothing", "two", "cut", "base offset", "count", "control"],
)
def test_a_batch_that_is_not_sound_leaves_no_trace(wire: Wire, topic: str, error: ErrorCode, records: bytes) -> None:
    for version in (3, 9):
        reply = produce(wire, topic, records, version)
        assert (reply["error_code"], reply["base_offset"]) == (error, NO_OFFSET)
    assert produced(wire, topic, b"the next one") == 0


def test_a_batch_may_be_as_large_as_the_topic_says(wire: Wire) -> None:
    limit = 1000
    topic = wire.topic(max_message_bytes=str(limit))
    overhead = len(batch(b"x" * 500)) - 500
    assert produced(wire, topic, b"x" * (limit - overhead)) == 0
    reply = produce(wire, topic, batch(b"x" * (limit - overhead + 1)))
    assert reply["error_code"] == ErrorCode.MESSAGE_TOO_LARGE
    assert end_offset(wire, topic) == 1


def test_compacted_topics_want_keys(wire: Wire) -> None:
    topic = wire.topic(cleanup_policy="compact")
    some = [Record(key=b"k"), Record(), Record(key=b"l"), Record()]
    for codec in (0, GZIP):
        reply = produce(wire, topic, Batch(records=some, codec=codec).encode())
        assert reply["error_code"] == ErrorCode.INVALID_RECORD
        assert [error["batch_index"] for error in reply["record_errors"]] == [1, 3]
    assert produce(wire, topic, batch(b"v", key=b"k"))["base_offset"] == 0
    assert produce(wire, topic, batch(None, key=b"k"))["base_offset"] == 1


def test_zstd_is_for_clients_that_know_it(wire: Wire, topic: str) -> None:
    records = Batch(codec=ZSTD).encode()
    assert produce(wire, topic, records, version=6)["error_code"] == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert produce(wire, topic, records, version=7)["error_code"] == ErrorCode.NONE


def test_clients_do_not_write_to_internal_topics(wire: Wire, group: str) -> None:
    reply = produce(wire, "__consumer_offsets", batch(b"v", key=b"k"))
    assert (reply["error_code"], reply["base_offset"]) == (ErrorCode.INVALID_TOPIC_EXCEPTION, NO_OFFSET)


def test_a_topic_id_that_nobody_has_is_unknown(wire: Wire, topic: str) -> None:
    for topic_id in (UNKNOWN_ID, bytes(16)):
        reply = produce(wire, "", batch(), BY_ID, topic_id=topic_id)
        assert reply["error_code"] == ErrorCode.UNKNOWN_TOPIC_ID
    assert produce(wire, "missing-topic", batch(), 12)["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert produce(wire, "", batch(), BY_ID, topic_id=wire.topic_id(topic))["error_code"] == ErrorCode.NONE


def test_a_topic_made_anew_has_another_id(wire: Wire) -> None:
    topic = wire.topic()
    old_id = wire.topic_id(topic)
    produced(wire, topic, b"old", version=BY_ID, topic_id=old_id)
    wire.ask("DeleteTopics", 6, topics=[{"name": topic}], timeout_ms=TIMEOUT_MS)
    gone = ErrorCode.UNKNOWN_TOPIC_ID
    wait_until(lambda: produce(wire, "", batch(), BY_ID, topic_id=old_id)["error_code"] == gone, "the topic to be gone")
    wire.make_topic(topic)
    assert wire.topic_id(topic) != old_id
    assert produce(wire, "", batch(), BY_ID, topic_id=old_id)["error_code"] == gone
    assert produced(wire, topic, b"new") == 0


# --- timestamps ------------------------------------------------------------------------------------------------------


def test_create_time_is_the_producers(wire: Wire, topic: str) -> None:
    reply = produce(wire, topic, Batch(records=[Record(), Record(timestamp_delta_ms=5)]).encode())
    assert reply["log_append_time_ms"] == -1
    (stored,) = stored_batches(fetch(wire, topic)["records"])
    assert not stored.attributes & LOG_APPEND_TIME_FLAG
    assert stored.max_timestamp_ms == BASE_TIMESTAMP_MS + 5


@pytest.mark.parametrize("codec", [0, GZIP])
def test_log_append_time_is_the_brokers(wire: Wire, codec: int) -> None:
    topic = wire.topic(message_timestamp_type="LogAppendTime")
    started_ms = int(time.time() * 1000)
    for _ in range(3):
        reply = produce(wire, topic, Batch(codec=codec).encode())
        assert started_ms <= reply["log_append_time_ms"] <= int(time.time() * 1000)
    stored = stored_batches(fetch(wire, topic)["records"])
    assert all(found.attributes & LOG_APPEND_TIME_FLAG for found in stored)
    assert stored[-1].max_timestamp_ms == reply["log_append_time_ms"]


def test_a_timestamp_of_the_far_future_is_refused(wire: Wire, topic: str) -> None:
    future = Batch(base_timestamp_ms=BASE_TIMESTAMP_MS + 20_000 * DAY_MS).encode()
    reply = produce(wire, topic, future)
    assert (reply["error_code"], reply["base_offset"]) == (ErrorCode.INVALID_TIMESTAMP, NO_OFFSET)


@pytest.mark.parametrize("codec", [0, GZIP])
@pytest.mark.parametrize("claimed", [-1, BASE_TIMESTAMP_MS, BASE_TIMESTAMP_MS + 7 * DAY_MS])
def test_a_header_that_claims_another_maximum_than_its_records_have_is_corrected(
    wire: Wire, topic: str, codec: int, claimed: int
) -> None:
    """As KafkaJS does, and sarama before 1.45: who goes by the header would let a record expire, or not find it."""
    records = [Record(), Record(timestamp_delta_ms=DAY_MS), Record(timestamp_delta_ms=5)]
    sent = Batch(records=records, codec=codec, max_timestamp_ms=claimed).encode()
    assert produce(wire, topic, sent)["error_code"] == ErrorCode.NONE
    (stored,) = stored_batches(fetch(wire, topic)["records"])
    assert stored.max_timestamp_ms == BASE_TIMESTAMP_MS + DAY_MS
    assert list_offset(wire, topic, BASE_TIMESTAMP_MS + 6)["offset"] == 1
    assert list_offset(wire, topic, MAX_TIMESTAMP)["offset"] == 1


@pytest.mark.parametrize("codec", [0, GZIP])
def test_a_record_of_the_far_future_is_refused_whatever_the_header_claims(wire: Wire, topic: str, codec: int) -> None:
    records = [Record(), Record(timestamp_delta_ms=20_000 * DAY_MS)]
    reply = produce(wire, topic, Batch(records=records, codec=codec, max_timestamp_ms=BASE_TIMESTAMP_MS).encode())
    assert (reply["error_code"], reply["base_offset"]) == (ErrorCode.INVALID_TIMESTAMP, NO_OFFSET)
    assert [error["batch_index"] for error in reply["record_errors"]] == [1]


def test_a_timestamp_of_the_past_is_refused_where_the_topic_says_so(wire: Wire) -> None:
    topic = wire.topic(message_timestamp_before_max_ms="1000")
    assert produce(wire, topic, batch())["error_code"] == ErrorCode.INVALID_TIMESTAMP
    now = batch(base_timestamp_ms=int(time.time() * 1000))
    # A stalled machine may take longer than the topic allows.
    assert produce(wire, topic, now)["error_code"] in (ErrorCode.NONE, ErrorCode.INVALID_TIMESTAMP)


# --- idempotence -----------------------------------------------------------------------------------------------------


def test_each_of_the_last_five_batches_is_known_again(wire: Wire, topic: str) -> None:
    producer = Producer(wire)
    for sequence in range(7):
        assert producer.produced(topic, sequence, version=9) == sequence
    for sequence in (2, 3, 4, 5, 6):
        reply = producer.produce(topic, sequence, version=9)
        assert (reply["error_code"], reply["base_offset"]) == (ErrorCode.NONE, sequence)
    assert end_offset(wire, topic) == 7


def test_a_batch_older_than_the_five_is_refused(wire: Wire, topic: str) -> None:
    producer = Producer(wire)
    for sequence in range(7):
        producer.produced(topic, sequence, version=9)
    # Apache Kafka 4 says OUT_OF_ORDER_SEQUENCE_NUMBER; DUPLICATE_SEQUENCE_NUMBER, which it defines, tells more.
    refusals = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    for sequence in (0, 1):
        assert producer.produce(topic, sequence, version=9)["error_code"] in refusals
    assert end_offset(wire, topic) == 7


def test_a_gap_in_the_sequence_is_refused(wire: Wire, topic: str) -> None:
    producer = Producer(wire)
    producer.produced(topic, 0, b"a", b"b", version=9)
    for sequence in (3, 1):
        reply = producer.produce(topic, sequence, version=9)
        assert (reply["error_code"], reply["base_offset"]) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, NO_OFFSET)
    assert producer.produced(topic, 2, version=9) == 2


def test_an_older_epoch_is_fenced_and_a_new_one_begins_at_0(wire: Wire, topic: str) -> None:
    producer = Producer(wire)
    producer.produced(topic, 0, version=9)
    later = producer.epoch + 1
    skipped = producer.produce(topic, 1, version=9, producer_epoch=later)
    assert skipped["error_code"] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.produce(topic, 0, version=9, producer_epoch=later)["base_offset"] == 1
    for version in (3, 9, 12):
        assert producer.produce(topic, 1, version=version)["error_code"] == ErrorCode.INVALID_PRODUCER_EPOCH
    assert end_offset(wire, topic) == 2


def test_sequences_wrap_to_0(wire: Wire, topic: str) -> None:
    producer, last = Producer(wire), 2**31 - 1
    assert producer.produced(topic, last - 1, b"1", b"2", b"3", version=9) == 0
    assert producer.produced(topic, 1, version=9) == 3
    assert producer.produce(topic, last - 1, b"1", b"2", b"3", version=9)["base_offset"] == 0
    other = Producer(wire)
    assert [other.produced(topic, sequence, version=9) for sequence in (last, 0)] == [4, 5]


def test_producers_of_one_partition_do_not_know_of_each_other(wire: Wire, topic: str) -> None:
    first, second = Producer(wire), Producer(wire)
    assert first.producer_id != second.producer_id
    assert [producer.produced(topic, 0, version=9) for producer in (first, second)] == [0, 1]


def test_requests_that_are_alike_are_judged_one_by_one(wire: Wire, topic: str) -> None:
    """A broker that learns from requests that repeat themselves must not overlook the one that differs."""
    producer = Producer(wire)
    for sequence in range(40):
        assert producer.produced(topic, sequence, version=9) == sequence
    assert producer.produce(topic, 39, version=9)["base_offset"] == 39
    assert producer.produce(topic, 45, version=9)["error_code"] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.produce(topic, 40, version=9, crc=1)["error_code"] == ErrorCode.CORRUPT_MESSAGE
    assert producer.produced(topic, 40, version=9) == 40
    assert offsets(wire, topic) == list(range(41))


def test_duplicates_among_many_requests_at_once_are_written_once(wire: Wire, topic: str) -> None:
    producer, connection = Producer(wire), wire.connect()
    sequences = [sequence for first in range(0, 40, 4) for sequence in (*range(first, first + 4), first, first + 1)]
    for sequence in sequences:
        connection.send("Produce", 9, produce_fields(topic, producer.batch(sequence)))
    replies = [connection.receive("Produce", 9)["responses"][0]["partition_responses"][0] for _ in sequences]
    assert [(reply["error_code"], reply["base_offset"]) for reply in replies] == [(0, number) for number in sequences]
    assert end_offset(wire, topic) == 40
