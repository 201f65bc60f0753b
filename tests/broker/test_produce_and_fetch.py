"""Produce and Fetch over the wire: what a client sees of the log."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from harness.batches import GZIP, LZ4, NONE, SNAPPY, ZSTD, batch

from pybroker.server import BrokerServer
from pybroker.testing import Broker
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.fetch import FetchResponse, PartitionData
from pybroker_protocol.record_codec import build_batch, end_transaction_batch
from pybroker_protocol.records import batches
from tests.broker.wire_client import WireClient, fetch_request, produce_request


def fetched(response: FetchResponse) -> PartitionData:
    return response.responses[0].partitions[0]


def base_offsets(data: PartitionData) -> list[int]:
    return [header.base_offset for _, header in batches(memoryview(data.records or b""))]


def test_offsets_count_records_not_batches(wire: WireClient, pybroker_topic: str) -> None:
    assert wire.produce(pybroker_topic, batch(b"a", b"b", b"c")).base_offset == 0
    assert wire.produce(pybroker_topic, batch(b"d")).base_offset == 3


@pytest.mark.parametrize("version", range(3, 13))
def test_every_produce_version_appends(wire: WireClient, pybroker_topic: str, version: int) -> None:
    reply = wire.produce(pybroker_topic, batch(b"a"), version=version)
    assert (reply.error_code, reply.base_offset) == (ErrorCode.NONE, 0)


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
def test_batch_comes_back_byte_for_byte_but_for_offset_and_epoch(
    wire: WireClient, pybroker_topic: str, codec: int
) -> None:
    sent = batch(b"a" * 100, b"b", codec=codec)
    wire.produce(pybroker_topic, sent)
    records = bytes(fetched(wire.fetch(pybroker_topic, 0)).records or b"")
    assert records[16:] == sent[16:]
    assert struct.unpack_from(">qii", records) == (0, len(sent) - 12, 0)


def test_fetch_inside_of_a_batch_returns_the_whole_batch(wire: WireClient, pybroker_topic: str) -> None:
    wire.produce(pybroker_topic, batch(b"a", b"b", b"c"))
    assert base_offsets(fetched(wire.fetch(pybroker_topic, 2))) == [0]


def test_first_batch_is_returned_though_it_exceeds_every_limit(wire: WireClient, pybroker_topic: str) -> None:
    wire.produce(pybroker_topic, batch(b"x" * 10_000))
    wire.produce(pybroker_topic, batch(b"y"))
    data = fetched(wire.fetch(pybroker_topic, 0, max_bytes=1, partition_max_bytes=1))
    assert base_offsets(data) == [0]


def test_fetch_stops_at_whole_batches_below_the_limit(wire: WireClient, pybroker_topic: str) -> None:
    one = batch(b"x" * 1_000)
    for _ in range(5):
        wire.produce(pybroker_topic, one)
    data = fetched(wire.fetch(pybroker_topic, 0, partition_max_bytes=2 * len(one) + 10))
    assert base_offsets(data) == [0, 1]


def test_fetch_past_the_end_is_out_of_range_and_at_the_end_empty(wire: WireClient, pybroker_topic: str) -> None:
    wire.produce(pybroker_topic, batch(b"a"))
    at_end = fetched(wire.fetch(pybroker_topic, 1))
    assert (at_end.error_code, at_end.records, at_end.high_watermark) == (ErrorCode.NONE, b"", 1)
    assert fetched(wire.fetch(pybroker_topic, 2)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetched(wire.fetch(pybroker_topic, -5)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_waiting_fetch_is_answered_by_an_append(
    wire: WireClient, address: tuple[str, int], pybroker_topic: str
) -> None:
    wire.send(fetch_request(pybroker_topic, 0, max_wait_ms=30_000), 12)
    with WireClient(address) as producer:
        producer.produce(pybroker_topic, batch(b"a"))
        assert base_offsets(fetched(wire.receive())) == [0]


def test_waiting_fetch_waits_for_min_bytes(wire: WireClient, address: tuple[str, int], pybroker_topic: str) -> None:
    one = batch(b"x" * 100)
    wire.send(fetch_request(pybroker_topic, 0, max_wait_ms=30_000, min_bytes=len(one) + 1), 12)
    with WireClient(address) as producer:
        producer.produce(pybroker_topic, one)
        producer.produce(pybroker_topic, one)
        assert base_offsets(fetched(wire.receive())) == [0, 1]


@pytest.mark.parametrize("limit", ["partition_max_bytes", "max_bytes"])
@pytest.mark.parametrize("negative", [-1, -(2**31)])
def test_negative_limit_is_none(wire: WireClient, pybroker_topic: str, limit: str, negative: int) -> None:
    for _ in range(4):
        wire.produce(pybroker_topic, batch(b"x" * 100))
    for offset in range(4):
        data = fetched(wire.fetch(pybroker_topic, offset, **{limit: negative}))
        assert base_offsets(data) == list(range(offset, 4))


def test_minimum_above_what_a_reply_may_carry_is_met_by_as_much(wire: WireClient, pybroker_topic: str) -> None:
    """Else a consumer with much to read gets one full reply per longest wait."""
    one = batch(b"x" * 100)
    for _ in range(5):
        wire.produce(pybroker_topic, one)
    data = fetched(wire.fetch(pybroker_topic, 0, max_wait_ms=300_000, min_bytes=1 << 20, max_bytes=3 * len(one) + 10))
    assert base_offsets(data) == [0, 1, 2]


def test_waiting_fetch_ends_empty_when_its_time_is_over(wire: WireClient, pybroker_topic: str) -> None:
    data = fetched(wire.fetch(pybroker_topic, 0, max_wait_ms=20))
    assert (data.error_code, data.records) == (ErrorCode.NONE, b"")


def test_waiting_fetch_is_answered_when_its_topic_is_deleted(
    wire: WireClient, pybroker: Broker, pybroker_topic: str
) -> None:
    wire.send(fetch_request(pybroker_topic, 0, max_wait_ms=30_000), 12)
    with WireClient((pybroker.host, pybroker.port)) as other:
        other.fetch(pybroker_topic, 0)  # the first fetch is parked before the second is answered
    pybroker.delete_topic(pybroker_topic)
    assert fetched(wire.receive()).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_replies_leave_in_the_order_of_their_requests(wire: WireClient, pybroker_topic: str) -> None:
    large = batch(b"z" * 600_000)
    wire.send(produce_request(pybroker_topic, large), 9)
    wire.send(produce_request(pybroker_topic, batch(b"small")), 9)
    wire.send(fetch_request(pybroker_topic, 0, max_wait_ms=50, min_bytes=1 << 30), 12)
    wire.send(produce_request(pybroker_topic, batch(b"last")), 9)
    offsets = []
    for kind in ("produce", "produce", "fetch", "produce"):
        reply = wire.receive()
        if kind == "produce":
            offsets.append(reply.responses[0].partition_responses[0].base_offset)
        else:
            assert base_offsets(fetched(reply)) == [0, 1]
    assert offsets == [0, 1, 2]


def test_pipelined_large_batches_keep_their_order_and_content(wire: WireClient, pybroker_topic: str) -> None:
    sent = [batch(bytes([65 + index]) * (200_000 + index)) for index in range(10)]
    for one in sent:
        wire.send(produce_request(pybroker_topic, one), 9)
    assert [wire.receive().responses[0].partition_responses[0].base_offset for _ in sent] == list(range(10))
    data = fetched(wire.fetch(pybroker_topic, 0, partition_max_bytes=1 << 24))
    records = bytes(data.records or b"")
    position = 0
    for one in sent:
        assert records[position + 16 : position + len(one)] == one[16:]
        position += len(one)
    assert position == len(records)


def test_produce_without_acks_is_not_answered_but_appended(wire: WireClient, pybroker_topic: str) -> None:
    wire.post(produce_request(pybroker_topic, batch(b"a"), acks=0), version=7)
    assert wire.produce(pybroker_topic, batch(b"b")).base_offset == 1


def test_failed_produce_without_acks_closes_the_connection(wire: WireClient, pybroker_topic: str) -> None:
    broken = bytearray(batch(b"a"))
    broken[-1] ^= 1
    wire.post(produce_request(pybroker_topic, bytes(broken), acks=0), version=7)
    assert wire.receive_payload() is None


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        (lambda b: b[:-1] + bytes([b[-1] ^ 1]), ErrorCode.CORRUPT_MESSAGE),
        (lambda b: b[:16] + b"\x01" + b[17:], ErrorCode.INVALID_RECORD),
        (lambda b: b[:16] + b"\x03" + b[17:], ErrorCode.CORRUPT_MESSAGE),
        (lambda b: b + b, ErrorCode.INVALID_RECORD),
        (lambda b: b"", ErrorCode.INVALID_RECORD),
    ],
    ids=["crc", "magic 1", "magic 3", "two batches", "no batch"],
)
def test_damaged_batch_is_refused_and_nothing_is_appended(
    wire: WireClient, pybroker_topic: str, damage: object, error: ErrorCode
) -> None:
    reply = wire.produce(pybroker_topic, damage(batch(b"a")))  # type: ignore[operator]
    assert reply.error_code == error
    assert wire.produce(pybroker_topic, batch(b"a")).base_offset == 0


def test_unknown_partition_fails_beside_a_good_one(wire: WireClient, pybroker_topic: str) -> None:
    request = produce_request(pybroker_topic, batch(b"a"))
    other = produce_request(pybroker_topic, batch(b"a"), partition=7)
    request.topic_data[0].partition_data += other.topic_data[0].partition_data
    good, bad = wire.ask(request, 9).responses[0].partition_responses
    assert (good.error_code, good.base_offset) == (ErrorCode.NONE, 0)
    assert (bad.error_code, bad.base_offset) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


def transactional_batch(producer_id: int) -> bytes:
    return build_batch(
        [(b"k", b"v")],
        timestamp_ms=1,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )


def test_transactional_batch_needs_a_transactional_id_or_nothing_of_the_request_is_appended(
    wire: WireClient, pybroker_topic: str
) -> None:
    request = produce_request(pybroker_topic, batch(b"plain"))
    other = produce_request(pybroker_topic, transactional_batch(7))
    request.topic_data[0].partition_data += other.topic_data[0].partition_data
    replies = wire.ask(request, 9).responses[0].partition_responses
    assert [reply.error_code for reply in replies] == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
    assert wire.produce(pybroker_topic, batch(b"first")).base_offset == 0


def test_transactional_batches_of_two_producers_in_one_request_are_refused(
    wire: WireClient, pybroker_topic: str
) -> None:
    request = produce_request(pybroker_topic, transactional_batch(7))
    other = produce_request(pybroker_topic, transactional_batch(8))
    request.topic_data[0].partition_data += other.topic_data[0].partition_data
    request.transactional_id = "tx"
    replies = wire.ask(request, 9).responses[0].partition_responses
    assert [reply.error_code for reply in replies] == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2


def test_transactional_id_without_transactional_batches_is_an_ordinary_produce(
    wire: WireClient, pybroker_topic: str
) -> None:
    request = produce_request(pybroker_topic, batch(b"a"))
    request.transactional_id = "tx"
    assert wire.ask(request, 9).responses[0].partition_responses[0].error_code == ErrorCode.NONE


def test_follower_fetch_is_refused(wire: WireClient, pybroker_topic: str) -> None:
    request = fetch_request(pybroker_topic, 0)
    request.replica_id = 2
    assert wire.ask(request, 12).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_idempotent_duplicate_answers_with_the_original_offset(wire: WireClient, pybroker_topic: str) -> None:
    def numbered(sequence: int) -> bytes:
        return batch(b"v", producer_id=7_000, producer_epoch=0, base_sequence=sequence)

    assert [wire.produce(pybroker_topic, numbered(sequence)).base_offset for sequence in range(6)] == list(range(6))
    again = wire.produce(pybroker_topic, numbered(3))
    assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 3)
    assert wire.produce(pybroker_topic, numbered(9)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert wire.produce(pybroker_topic, numbered(0)).error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert wire.produce(pybroker_topic, numbered(6)).base_offset == 6


def test_read_committed_fetch_names_the_aborted_transactions_of_a_log_that_was_taken_over(
    wire: WireClient, pybroker: Broker, pybroker_topic: str
) -> None:
    aborted = build_batch(
        [(b"k", b"aborted")], timestamp_ms=1, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    marker = end_transaction_batch(commit=False, coordinator_epoch=0, producer_id=7, producer_epoch=0, timestamp_ms=2)

    def append(server: BrokerServer, done: Callable[[None], None]) -> None:
        partition = server.services.replicas.partition(pybroker_topic, 0)
        assert partition is not None
        verifications = partition.log.producers.verifications
        verifications.succeed(7, verifications.begin(7, 0, 0, False, 0), 0)
        for one in (aborted, marker):
            partition.append_internal(one, lambda _: None)
        done(None)

    pybroker._call(append)
    committed = fetched(wire.fetch(pybroker_topic, 0, isolation_level=1))
    assert committed.aborted_transactions is not None
    assert [(entry.producer_id, entry.first_offset) for entry in committed.aborted_transactions] == [(7, 0)]
    assert base_offsets(committed) == [0, 1]
    assert fetched(wire.fetch(pybroker_topic, 0)).aborted_transactions is None
