"""What a client sends is what a client reads: values, keys, headers, timestamps, codecs, partitions and sizes."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

import pytest

from conformance.adapter import Client, ConsumerOptions, Headers, ProducerOptions, Record, read
from conformance.all_clients import IN_PROCESS
from conformance.conftest import MakeTopic

MESSAGE_TOO_LARGE = 10
BATCH_BYTES_MAX = 100_000
# The header of a batch, and a record's own fields when its value has three bytes of length.
ONE_RECORD_OVERHEAD = 61 + 11
CREATE_TIME, LOG_APPEND_TIME, NOT_TOLD = 0, 1, None


def read_topic(client: Client, topic: str, count: int, **options: int) -> list[Record]:
    consumer = client.consumer(ConsumerOptions(**options))  # type: ignore[arg-type]
    consumer.assign([(topic, 0)])
    return read(consumer, count)


def test_batches_of_every_codec_are_read_back(client: Client, codec: str, fresh_topic: str) -> None:
    values = send_compressed(client, codec, fresh_topic)
    for reader in (client, *(kind(client.bootstrap) for kind in IN_PROCESS.values())):
        try:
            assert [record.value for record in read_topic(reader, fresh_topic, len(values))] == values
        finally:
            if reader is not client:
                reader.close()


def test_batches_of_another_client_are_read(client: Client, codec: str, fresh_topic: str) -> None:
    writer = IN_PROCESS["librdkafka"](client.bootstrap)
    try:
        values = send_compressed(writer, codec, fresh_topic)
    finally:
        writer.close()
    assert [record.value for record in read_topic(client, fresh_topic, len(values))] == values


def send_compressed(client: Client, codec: str, topic: str) -> list[bytes]:
    producer = client.producer(ProducerOptions(codec=codec, linger_ms=20))
    values = [b"%d " % number * 50 for number in range(100)]
    for value in values:
        producer.send(topic, value)
    assert [delivery.error for delivery in producer.flush()] == [0] * len(values)
    return values


def keys_and_values_read_back(
    client: Client, topic: str, sent: Sequence[tuple[bytes | None, bytes | None]]
) -> list[tuple[bytes | None, bytes | None]]:
    producer = client.producer()
    for key, value in sent:
        producer.send(topic, value, key=key)
    assert [delivery.offset for delivery in producer.flush()] == list(range(len(sent)))
    records = read_topic(client, topic, len(sent))
    assert [record.headers for record in records] == [()] * len(sent)
    return [(record.key, record.value) for record in records]


def test_keys_and_null_values_are_kept(client: Client, fresh_topic: str) -> None:
    sent = [(b"key", b"value"), (b"tombstone", None), (None, b"keyless"), (b"\x00\xff\n", b"\x00\xff\n")]
    assert keys_and_values_read_back(client, fresh_topic, sent) == sent


def test_empty_keys_and_values_are_not_null(client: Client, fresh_topic: str) -> None:
    sent = [(b"", b""), (b"", b"value"), (b"key", b"")]
    assert keys_and_values_read_back(client, fresh_topic, sent) == sent


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param((("empty", b""), ("trace", b"1, 2=3"), ("ümlaut", "ä".encode())), id="text"),
        pytest.param((("trace", b"first"), ("trace", b"again"), ("a", b"last")), id="repeated"),
        pytest.param((("trace", b"\x00\xff"),), id="binary"),
    ],
)
def test_headers_are_kept(client: Client, fresh_topic: str, headers: Headers) -> None:
    producer = client.producer()
    producer.send(fresh_topic, b"value", key=b"key", headers=headers)
    producer.send(fresh_topic, b"bare")
    assert [delivery.offset for delivery in producer.flush()] == [0, 1]
    records = read_topic(client, fresh_topic, 2)
    assert [(record.value, record.headers) for record in records] == [(b"value", headers), (b"bare", ())]


def test_create_time_is_the_producers(client: Client, fresh_topic: str) -> None:
    now_ms = int(time.time() * 1000)
    timestamps = [now_ms - 5_000, now_ms - 60_000, now_ms]
    producer = client.producer()
    for timestamp_ms in timestamps:
        producer.send(fresh_topic, b"v", timestamp_ms=timestamp_ms)
    producer.flush()
    records = read_topic(client, fresh_topic, 3)
    assert [record.timestamp_ms for record in records] == timestamps
    assert {record.timestamp_type for record in records} <= {CREATE_TIME, NOT_TOLD}


def test_log_append_time_is_the_brokers(client: Client, make_topic: MakeTopic) -> None:
    client.need("log_append_time")
    topic = make_topic(message_timestamp_type="LogAppendTime")
    producer = client.producer()
    started_ms = int(time.time() * 1000)
    producer.send(topic, b"v", timestamp_ms=1_000)
    producer.flush()
    (record,) = read_topic(client, topic, 1)
    assert started_ms <= record.timestamp_ms <= int(time.time() * 1000)
    assert record.timestamp_type in (LOG_APPEND_TIME, NOT_TOLD)


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_records_arrive_with_every_acks(client: Client, fresh_topic: str, acks: int) -> None:
    producer = client.producer(ProducerOptions(acks=acks, idempotent=False))
    producer.send(fresh_topic, b"v")
    producer.flush()
    assert [record.value for record in read_topic(client, fresh_topic, 1)] == [b"v"]


def test_every_partitioner_spreads_keys_and_keeps_a_key_together(
    client: Client, partitioner: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=4)
    producer = client.producer(ProducerOptions(partitioner=partitioner if partitioner != "default" else None))
    for number in range(80):
        producer.send(topic, b"%d" % number, key=b"key-%d" % (number % 40))
    deliveries = producer.flush()
    assert {delivery.error for delivery in deliveries} == {0}
    assert {delivery.partition for delivery in deliveries} == set(range(4))
    consumer = client.consumer()
    consumer.assign([(topic, partition) for partition in range(4)])
    found = {record.value: (record.partition, record.offset) for record in read(consumer, 80)}
    assert found == {b"%d" % number: delivery[1:] for number, delivery in enumerate(deliveries)}
    if partitioner != "random":
        assert [delivery.partition for delivery in deliveries[:40]] == [item.partition for item in deliveries[40:]]


def test_murmur2_partitions_as_the_java_client_does(client: Client, make_topic: MakeTopic) -> None:
    if client.murmur2_partitioner is None:
        pytest.skip("the client has no partitioner with Kafka's hash")
    topic = make_topic(partitions=7)
    producer = client.producer(ProducerOptions(partitioner=client.murmur2_partitioner))
    # Hashes that Kafka's own UtilsTest holds for these keys.
    hashes = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    for key in hashes:
        producer.send(topic, b"v", key=key)
    assert [delivery.partition for delivery in producer.flush()] == [
        (murmur2 & 0x7FFFFFFF) % 7 for murmur2 in hashes.values()
    ]


def test_records_go_to_the_named_partition(client: Client, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=3)
    producer = client.producer()
    for partition in (2, 0, 2):
        producer.send(topic, b"v", partition=partition)
    assert [delivery[1:] for delivery in producer.flush()] == [(2, 0), (0, 0), (2, 1)]


def test_idempotent_producer_numbers_its_records_without_gap(client: Client, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    producer = client.producer(ProducerOptions(idempotent=True))
    for number in range(200):
        producer.send(topic, b"%d" % number, partition=number % 2)
    assert [delivery[1:] for delivery in producer.flush()] == [(number % 2, number // 2) for number in range(200)]


def test_batch_of_exactly_the_largest_size_is_taken(client: Client, make_topic: MakeTopic) -> None:
    topic = make_topic(max_message_bytes=str(BATCH_BYTES_MAX))
    value = os.urandom(BATCH_BYTES_MAX - ONE_RECORD_OVERHEAD)
    producer = client.producer()
    producer.send(topic, value)
    assert [delivery.error for delivery in producer.flush()] == [0]
    # The first batch comes whole, however small the reader's limit.
    assert [record.value for record in read_topic(client, topic, 1, partition_fetch_bytes=1_000)] == [value]


@pytest.mark.parametrize("excess_bytes", [1, 100_000])
def test_batch_over_the_largest_size_is_the_clients_own_error(
    client: Client, make_topic: MakeTopic, excess_bytes: int
) -> None:
    topic = make_topic(max_message_bytes=str(BATCH_BYTES_MAX))
    producer = client.producer()
    producer.send(topic, os.urandom(BATCH_BYTES_MAX - ONE_RECORD_OVERHEAD + excess_bytes))
    assert [delivery.error for delivery in producer.flush()] == [MESSAGE_TOO_LARGE]
    # kafka-python holds the error for fatal, so a producer of its own shows that the partition goes on.
    next_producer = client.producer()
    next_producer.send(topic, b"small")
    assert [delivery.error for delivery in next_producer.flush()] == [0]


def test_records_of_several_megabytes_pass(client: Client, make_topic: MakeTopic) -> None:
    topic = make_topic(max_message_bytes=str(8 << 20))
    values = [os.urandom(3 << 20), b"small", os.urandom(5 << 20)]
    producer = client.producer()
    for value in values:
        producer.send(topic, value)
        assert [delivery.error for delivery in producer.flush()] == [0]
    assert [record.value for record in read_topic(client, topic, 3)] == values
