"""Where a consumer reads: seeking, offsets by time, pausing, slow and many readers."""

from __future__ import annotations

import time

from harness.waiting import wait_until

from conformance.adapter import Admin, Client, ConsumerOptions, Partition, Record, read
from conformance.all_clients import IN_PROCESS
from conformance.conftest import MakeTopic

FIRST_MS = 1_700_000_000_000
STEP_MS = 1_000
FETCH_WAIT_MS = 20


def fill(client: Client, topic: str, count: int, step_ms: int | None = None) -> Partition:
    """``count`` records, with ``step_ms`` of event time from one to the next, or sent now."""
    producer = client.producer()
    for number in range(count):
        timestamp_ms = None if step_ms is None else FIRST_MS + number * step_ms
        producer.send(topic, b"%d" % number, timestamp_ms=timestamp_ms)
    assert [delivery.offset for delivery in producer.flush()] == list(range(count))
    return topic, 0


def test_seeks_to_offset_beginning_and_end(client: Client, fresh_topic: str) -> None:
    partition = fill(client, fresh_topic, 50)
    consumer = client.consumer()
    consumer.assign([partition])
    consumer.seek(partition, 30)
    assert [record.offset for record in read(consumer, 20)] == list(range(30, 50))
    assert consumer.position(partition) == 50
    consumer.seek_to_beginning(partition)
    assert [record.offset for record in read(consumer, 50)] == list(range(50))
    consumer.seek_to_end(partition)
    producer = client.producer()
    producer.send(fresh_topic, b"new")
    producer.flush()
    assert [(record.offset, record.value) for record in read(consumer, 1)] == [(50, b"new")]


def test_offsets_by_time_and_at_both_ends(client: Client, make_topic: MakeTopic) -> None:
    # Filled by a client that can set timestamps: to look them up is another thing.
    writer = IN_PROCESS["librdkafka"](client.bootstrap)
    partition = fill(writer, make_topic(retention_ms="-1"), 10, STEP_MS)
    writer.close()
    consumer = client.consumer()
    assert consumer.beginning_and_end(partition) == (0, 10)
    assert consumer.offset_for_time(partition, FIRST_MS - 1) == 0
    assert consumer.offset_for_time(partition, FIRST_MS + 3 * STEP_MS) == 3
    assert consumer.offset_for_time(partition, FIRST_MS + 3 * STEP_MS + 1) == 4
    assert consumer.offset_for_time(partition, FIRST_MS + 10 * STEP_MS) is None


def test_offset_reset_decides_where_a_new_consumer_starts(client: Client, fresh_topic: str) -> None:
    partition = fill(client, fresh_topic, 5)
    earliest, latest = (client.consumer(ConsumerOptions(offset_reset=reset)) for reset in ("earliest", "latest"))
    earliest.assign([partition])
    latest.assign([partition])
    assert len(read(earliest, 5)) == 5
    producer = client.producer()
    received: list[Record] = []

    def one_came() -> bool:
        """A consumer that looks its position up while it is polled misses what was sent before."""
        producer.send(fresh_topic, b"new")
        producer.flush()
        received.extend(latest.poll())
        return bool(received)

    wait_until(one_came, "a record for the consumer at the end")
    assert received[0].offset >= 5


def test_offset_out_of_range_is_reset(client: Client, fresh_topic: str) -> None:
    partition = fill(client, fresh_topic, 5)
    consumer = client.consumer(ConsumerOptions(offset_reset="earliest"))
    consumer.assign([partition])
    consumer.seek(partition, 1_000)
    assert [record.offset for record in read(consumer, 5)] == list(range(5))


def test_consumer_starts_at_the_first_record_kept_after_deletion(
    client: Client, topic_admin: Admin, fresh_topic: str
) -> None:
    partition = fill(client, fresh_topic, 10)
    assert topic_admin.delete_records(partition, 6) == 6
    consumer = client.consumer(ConsumerOptions(offset_reset="earliest"))
    consumer.assign([partition])
    consumer.seek(partition, 2)
    assert [record.offset for record in read(consumer, 4)] == [6, 7, 8, 9]
    assert consumer.beginning_and_end(partition) == (6, 10)


def test_slow_consumer_misses_nothing(client: Client, fresh_topic: str) -> None:
    consumer = client.consumer(ConsumerOptions(fetch_wait_ms=FETCH_WAIT_MS))
    consumer.assign([(fresh_topic, 0)])
    producer = client.producer()
    sent = 0
    received: list[int] = []
    for _ in range(3):
        # Not polled for many times the broker's fetch wait, while records keep coming.
        pause_ends = time.monotonic() + 10 * FETCH_WAIT_MS / 1000
        while time.monotonic() < pause_ends:
            producer.send(fresh_topic, b"v")
            producer.flush()
            sent += 1
        received += [record.offset for record in read(consumer, sent - len(received))]
    assert received == list(range(sent))


def test_paused_partition_waits_while_the_other_goes_on(client: Client, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    paused, flowing = (topic, 0), (topic, 1)
    consumer = client.consumer(ConsumerOptions(fetch_wait_ms=FETCH_WAIT_MS))
    consumer.assign([paused, flowing])
    consumer.pause(paused)
    producer = client.producer()
    for number in range(10):
        producer.send(topic, b"%d" % number, partition=number % 2)
    producer.flush()
    assert {record.partition for record in read(consumer, 5)} == {1}
    consumer.resume(paused)
    assert [(record.partition, record.offset) for record in read(consumer, 5)] == [(0, n) for n in range(5)]


def test_many_small_consumers_each_read_everything(client: Client, fresh_topic: str) -> None:
    partition = fill(client, fresh_topic, 20)
    consumers = [client.consumer() for _ in range(12)]
    for consumer in consumers:
        consumer.assign([partition])
    for consumer in consumers:
        assert [record.offset for record in read(consumer, 20)] == list(range(20))
