"""Recorded data come into topics whole, where Java's clients put them; what stops that is an error of one line."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaConsumer, TopicPartition

from examples import feed
from examples.feed import FeedFailed, TopicExists, create_topics, produce
from pybroker.pipeline.records import Record
from pybroker.testing import Broker

PARTITIONS = 4
AT_MS = 1_357_000_000_000
END_MS = AT_MS + 1_000_000_000
# Kafka's UtilsTest has these of its hash, murmur2.
HASHES = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536, b"abc": 479470107}
NOBODY = "127.0.0.1:1"


@pytest.fixture
def topic(pybroker: Broker) -> str:
    name = f"feed-{uuid.uuid4().hex[:12]}"
    create_topics(pybroker.bootstrap, [name], [], stream_partitions=PARTITIONS)
    return name


@pytest.fixture
def consumer(pybroker: Broker) -> Iterator[Any]:
    found = KafkaConsumer(bootstrap_servers=pybroker.bootstrap, auto_offset_reset="earliest")
    yield found
    found.close()


def read(consumer: Any, topic: str) -> dict[int, list[tuple[bytes | None, bytes | None, int]]]:
    """Keys, values and timestamps of each partition."""
    partitions = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    consumer.assign(partitions)
    consumer.seek_to_beginning()
    ends = consumer.end_offsets(partitions)
    found: dict[int, list[tuple[bytes | None, bytes | None, int]]] = {each.partition: [] for each in partitions}
    while any(consumer.position(each) < ends[each] for each in partitions):
        for at, records in consumer.poll(timeout_ms=1_000).items():
            found[at.partition] += [(record.key, record.value, record.timestamp) for record in records]
    return found


def numbered(count: int) -> list[Record]:
    return [Record(b"%d" % (number % 7), b"%d" % number, AT_MS + number) for number in range(count)]


def test_records_go_to_the_partitions_of_their_keys_as_with_javas_clients(
    pybroker: Broker, topic: str, consumer: Any
) -> None:
    produce(pybroker.bootstrap, topic, [Record(key, b"", AT_MS) for key in HASHES])
    found = {key: partition for partition, records in read(consumer, topic).items() for key, _, _ in records}
    assert found == {key: (value & 0x7FFFFFFF) % PARTITIONS for key, value in HASHES.items()}


def test_each_partition_has_its_records_in_order_and_the_end_behind_them(
    pybroker: Broker, topic: str, consumer: Any
) -> None:
    records = numbered(5_000)
    end = Record(b"end", None, END_MS)
    handed_over: list[int] = []
    assert produce(pybroker.bootstrap, topic, records, end=end, on_progress=handed_over.append) == (5_000, PARTITIONS)
    assert sum(handed_over) == 5_004
    assert len(handed_over) > 1
    found = read(consumer, topic)
    for at in found.values():
        assert at.pop() == (b"end", None, END_MS)
        assert at == sorted(at, key=lambda record: record[2])
    told = [(record.key, record.value, record.timestamp_ms) for record in records]
    assert sorted(record for at in found.values() for record in at) == sorted(told)


def test_a_feed_waits_where_more_records_are_on_their_way_than_librdkafka_holds(
    pybroker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(feed.PRODUCER_SETTINGS, "queue.buffering.max.messages", 100)
    assert produce(pybroker.bootstrap, topic, numbered(3_000)) == (3_000, 0)


def test_an_empty_feed_ends_each_partition(pybroker: Broker, topic: str) -> None:
    assert produce(pybroker.bootstrap, topic, [], end=Record(b"end", None, AT_MS)) == (0, PARTITIONS)


def test_a_topic_that_exists_is_named(pybroker: Broker, topic: str) -> None:
    with pytest.raises(TopicExists, match=f"^topic {topic}: .*already exists"):
        create_topics(pybroker.bootstrap, [], [topic])


def test_a_topic_that_a_broker_refuses_is_named_with_the_reason(pybroker: Broker) -> None:
    with pytest.raises(FeedFailed, match=r"^topic not/allowed: ") as raised:
        create_topics(pybroker.bootstrap, ["not/allowed"], [])
    assert not isinstance(raised.value, TopicExists)


def test_no_broker_is_an_error_of_one_line_and_nothing_on_standard_error(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(feed, "REACHED_WITHIN_S", 1.0)
    with pytest.raises(FeedFailed, match=f"^no broker answers at {NOBODY}: .+$"):
        create_topics(NOBODY, ["nowhere"], [])
    assert capfd.readouterr() == ("", "")


def test_a_record_that_is_too_large_fails_the_feed_by_its_reason(pybroker: Broker, topic: str) -> None:
    with pytest.raises(FeedFailed, match=f"^not all records of {topic} were taken: .*too large"):
        produce(pybroker.bootstrap, topic, [Record(b"", bytes(2_000_000), AT_MS)])


def test_a_feed_whose_broker_has_died_fails_in_bounded_time(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also where more is to be sent than the client holds, so that it never comes to the end."""
    with Broker() as broker:
        create_topics(broker.bootstrap, ["t"], [])
        produce(broker.bootstrap, "t", numbered(1))
        monkeypatch.setitem(feed.PRODUCER_SETTINGS, "delivery.timeout.ms", 1_000)
        monkeypatch.setitem(feed.PRODUCER_SETTINGS, "queue.buffering.max.messages", 100)
        capfd.readouterr()
        broker.kill()
        with pytest.raises(FeedFailed, match=r"^not all records of t were taken: .*timed out"):
            produce(broker.bootstrap, "t", numbered(1_000))
    assert capfd.readouterr().err == ""
