"""Produce and InitProducerId: sound batches, broken ones, and idempotence."""

from __future__ import annotations

from typing import Any

from harness.batches import (
    BASE_TIMESTAMP_MS,
    CONTROL_FLAG,
    GZIP,
    LOG_APPEND_TIME_FLAG,
    LZ4,
    SNAPPY,
    TRANSACTIONAL_FLAG,
    ZSTD,
    Batch,
    Record,
    batch,
    end_marker,
    legacy_message_set,
)

from comparator.broker import Broker
from comparator.lying_records import CODECS, lying_batches
from comparator.registry import scenario
from comparator.scenarios.transactions import prepare

UNKNOWN_ID = b"\x01" * 16
TIMEOUT_MS = 10_000
DAY_MS = 86_400_000


def produce(broker: Broker, version: int, note: str, topic: str, records: bytes | None, **more: Any) -> Any:
    """Produce to one partition; ``topic_id``, ``partition`` and ``acks`` may be given."""
    partitions = [{"index": more.pop("partition", 0), "records": records}]
    data = [{"name": topic, "topic_id": more.pop("topic_id", bytes(16)), "partition_data": partitions}]
    fields = {"acks": -1, "timeout_ms": TIMEOUT_MS, "topic_data": data, **more}
    return broker.call("Produce", version, note, **fields)


def fetch_everything(broker: Broker, topic: str, note: str = "what the log holds") -> None:
    partitions = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]
    topics = [{"topic": topic, "partitions": partitions}]
    broker.call("Fetch", 11, note, max_wait_ms=0, min_bytes=1, topics=topics)


def idempotent_producer(broker: Broker) -> tuple[int, int]:
    """A fresh producer id and its epoch; the first block of ids takes the broker a moment to get."""
    reply: dict[str, Any] = {}

    def has_one() -> bool:
        reply.update(broker.quietly("InitProducerId", 4, transactional_id=None, transaction_timeout_ms=60_000))
        return bool(reply["error_code"] == 0)

    broker.wait_until(has_one, "a producer id")
    return reply["producer_id"], reply["producer_epoch"]


@scenario
def every_version_and_acks(broker: Broker) -> None:
    topic_id = broker.prepare_topic("produce")
    for version in broker.versions("Produce"):
        for acks in (1, -1):
            produce(broker, version, f"acks {acks}", "produce", batch(b"one", b"two"), acks=acks, topic_id=topic_id)
    fetch_everything(broker, "produce")


@scenario
def acks_0_is_not_answered(broker: Broker) -> None:
    broker.prepare_topic("silent")

    def send(topic: str, records: bytes) -> None:
        data = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
        broker.begin("Produce", 9, acks=0, timeout_ms=TIMEOUT_MS, topic_data=data)

    send("silent", batch(b"silent"))
    broker.check_alive("the next reply is the next request's")
    fetch_everything(broker, "silent")
    send("silent-missing", batch(b"lost"))
    broker.check_alive("after an error the connection is closed")


@scenario
def acks_0_in_every_version(broker: Broker) -> None:
    topic_id = broker.prepare_topic("silent-versions")
    for version in broker.versions("Produce"):
        for note, records in (("sound", batch(b"silent")), ("bad crc", Batch(crc=1).encode())):
            partitions = [{"index": 0, "records": records}]
            data = [{"name": "silent-versions", "topic_id": topic_id, "partition_data": partitions}]
            broker.call_unanswered("Produce", version, note, acks=0, timeout_ms=TIMEOUT_MS, topic_data=data)
    fetch_everything(broker, "silent-versions")


@scenario
def one_partition_twice(broker: Broker) -> None:
    for version in broker.versions("Produce"):
        # A topic for each, for one broker appends more than the other.
        topic_id = broker.prepare_topic(f"twice-v{version}")
        partitions = [{"index": 0, "records": batch(value)} for value in (b"first", b"second")]
        topic = {"name": f"twice-v{version}", "topic_id": topic_id, "partition_data": partitions}
        broker.call("Produce", version, "in one topic", acks=-1, timeout_ms=TIMEOUT_MS, topic_data=[topic])
    fetch_everything(broker, "twice-v3")


@scenario
def null_records_are_not_answered(broker: Broker) -> None:
    broker.prepare_topic("null-records")
    data = [{"name": "null-records", "partition_data": [{"index": 0, "records": None}]}]
    broker.call_in_vain("Produce", 9, "null records", acks=-1, timeout_ms=TIMEOUT_MS, topic_data=data)


@scenario
def acks_that_do_not_exist(broker: Broker) -> None:
    topic_id = broker.prepare_topic("produce-acks")
    for acks in (2, -2, 100):
        for version in (3, 8, 13):
            produce(broker, version, f"acks {acks}", "produce-acks", batch(), acks=acks, topic_id=topic_id)


@scenario
def topics_and_partitions_that_are_not_there(broker: Broker) -> None:
    topic_id = broker.prepare_topic("produce-there")
    for version in (3, 7, 9, 12):
        produce(broker, version, "unknown topic", "produce-missing", batch())
        produce(broker, version, "invalid name", "no good", batch())
        produce(broker, version, "unknown partition", "produce-there", batch(), partition=9)
        produce(broker, version, "negative partition", "produce-there", batch(), partition=-1)
    produce(broker, 13, "unknown id", "", batch(), topic_id=UNKNOWN_ID)
    produce(broker, 13, "zero id", "", batch())
    produce(broker, 13, "unknown partition of an id", "", batch(), topic_id=topic_id, partition=9)
    broker.call("Produce", 9, "nothing", acks=-1, timeout_ms=TIMEOUT_MS, topic_data=[])


@scenario
def several_partitions_answer_one_by_one(broker: Broker) -> None:
    broker.prepare_topic("produce-many", partitions=3)
    partitions = [
        {"index": 0, "records": batch(b"good")},
        {"index": 1, "records": Batch(crc=1).encode()},
        {"index": 2, "records": batch(b"good")},
        {"index": 7, "records": batch(b"nowhere")},
    ]
    data = [
        {"name": "produce-many", "partition_data": partitions},
        {"name": "produce-none", "partition_data": [{"index": 0, "records": batch()}]},
    ]
    for version in (3, 9, 12):
        broker.call("Produce", version, "mixed", acks=-1, timeout_ms=TIMEOUT_MS, topic_data=data)


@scenario
def broken_batches(broker: Broker) -> None:
    sound = batch(b"one", b"two", b"three")
    # Null records are left out: Apache Kafka never answers them.
    broken = {
        "bad crc": Batch(crc=12345).encode(),
        "magic 0": legacy_message_set(0),
        "magic 1": legacy_message_set(1),
        "magic 3": Batch(magic=3).encode(),
        "magic -1": Batch(magic=-1).encode(),
        "no records": b"",
        "half a header": sound[:30],
        "cut short": sound[:-3],
        "trailing bytes": sound + b"\0\0\0",
        "two batches": sound + batch(b"four"),
        "length too small": Batch(batch_length=10).encode(),
        "length negative": Batch(batch_length=-1).encode(),
        "length beyond the end": Batch(batch_length=5000).encode(),
        "count 0": Batch(record_count=0).encode(),
        "count negative": Batch(record_count=-1).encode(),
        "count too high": Batch(record_count=5).encode(),
        "count too high, delta too": Batch(record_count=5, last_offset_delta=4).encode(),
        "count too low": Batch(records=[Record()] * 3, record_count=1, last_offset_delta=0).encode(),
        "last delta too high": Batch(last_offset_delta=7).encode(),
        "last delta negative": Batch(last_offset_delta=-1).encode(),
        "no records in the batch": Batch(records=[], last_offset_delta=-1).encode(),
        "base offset 42": Batch(base_offset=42).encode(),
        "leader epoch 7": Batch(partition_leader_epoch=7).encode(),
        "control flag": Batch(flags=CONTROL_FLAG).encode(),
        "control batch": end_marker(1, 0),
        "transactional flag": Batch(flags=TRANSACTIONAL_FLAG).encode(),
        "log append time flag": Batch(flags=LOG_APPEND_TIME_FLAG).encode(),
        "unknown codec": Batch(flags=5).encode(),
        "unused attribute bits": Batch(flags=0x80).encode(),
    }
    for number, (note, records) in enumerate(broken.items()):
        # A topic for each, so that one batch that is let in does not move the offsets of all others.
        topic = f"broken-{number}"
        topic_id = broker.prepare_topic(topic)
        for version in (3, 9, 13):
            produce(broker, version, note, topic, records, topic_id=topic_id)
        fetch_everything(broker, topic, note)


@scenario
def every_codec(broker: Broker) -> None:
    broker.prepare_topic("codecs")
    records = [Record(key=b"k", value=b"compressible " * 20, headers=[("h", b"v"), ("none", None)])] * 5
    for codec in (GZIP, SNAPPY, LZ4, ZSTD):
        for version in (3, 6, 7, 9):
            produce(broker, version, f"codec {codec}", "codecs", Batch(records=records, codec=codec).encode())
    fetch_everything(broker, "codecs")


@scenario
def compressed_bytes_that_are_not(broker: Broker) -> None:
    broker.prepare_topic("codecs-broken")
    for codec in (GZIP, SNAPPY, LZ4, ZSTD):
        claimed = Batch(flags=codec).encode()
        produce(broker, 9, f"codec {codec} claimed only", "codecs-broken", claimed)


@scenario
def records_that_lie(broker: Broker) -> None:
    """In topics that are compacted: there both brokers look at every record."""
    for codec, number in {"none": 0, **CODECS}.items():
        for i, (lie, records) in enumerate(lying_batches(number).items()):
            broker.prepare_topic(f"lies-{codec}-{i}", cleanup_policy="compact")
            produce(broker, 9, f"{codec}: {lie}", f"lies-{codec}-{i}", records)


@scenario
def batches_of_every_size(broker: Broker) -> None:
    broker.prepare_topic("sizes", max_message_bytes="1000")
    produce(broker, 9, "small", "sizes", batch(b"x" * 500))
    produce(broker, 9, "just below", "sizes", batch(b"x" * 928))
    produce(broker, 9, "just above", "sizes", batch(b"x" * 1000))
    produce(broker, 9, "far above", "sizes", batch(b"x" * 100_000))
    broker.prepare_topic("sizes-default")
    produce(broker, 9, "the default limit", "sizes-default", batch(b"x" * 1_048_588))
    produce(broker, 9, "below the default limit", "sizes-default", batch(b"x" * 1_040_000))


@scenario
def compacted_topics_want_keys(broker: Broker) -> None:
    broker.prepare_topic("compacted", cleanup_policy="compact")
    for version in (3, 7, 8, 12):
        produce(broker, version, "keyed", "compacted", batch(b"v", key=b"k"))
        produce(broker, version, "keyless", "compacted", batch(b"v"))
        some = Batch(records=[Record(key=b"k"), Record(), Record(key=b"l"), Record()]).encode()
        produce(broker, version, "some keyless", "compacted", some)
        produce(broker, version, "tombstone", "compacted", batch(None, key=b"k"))
        keyless = Batch(records=[Record(key=b"k"), Record()], codec=GZIP).encode()
        produce(broker, version, "some keyless, compressed", "compacted", keyless)
        produce(broker, version, "empty key", "compacted", batch(b"v", key=b""))


@scenario
def log_append_time(broker: Broker) -> None:
    broker.prepare_topic("append-time", message_timestamp_type="LogAppendTime")
    for version in (3, 9):
        produce(broker, version, "create time is replaced", "append-time", batch(b"a", b"b"))
        compressed = Batch(records=[Record(), Record(timestamp_delta_ms=5)], codec=GZIP).encode()
        produce(broker, version, "compressed", "append-time", compressed)
    fetch_everything(broker, "append-time")


@scenario
def timestamps_out_of_range(broker: Broker) -> None:
    # A bound on the past in milliseconds that the records' fixed time is just outside or inside of, for years to come.
    broker.prepare_topic("time-before", message_timestamp_before_max_ms="1000")
    broker.prepare_topic("time-after", message_timestamp_after_max_ms="1000")
    broker.prepare_topic("time-default")
    future = BASE_TIMESTAMP_MS + 20_000 * DAY_MS
    for version in (3, 8, 12):
        produce(broker, version, "too old", "time-before", batch())
        produce(broker, version, "too old, several", "time-before", batch(b"1", b"2", b"3"))
        produce(broker, version, "old is fine", "time-after", batch())
        produce(broker, version, "too new", "time-after", batch(base_timestamp_ms=future))
        produce(broker, version, "too new by default", "time-default", batch(base_timestamp_ms=future))
        produce(broker, version, "no timestamp", "time-default", batch(base_timestamp_ms=-1))
        produce(broker, version, "negative timestamp", "time-default", batch(base_timestamp_ms=-5))
    lying = Batch(max_timestamp_ms=BASE_TIMESTAMP_MS + 5).encode()
    produce(broker, 9, "a maximum that is not the records'", "time-default", lying)
    fetch_everything(broker, "time-default")


@scenario
def brokers_that_compress(broker: Broker) -> None:
    for codec in ("gzip", "uncompressed"):
        topic = f"recompressed-{codec}"
        broker.prepare_topic(topic, compression_type=codec)
        produce(broker, 9, f"plain to {codec}", topic, batch(b"a" * 100, b"b" * 100))
        produce(broker, 9, f"gzip to {codec}", topic, Batch(records=[Record(value=b"a" * 100)], codec=GZIP).encode())


@scenario
def an_idempotent_producer(broker: Broker) -> None:
    broker.prepare_topic("idempotent")
    producer_id, epoch = idempotent_producer(broker)

    def send(note: str, sequence: int, *values: bytes, epoch: int = epoch, version: int = 9) -> None:
        records = batch(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        produce(broker, version, note, "idempotent", records)

    send("first", 0, b"0")
    for sequence in range(1, 7):
        send(f"sequence {sequence}", sequence, b"n")
    for sequence in (6, 4, 2):
        send(f"duplicate of {sequence}", sequence, b"n")
    for sequence in (1, 0):
        send(f"older than the five remembered: {sequence}", sequence, b"n")
    send("gap", 9, b"n")
    send("next after the gap", 7, b"n")
    send("overlap", 7, b"a", b"b")
    send("three at once", 8, b"a", b"b", b"c")
    send("the middle of the three", 9, b"b")
    send("higher epoch, not from zero", 5, b"n", epoch=epoch + 1)
    send("higher epoch from zero", 0, b"n", epoch=epoch + 1)
    send("the old epoch", 11, b"n")
    send("the old epoch, version 3", 11, b"n", version=3)
    send("negative sequence", -1, b"n", epoch=epoch + 1)
    send("negative epoch", 1, b"n", epoch=-1)
    fetch_everything(broker, "idempotent")


@scenario
def producers_nobody_has_met(broker: Broker) -> None:
    topic_id = broker.prepare_topic("strangers")
    for version in (3, 9, 13):
        stranger = batch(producer_id=987654 + version, producer_epoch=0, base_sequence=0)
        produce(broker, version, "unknown producer from zero", "strangers", stranger, topic_id=topic_id)
        late = batch(producer_id=887654 + version, producer_epoch=3, base_sequence=17)
        produce(broker, version, "unknown producer in the middle", "strangers", late, topic_id=topic_id)
        wild = batch(producer_id=-5, producer_epoch=0, base_sequence=0)
        produce(broker, version, "negative producer", "strangers", wild, topic_id=topic_id)
        broken = Batch(producer_id=787654, producer_epoch=0, base_sequence=-1).encode()
        produce(broker, version, "producer without sequence", "strangers", broken, topic_id=topic_id)


@scenario
def sequences_wrap_around(broker: Broker) -> None:
    broker.prepare_topic("wraps")
    last = 2**31 - 1
    first = batch(producer_id=4242, producer_epoch=0, base_sequence=last)
    produce(broker, 9, "the highest sequence", "wraps", first)
    produce(broker, 9, "wraps to zero", "wraps", batch(producer_id=4242, producer_epoch=0, base_sequence=0))
    produce(broker, 9, "duplicate of the highest", "wraps", first)
    across = batch(b"1", b"2", b"3", producer_id=4243, producer_epoch=0, base_sequence=last - 1)
    produce(broker, 9, "wraps within a batch", "wraps", across)
    produce(broker, 9, "and goes on", "wraps", batch(producer_id=4243, producer_epoch=0, base_sequence=1))


@scenario
def init_producer_id(broker: Broker) -> None:
    idempotent_producer(broker)
    for version in broker.versions("InitProducerId"):
        fields: dict[str, Any] = {"transactional_id": None}
        broker.call("InitProducerId", version, "new", transaction_timeout_ms=60_000, **fields)
        broker.call("InitProducerId", version, "no timeout", transaction_timeout_ms=0, **fields)
        broker.call("InitProducerId", version, "negative timeout", transaction_timeout_ms=-1, **fields)
        broker.call(
            "InitProducerId", version, "empty transactional id", transactional_id="", transaction_timeout_ms=1000
        )
        if version >= 3:
            known = {"producer_id": 12, "producer_epoch": 3, **fields}
            broker.call("InitProducerId", version, "known producer", transaction_timeout_ms=60_000, **known)
            half = {"producer_id": 12, "producer_epoch": -1, **fields}
            broker.call("InitProducerId", version, "producer without epoch", transaction_timeout_ms=60_000, **half)


@scenario
def transactions(broker: Broker) -> None:
    prepare(broker, "tx")
    broker.prepare_topic("transactional")
    records = Batch(flags=TRANSACTIONAL_FLAG, producer_id=5, producer_epoch=0, base_sequence=0).encode()
    for version in (9, 11, 12):
        produce(broker, version, "without having begun", "transactional", records, transactional_id="tx")


@scenario
def a_long_run_of_small_requests(broker: Broker) -> None:
    """What a broker may have learned from many requests that were alike must not outlive what made them alike."""
    topic_id = broker.prepare_topic("long-run")
    producer_id, epoch = idempotent_producer(broker)

    def send(note: str, sequence: int, version: int = 13, value: bytes = b"v", **header: int) -> None:
        producer = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
        records = Batch(records=[Record(value=value)], **producer, **header).encode()
        produce(broker, version, note, "long-run", records, topic_id=topic_id)

    for sequence in range(150):
        send("in sequence", sequence)
    send("duplicate of 149", 149)
    send("in sequence", 150)
    send("a gap", 155)
    send("in sequence", 151)
    send("a bad checksum", 152, crc=1)
    send("in sequence", 152)
    send("the transactional flag", 153, flags=TRANSACTIONAL_FLAG)
    send("another version", 153, version=9)
    send("in sequence", 154)
    send("a larger one", 155, value=b"x" * 200_000)
    send("too large", 156, value=b"x" * 2_000_000)
    send("in sequence", 156)
    broker.call("DeleteTopics", 6, topics=[{"name": "long-run"}], timeout_ms=TIMEOUT_MS)
    broker.wait_until(lambda: _is_gone(broker, "long-run"), "the topic to be gone")
    send("its topic is gone", 157)
    broker.prepare_topic("long-run")
    send("another topic of that name", 0, version=9)
    send("another topic of that name, the old id", 1)


def _is_gone(broker: Broker, topic: str) -> bool:
    latest = [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}]
    reply = broker.quietly("ListOffsets", 7, replica_id=-1, topics=latest)
    return bool(reply["topics"][0]["partitions"][0]["error_code"])
