"""Apache Kafka's cleaner and ours over the same log leave the same records; each reads what the other left."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from harness.apache_kafka import DUMP_LOG_SEGMENTS, ApacheKafka, run_kafka_tool
from harness.virtual_world import VirtualWorld

from pybroker.storage.files.checkpoints import read_offset_checkpoint, read_partition_metadata
from pybroker.storage.log.log import Log
from pybroker_protocol.record_codec import decode_records
from tests.storage.cleaner.logs import BACKOFF_MS, all_batches, clean, markers, survivors
from tests.storage.logs import Storage, small_config

pytestmark = pytest.mark.jvm

TOPIC = "t"
CONFIGS = {"cleanup.policy": "compact", "internal.segment.bytes": "30000", "min.cleanable.dirty.ratio": "0.01"}
PROPERTIES = {"log.cleaner.backoff.ms": "200", "log.index.size.max.bytes": "4096", "log.cleaner.enable": "false"}
PATIENCE_S = 60


def fill(kafka: ApacheKafka) -> None:
    """Every codec, tombstones, committed and aborted transactions, idempotent producers."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, 1, config=CONFIGS)])[TOPIC].result(PATIENCE_S)
    number = 0
    for round_ in range(6):
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            settings = {"bootstrap.servers": kafka.bootstrap, "compression.type": codec, "linger.ms": 20}
            plain = Producer({**settings, "enable.idempotence": round_ % 2 == 0})
            for _ in range(40):
                number += 1
                value = None if number % 11 == 0 else b"%d." % number + bytes(150)
                plain.produce(TOPIC, key=b"k%d" % (number * 7 % 60), value=value)
            assert plain.flush(PATIENCE_S) == 0
        transactional = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": f"tx{round_}"})
        transactional.init_transactions(PATIENCE_S)
        for commit in (True, False, True):
            transactional.begin_transaction()
            for i in range(20):
                number += 1
                transactional.produce(TOPIC, key=b"x%d" % (i * 3 % 25), value=b"%d" % number)
            transactional.flush(PATIENCE_S)
            if commit:
                transactional.commit_transaction(PATIENCE_S)
            else:
                transactional.abort_transaction(PATIENCE_S)


def opened(world: VirtualWorld, source: Path, target: Path) -> tuple[Storage, Log]:
    """A copy of Kafka's partition in a data directory of ours."""
    shutil.copytree(source, target / f"{TOPIC}-0")
    topic_id = read_partition_metadata(source)
    assert topic_id is not None
    storage = Storage(target, world, log_cleaner_backoff_ms=BACKOFF_MS)
    partition_log = storage.manager.open(
        TOPIC,
        topic_id,
        0,
        small_config(
            internal_segment_bytes=30_000,
            cleanup_policy=frozenset({"compact"}),
            min_cleanable_dirty_ratio=0.01,
            segment_index_bytes=4096,
        ),
    )
    assert partition_log is not None
    log = partition_log.open()
    log.update_high_watermark(log.log_end_offset)
    return storage, log


def await_cleaned(kafka: ApacheKafka) -> int:
    """Until Kafka has cleaned the topic; up to where."""
    deadline = time.monotonic() + PATIENCE_S
    path = kafka.data_directory / "cleaner-offset-checkpoint"
    while (TOPIC, 0) not in (offsets := read_offset_checkpoint(path) if path.exists() else {}):
        assert time.monotonic() < deadline, "Kafka cleaned nothing"
        time.sleep(0.2)
    return offsets[TOPIC, 0]


def consumed(kafka: ApacheKafka, end_offset: int) -> dict[bytes | None, bytes | None]:
    """What a read_committed consumer finds."""
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap, "group.id": "g", "enable.partition.eof": True},
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: dict[bytes | None, bytes | None] = {}
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is None:
            continue
        if message.error():
            break  # the end
        found[message.key()] = message.value()
    assert consumer.position([TopicPartition(TOPIC, 0)])[0].offset == end_offset
    consumer.close()
    return found


def test_kafka_and_we_leave_the_same_and_read_each_other(world: VirtualWorld, tmp_path: Path) -> None:
    kafka = ApacheKafka(tmp_path / "kafka", PROPERTIES)
    with kafka:
        fill(kafka)
        kafka.stop()
        dirty = tmp_path / "dirty"
        shutil.copytree(kafka.data_directory, dirty)
        partition = kafka.data_directory / f"{TOPIC}-0"
        ours_storage, ours = opened(world, dirty / f"{TOPIC}-0", tmp_path / "ours")
        before = survivors(ours)
        uncleaned = consumed_offline(ours)
        clean(world, 2)
        assert len(survivors(ours)) < len(before)
        # Kafka cleans the same.
        cleaning = ApacheKafka(tmp_path / "kafka", {**PROPERTIES, "log.cleaner.enable": "true"}, port=kafka.port)
        with cleaning:
            clean_offset = await_cleaned(cleaning)
            theirs_seen = consumed(cleaning, ours.log_end_offset)
            cleaning.stop()
        theirs_storage, theirs = opened(world, partition, tmp_path / "theirs")
        assert survivors(ours) == survivors(theirs)
        assert markers(ours) == markers(theirs)
        end = ours.log_end_offset
        # Kafka may have gone twice: the second round forgets aborted transactions whose data the first removed.
        assert set(theirs.aborted_transactions(0, end)) <= set(ours.aborted_transactions(0, end))
        world.run()
        ours_storage.close()
        theirs_storage.close()
        assert read_offset_checkpoint(tmp_path / "ours/cleaner-offset-checkpoint")[TOPIC, 0] == clean_offset
        # Kafka's tool finds nothing wrong with ours, and Kafka starts on it.
        files = sorted(path for path in (tmp_path / f"ours/{TOPIC}-0").iterdir() if path.suffix in {".log", ".index"})
        dump = run_kafka_tool(
            DUMP_LOG_SEGMENTS, "--deep-iteration", "--files", ",".join(map(str, files))
        ).stdout.lower()
        assert "deletehorizonms" in dump
        for complaint in ("mismatch", "isvalid: false", "corrupt", "exception", "error"):
            assert complaint not in dump
        shutil.rmtree(kafka.data_directory)
        shutil.copytree(dirty, kafka.data_directory)
        shutil.rmtree(partition)
        shutil.copytree(tmp_path / f"ours/{TOPIC}-0", partition)
        with ApacheKafka(tmp_path / "kafka", PROPERTIES, port=kafka.port) as reading:
            assert consumed(reading, end) == theirs_seen == uncleaned
            reading.stop()


def consumed_offline(log: Log) -> dict[bytes | None, bytes | None]:
    """The last committed value of each key, without a broker: aborted offsets are those of the index."""
    aborted = log.aborted_transactions(0, log.log_end_offset)
    found: dict[bytes | None, bytes | None] = {}
    for header, data in all_batches(log):
        gone = any(
            entry.producer_id == header.producer_id and entry.first_offset <= header.base_offset <= entry.last_offset
            for entry in aborted
        )
        if not header.is_control and not (header.is_transactional and gone):
            found.update({record.key: record.value for record in decode_records(data)})
    return found
