"""Spark's Kafka connector, batch and streaming, with every option of its guide (Structured Streaming + Kafka)."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from harness.spark_sessions import SparkSessions
from harness.waiting import wait_until

from conformance.adapter import Admin, Client, ConsumerOptions, ProducerOptions, read
from conformance.all_clients import IN_PROCESS
from conformance.broker_under_test import BrokerUnderTest
from conformance.conftest import MakeTopic, create_topic
from conformance.relay import Relay
from conformance.spark_on_kafka import (
    CONSUMERS_MAX,
    EVICTION_INTERVAL_MS,
    PATIENCE_S,
    POOL_IDLE_MS,
    Options,
    SparkOnKafka,
    expected,
    fill,
    joined,
    plain,
    spark_on_kafka,
    timestamp_of,
)

# By one process: the session is one of its own.
pytestmark = [
    pytest.mark.jvm(needs="spark"),
    pytest.mark.timeout(600),
]

CONSUMER_OFFSET_FETCHING = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
DATA_LOSS = "Some data may have been lost because they are not available in Kafka any more"
PAST_THE_END = str(timestamp_of(1_000))


@pytest.fixture(scope="module")
def spark(spark_sessions: SparkSessions, broker: BrokerUnderTest) -> Iterator[SparkOnKafka]:
    with spark_on_kafka(spark_sessions, broker) as made:
        yield made


@pytest.fixture(params=["admin", "consumer"])
def offset_fetching(request: pytest.FixtureRequest, spark: SparkOnKafka) -> Iterator[str]:
    """How the driver learns of offsets: by an admin client, or by a consumer as before Spark 3.1."""
    spark.session.conf.set(CONSUMER_OFFSET_FETCHING, str(request.param == "consumer").lower())
    yield request.param
    spark.session.conf.unset(CONSUMER_OFFSET_FETCHING)


@pytest.fixture
def python(broker: BrokerUnderTest) -> Iterator[Client]:
    """Writes what Spark reads, and reads what it writes."""
    made = IN_PROCESS["librdkafka"](broker.bootstrap)
    yield made
    made.close()


def of_partitions(topic: str, *values: int) -> str:
    """JSON with one value for each partition."""
    return json.dumps({topic: {str(partition): value for partition, value in enumerate(values)}})


# ---------------------------------------------------------------------- the source: what is read


@pytest.mark.usefixtures("offset_fetching")
@pytest.mark.parametrize("option", ["assign", "subscribe", "subscribePattern"])
def test_partitions_are_assigned_or_subscribed_to(
    option: str, spark: SparkOnKafka, python: Client, make_topic: MakeTopic, topic_admin: Admin
) -> None:
    two, one, other = make_topic(2), make_topic(), make_topic()
    for topic, partition in ((two, 0), (two, 1), (one, 0), (other, 0)):
        fill(python, topic, range(3), partition)
    rows = {(topic, p): expected(topic, p, range(3)) for topic, p in ((two, 0), (two, 1), (one, 0))}
    choices = {
        "assign": json.dumps({two: [1], one: [0]}),
        "subscribe": f"{two},{one}",
        "subscribePattern": f"{two[:-2]}.*|{one}",
    }
    if option == "assign":
        del rows[two, 0]
    assert spark.read({option: choices[option]}) == sorted(row for some in rows.values() for row in some)


class Range(NamedTuple):
    """Options of a batch over a topic of two partitions of ten records, and the offsets that they choose."""

    options: dict[str, str | tuple[int, int]]
    first: range = range(10)
    second: range = range(10)

    def options_of(self, topic: str) -> Options:
        """Pairs are one value for each partition."""
        given = self.options.items()
        return {name: value if isinstance(value, str) else of_partitions(topic, *value) for name, value in given}


T3, T5, T8 = (timestamp_of(offset) for offset in (3, 5, 8))
RANGES = {
    "defaults": Range({}),
    "names": Range({"startingOffsets": "earliest", "endingOffsets": "latest"}),
    "offsets": Range({"startingOffsets": (3, -2), "endingOffsets": (5, -1)}, range(3, 5)),
    "timestamp": Range({"startingTimestamp": str(T3)}, range(3, 10), range(3, 10)),
    "between timestamps": Range({"startingOffsetsByTimestamp": (T3 - 1, T3 + 1)}, range(3, 10), range(4, 10)),
    "until timestamp": Range({"endingTimestamp": str(T5)}, range(5), range(5)),
    "until timestamps": Range({"endingOffsetsByTimestamp": (T5, T8 + 1)}, range(5), range(9)),
    "until no such timestamp": Range({"endingTimestamp": PAST_THE_END}),
    "from timestamps past the end": Range(
        {"startingOffsetsByTimestamp": (T8, int(PAST_THE_END)), "startingOffsetsByTimestampStrategy": "latest"},
        range(8, 10),
        range(0),
    ),
    "preferences of the start": Range(
        {"startingTimestamp": str(T8), "startingOffsetsByTimestamp": (T3, T3), "startingOffsets": (0, 0)},
        range(8, 10),
        range(8, 10),
    ),
    "preferences of the end": Range(
        {"endingTimestamp": str(T3), "endingOffsetsByTimestamp": (T8, T8), "endingOffsets": (5, 5)}, range(3), range(3)
    ),
}


@pytest.mark.usefixtures("offset_fetching")
@pytest.mark.parametrize("case", RANGES.values(), ids=RANGES)
def test_a_batch_reads_the_chosen_offsets(
    case: Range, spark: SparkOnKafka, python: Client, make_topic: MakeTopic
) -> None:
    topic = make_topic(2)
    fill(python, topic, range(10))
    fill(python, topic, range(10), 1)
    rows = spark.read({"subscribe": topic, **case.options_of(topic)})
    assert rows == expected(topic, 0, case.first) + expected(topic, 1, case.second)


@pytest.mark.usefixtures("offset_fetching")
def test_a_start_past_the_end_is_an_error_by_default(spark: SparkOnKafka, python: Client, fresh_topic: str) -> None:
    fill(python, fresh_topic, range(3))
    with pytest.raises(Exception, match="No offset matched"):
        spark.read({"subscribe": fresh_topic, "startingTimestamp": PAST_THE_END})


STREAM_STARTS: dict[str, tuple[dict[str, str], int]] = {
    "default": ({}, 10),
    "latest": ({"startingOffsets": "latest"}, 10),
    "earliest": ({"startingOffsets": "earliest"}, 0),
    "timestamp": ({"startingTimestamp": str(T8)}, 8),
    "past the end": ({"startingTimestamp": PAST_THE_END, "startingOffsetsByTimestampStrategy": "latest"}, 10),
}


@pytest.mark.usefixtures("offset_fetching")
@pytest.mark.parametrize(("start", "first"), STREAM_STARTS.values(), ids=STREAM_STARTS)
def test_a_stream_starts_where_it_is_told_and_goes_on_from_its_checkpoint(
    start: Options, first: int, spark: SparkOnKafka, python: Client, fresh_topic: str, tmp_path: Path
) -> None:
    fill(python, fresh_topic, range(10))
    options = {"subscribe": fresh_topic, **start}
    assert joined(spark.read_available(options, tmp_path)) == expected(fresh_topic, 0, range(first, 10))
    fill(python, fresh_topic, range(10, 13))
    assert spark.read_available(options, tmp_path) == [expected(fresh_topic, 0, range(10, 13))]


@pytest.mark.usefixtures("offset_fetching")
def test_new_partitions_and_topics_are_read_from_their_beginning(
    spark: SparkOnKafka, python: Client, topic_admin: Admin, broker: BrokerUnderTest, name: str, tmp_path: Path
) -> None:
    first, second = f"{name}-1", f"{name}-2"
    create_topic(broker.bootstrap, first)
    fill(python, first, range(2))
    # A consumer looks for new ones when its metadata is old, which is five minutes by default.
    quick = {"kafka.metadata.max.age.ms": "500"}
    with spark.stream({"subscribePattern": f"{name}.*", "startingOffsets": "earliest", **quick}, tmp_path) as stream:
        stream.wait_for_batches(1)
        assert topic_admin.create_partitions(first, 2) == 0
        create_topic(broker.bootstrap, second)
        wait_until(lambda: topic_admin.topics()[first] == 2, "the second partition")
        fill(python, first, range(3), 1)
        fill(python, second, range(4))
        wanted = [*expected(first, 0, range(2)), *expected(first, 1, range(3)), *expected(second, 0, range(4))]

        def all_there() -> bool:
            return sum(map(len, stream.batches)) >= len(wanted) or not stream.query.isActive

        wait_until(all_there, "the new ones", PATIENCE_S)
    assert joined(stream.batches) == wanted
    for topic in (first, second):
        topic_admin.delete_topic(topic)


def test_headers_are_included_where_asked_for(spark: SparkOnKafka, python: Client, fresh_topic: str) -> None:
    producer = python.producer()
    headers = (("a", b"1"), ("a", b"2"), ("b", b""))
    for some in (headers, ()):
        producer.send(fresh_topic, b"v", headers=some)
    assert {delivery.error for delivery in producer.flush()} == {0}
    frame = spark.frame({"subscribe": fresh_topic, "includeHeaders": "true"})
    rows = frame.orderBy("offset").select("headers").collect()
    found = [None if row.headers is None else tuple((h.key, plain(h.value)) for h in row.headers) for row in rows]
    assert found == [headers, None]
    assert "headers" not in spark.frame({"subscribe": fresh_topic}).columns


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_transactions_are_seen_as_the_isolation_level_has_it(
    isolation: str, spark: SparkOnKafka, python: Client, fresh_topic: str, tmp_path: Path
) -> None:
    producer = python.producer(ProducerOptions(transactional_id=fresh_topic))
    for end in (producer.commit, producer.abort, producer.commit):
        assert producer.begin() == 0
        for number in range(3):
            producer.send(fresh_topic, b"%d" % number, partition=0)
        producer.flush()
        assert end() == 0
    assert producer.begin() == 0
    producer.send(fresh_topic, b"open", partition=0)
    producer.flush()
    # Each transaction is three records and a marker.
    offsets = [0, 1, 2, 8, 9, 10] if isolation == "read_committed" else [0, 1, 2, 4, 5, 6, 8, 9, 10, 12]
    options = {"subscribe": fresh_topic, "startingOffsets": "earliest", "kafka.isolation.level": isolation}
    assert [row.offset for row in spark.read(options)] == offsets
    assert [row.offset for row in joined(spark.read_available(options, tmp_path))] == offsets
    assert producer.commit() == 0


# ---------------------------------------------------------------------- the source: what is lost


def test_records_deleted_before_a_batch_fail_it_or_are_passed_over(
    spark: SparkOnKafka, python: Client, topic_admin: Admin, fresh_topic: str
) -> None:
    fill(python, fresh_topic, range(10))
    assert topic_admin.delete_records((fresh_topic, 0), 6) == 6
    options = {"subscribe": fresh_topic, "startingOffsets": of_partitions(fresh_topic, 2)}
    with pytest.raises(Exception, match=DATA_LOSS):
        spark.read({**options, "failOnDataLoss": "true"})
    assert spark.read({**options, "failOnDataLoss": "false"}) == expected(fresh_topic, 0, range(6, 10))


def test_records_deleted_behind_a_checkpoint_fail_the_stream_or_are_passed_over(
    spark: SparkOnKafka, python: Client, topic_admin: Admin, fresh_topic: str, tmp_path: Path
) -> None:
    fill(python, fresh_topic, range(3))
    options = {"subscribe": fresh_topic, "startingOffsets": "earliest"}
    assert spark.read_available(options, tmp_path) == [expected(fresh_topic, 0, range(3))]
    fill(python, fresh_topic, range(3, 10))
    assert topic_admin.delete_records((fresh_topic, 0), 6) == 6
    with pytest.raises(Exception, match=DATA_LOSS):
        spark.read_available(options, tmp_path)
    passed_over = spark.read_available({**options, "failOnDataLoss": "false"}, tmp_path)
    assert passed_over == [expected(fresh_topic, 0, range(6, 10))]


@pytest.mark.usefixtures("offset_fetching")
def test_a_topic_made_anew_fails_the_stream_or_is_read_on(
    spark: SparkOnKafka, python: Client, topic_admin: Admin, broker: BrokerUnderTest, name: str, tmp_path: Path
) -> None:
    create_topic(broker.bootstrap, name)
    fill(python, name, range(5))
    options = {"subscribe": name, "startingOffsets": "earliest", "fetchOffset.numRetries": "1"}
    assert spark.read_available(options, tmp_path) == [expected(name, 0, range(5))]
    assert topic_admin.delete_topic(name) == 0
    wait_until(lambda: name not in topic_admin.topics(), "the deletion")
    create_topic(broker.bootstrap, name)
    fill(python, name, range(3))
    with pytest.raises(Exception, match="offset was changed from 5 to 3"):
        spark.read_available(options, tmp_path)
    tolerant = {**options, "failOnDataLoss": "false"}
    assert joined(spark.read_available(tolerant, tmp_path)) == []
    fill(python, name, range(3, 5))
    assert spark.read_available(tolerant, tmp_path) == [expected(name, 0, range(3, 5))]
    topic_admin.delete_topic(name)


# ---------------------------------------------------------------------- the source: how it is read


def test_micro_batches_are_no_larger_than_max_offsets_per_trigger(
    spark: SparkOnKafka, python: Client, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(2)
    fill(python, topic, range(10))
    fill(python, topic, range(5), 1)
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "6"}
    batches = spark.read_available(options, tmp_path)
    assert batches[0] == expected(topic, 0, range(4)) + expected(topic, 1, range(2)), "not in proportion"
    assert max(map(len, batches)) <= 6
    assert joined(batches) == expected(topic, 0, range(10)) + expected(topic, 1, range(5))


def test_a_trigger_waits_for_min_offsets(spark: SparkOnKafka, python: Client, fresh_topic: str, tmp_path: Path) -> None:
    """The first trigger does not: no other was before it."""
    options = {"subscribe": fresh_topic, "startingOffsets": "earliest"}
    fill(python, fresh_topic, range(1))
    with spark.stream({**options, "minOffsetsPerTrigger": "10", "maxTriggerDelay": "1h"}, tmp_path) as stream:
        stream.wait_for_batches(1)
        fill(python, fresh_topic, range(1, 5))
        stream.query.processAllAvailable()
        fill(python, fresh_topic, range(5, 11))
        stream.wait_for_batches(2)
    assert stream.batches == [expected(fresh_topic, 0, range(1)), expected(fresh_topic, 0, range(1, 11))]


def test_a_trigger_waits_no_longer_than_max_trigger_delay(
    spark: SparkOnKafka, python: Client, fresh_topic: str, tmp_path: Path
) -> None:
    options = {"subscribe": fresh_topic, "startingOffsets": "earliest"}
    fill(python, fresh_topic, range(1))
    begun = time.monotonic()
    with spark.stream({**options, "minOffsetsPerTrigger": "1000", "maxTriggerDelay": "3s"}, tmp_path) as stream:
        stream.wait_for_batches(1)
        fill(python, fresh_topic, range(1, 4))
        stream.wait_for_batches(2)
        assert time.monotonic() - begun >= 3
    assert stream.batches == [expected(fresh_topic, 0, range(1)), expected(fresh_topic, 0, range(1, 4))]


@pytest.mark.parametrize(
    ("option", "sizes"), [({"minPartitions": "4"}, [5, 5, 5, 5]), ({"maxRecordsPerPartition": "4"}, [3, 3, 3, 3, 4, 4])]
)
def test_large_partitions_are_read_by_several_tasks(
    option: Options, sizes: list[int], spark: SparkOnKafka, python: Client, make_topic: MakeTopic
) -> None:
    topic = make_topic(2)
    for partition in range(2):
        fill(python, topic, range(10), partition)
    # Of a batch, the connector counts the records only where it is told both ends.
    ends = {"startingOffsets": of_partitions(topic, 0, 0), "endingOffsets": of_partitions(topic, 10, 10)}
    frame = spark.frame({"subscribe": topic, **ends, **option})
    tasks: dict[int, list[tuple[int, int]]] = {}
    for task, partition, offset in frame.selectExpr("spark_partition_id()", "partition", "offset").collect():
        tasks.setdefault(task, []).append((partition, offset))
    assert sorted(map(len, tasks.values())) == sizes
    assert joined(tasks.values()) == [(partition, offset) for partition in range(2) for offset in range(10)]
    assert all(
        offsets == list(range(offsets[0], offsets[0] + len(offsets))) for offsets in map(offsets_of, tasks.values())
    )


def offsets_of(places: list[tuple[int, int]]) -> list[int]:
    """The offsets of places in one partition."""
    assert len({partition for partition, _ in places}) == 1
    return [offset for _, offset in places]


@pytest.mark.parametrize("option", ["groupIdPrefix", "kafka.group.id"])
def test_the_group_of_the_source_is_named_as_told(
    option: str,
    offset_fetching: str,
    spark: SparkOnKafka,
    python: Client,
    topic_admin: Admin,
    fresh_topic: str,
    tmp_path: Path,
) -> None:
    """Only a driver that learns of offsets by a consumer is a member of the group; nobody commits."""
    fill(python, fresh_topic, range(3))
    group = f"{fresh_topic}-group"
    with spark.stream({"subscribe": fresh_topic, "startingOffsets": "earliest", option: group}, tmp_path) as stream:
        stream.wait_for_batches(1)
        groups = {found for found in topic_admin.groups() if found.startswith(group)}
        if offset_fetching == "admin":
            assert groups == set()
        else:
            assert groups == {group} if option == "kafka.group.id" else group not in groups
            members = [(found, topic_admin.describe_group(found)) for found in groups]
            (driver,) = [found for found, described in members if described == ("Stable", 1)]
            assert topic_admin.group_offsets(driver) == {}
    assert stream.batches == [expected(fresh_topic, 0, range(3))]


def test_a_poll_in_vain_ends_after_its_timeout(spark: SparkOnKafka, python: Client, fresh_topic: str) -> None:
    fill(python, fresh_topic, range(3))
    with pytest.raises(Exception, match=r"(?i)in 0 milliseconds"):
        spark.read({"subscribe": fresh_topic, "kafkaConsumer.pollTimeoutMs": "0"})
    rows = spark.read({"subscribe": fresh_topic, "kafkaConsumer.pollTimeoutMs": "60000"})
    assert rows == expected(fresh_topic, 0, range(3))


@pytest.mark.parametrize("retries", [1, 20])
def test_offsets_are_asked_for_again_as_often_as_told(
    retries: int,
    spark: SparkOnKafka,
    broker: BrokerUnderTest,
    python: Client,
    fresh_topic: str,
    tmp_path: Path,
) -> None:
    """The broker is behind a relay that refuses the first connection; each attempt is one connection.

    It is made at some time of the attempt, so that two of them are at least the interval apart.
    """
    fill(python, fresh_topic, range(3))
    options = {
        "subscribe": fresh_topic,
        "startingOffsets": "earliest",
        "fetchOffset.numRetries": str(retries),
        "fetchOffset.retryIntervalMs": "2500",
        "kafka.request.timeout.ms": "1500",
        "kafka.default.api.timeout.ms": "1500",
        "kafka.reconnect.backoff.ms": "60000",
        "kafka.reconnect.backoff.max.ms": "60000",
    }
    with Relay((broker.host, broker.port), refusals=1) as relay:
        options["kafka.bootstrap.servers"] = relay.bootstrap
        if retries == 1:
            with pytest.raises(Exception, match=r"(?i)timed out|timeout"):
                spark.read_available(options, tmp_path)
            assert len(relay.connected_s) == 1
        else:
            assert spark.read_available(options, tmp_path) == [expected(fresh_topic, 0, range(3))]
            assert relay.connected_s[1] - relay.connected_s[0] >= 2.5


def test_more_partitions_than_the_pool_has_consumers_are_read(
    spark: SparkOnKafka, python: Client, make_topic: MakeTopic
) -> None:
    """The capacity is a soft one; what is idle is dropped as told."""
    partitions = CONSUMERS_MAX + 1
    source, sink = make_topic(partitions), make_topic()
    for partition in range(partitions):
        fill(python, source, range(3), partition)
    spark.write(spark.frame({"subscribe": source}).select("value"), {"topic": sink})
    pool = spark.consumer_pool()
    told = [pool.getMinEvictableIdleTimeMillis(), pool.getTimeBetweenEvictionRunsMillis()]
    assert told == [POOL_IDLE_MS, EVICTION_INTERVAL_MS]
    assert len(spark.read({"subscribe": sink})) == 3 * partitions


# ---------------------------------------------------------------------- the sink

HEADERS = [("h", b"1"), ("h", b"2")]
SCHEMA = "key binary, value binary, headers array<struct<key: string, value: binary>>, topic string, partition int"
Sent = tuple[Any, ...]


def written(python: Client, topic: str, partitions: int, count: int) -> list[Sent]:
    """All records of a topic, as (partition, key, value, headers)."""
    consumer = python.consumer(ConsumerOptions())
    consumer.assign([(topic, partition) for partition in range(partitions)])
    records = read(consumer, count)
    assert sum(consumer.beginning_and_end((topic, partition))[1] for partition in range(partitions)) == count
    return sorted((record.partition, record.key, record.value, record.headers) for record in records)


def test_a_batch_writes_keys_values_headers_topics_and_partitions(
    spark: SparkOnKafka, python: Client, make_topic: MakeTopic
) -> None:
    one, two = make_topic(), make_topic(2)
    rows = [
        (b"k", b"v", HEADERS, one, None),
        (b"\xff", None, [], one, 0),
        (b"", b"\x00", [("e", b"")], two, 1),
        (b"k", b"w", None, two, 0),
    ]
    spark.write(spark.session.createDataFrame(rows, SCHEMA), {"includeHeaders": "true"})
    assert written(python, one, 1, 2) == [(0, b"k", b"v", tuple(HEADERS)), (0, b"\xff", None, ())]
    assert written(python, two, 2, 2) == [(0, b"k", b"w", ()), (1, b"", b"\x00", (("e", b""),))]


def test_the_topic_option_is_stronger_than_the_column(
    spark: SparkOnKafka, python: Client, make_topic: MakeTopic
) -> None:
    column, option = make_topic(), make_topic()
    frame = spark.session.createDataFrame([("v", column), ("w", column)], "value string, topic string")
    spark.write(frame, {"topic": option})
    assert [value for _, _, value, _ in written(python, option, 1, 2)] == [b"v", b"w"]
    assert spark.read({"subscribe": column}) == []


def test_a_value_alone_has_no_key_and_a_topic_must_be_named(
    spark: SparkOnKafka, python: Client, fresh_topic: str
) -> None:
    frame = spark.session.createDataFrame([("ü",)], "value string")
    spark.write(frame, {"topic": fresh_topic})
    assert written(python, fresh_topic, 1, 1) == [(0, None, "ü".encode(), ())]
    with pytest.raises(Exception, match=r"(?i)topic"):
        spark.write(frame, {})


def test_the_partitioner_is_kafkas_or_the_one_named(spark: SparkOnKafka, python: Client, make_topic: MakeTopic) -> None:
    by_key, in_turn = make_topic(3), make_topic(3)
    frame = spark.session.createDataFrame([("key", f"v{number}") for number in range(30)], "key string, value string")
    spark.write(frame, {"topic": by_key})
    partitioner = {"kafka.partitioner.class": "org.apache.kafka.clients.producer.RoundRobinPartitioner"}
    spark.write(frame, {"topic": in_turn, **partitioner})
    chosen = [{sent[0] for sent in written(python, topic, 3, 30)} for topic in (by_key, in_turn)]
    assert len(chosen[0]) == 1
    assert len(chosen[1]) > 1


@pytest.mark.parametrize("by", ["option", "column"])
def test_a_stream_writes_each_record_once_across_a_restart(
    by: str, spark: SparkOnKafka, python: Client, make_topic: MakeTopic, tmp_path: Path
) -> None:
    source, sink = make_topic(2), make_topic(2)
    options = {"subscribe": source, "startingOffsets": "earliest", "includeHeaders": "true"}
    columns = ["key", "value", "headers", "1 - partition AS partition"]
    where = {"topic": sink} if by == "option" else {}
    if by == "column":
        columns.append(f"'{sink}' AS topic")
    producer = python.producer()
    for part in (range(5), range(5, 12)):
        for number in part:
            producer.send(source, b"%d" % number, key=b"k", headers=tuple(HEADERS), partition=number % 2)
        assert {delivery.error for delivery in producer.flush()} == {0}
        spark.write_available(options, {**where, "includeHeaders": "true"}, columns, tmp_path)
    expected_records = [(1 - number % 2, b"k", b"%d" % number, tuple(HEADERS)) for number in range(12)]
    assert written(python, sink, 2, 12) == sorted(expected_records)
